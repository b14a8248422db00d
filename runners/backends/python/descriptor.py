"""What the rest of the package knows about Python models before one is loaded"""

from ...repository.descriptor import Descriptor
from ...repository.values import Setting

__all__ = ["DESCRIPTOR"]


def _is_seconds(text: str) -> bool:
    return text.isdecimal() and int(text) > 0


DESCRIPTOR = Descriptor(
    name="python",
    loads=f"{__package__}.backend:PythonBackend",
    kinds=(("", "model.py"), ("python", "model.py")),
    order=50,
    any_parameter=True,
    executed_by="processes",
    code_suffix=".py",
    apart=True,
    backend_file="model.py",
    parameters=(
        "EXECUTION_ENV_PATH",
        "FORCE_CPU_ONLY_INPUT_TENSORS",
        "kushi.call_timeout",
        "kushi.execute_timeout",
        "kushi.inprocess",
        "kushi.max_requests",
        "kushi.python",
        "kushi.requirements",
    ),
    code=("EXECUTION_ENV_PATH", "kushi.inprocess", "kushi.python", "kushi.requirements"),
    fields=("model_transaction_policy",),
    settings={
        "stub-timeout-seconds": Setting("seconds, 1 or more", _is_seconds),
        "shm-default-byte-size": Setting("bytes", str.isdecimal),
        "shm-growth-byte-size": Setting("bytes", str.isdecimal),
        "shm-region-prefix-name": Setting("a text", lambda _text: True),
        "python-runtime": Setting("a path", bool),
    },
)
