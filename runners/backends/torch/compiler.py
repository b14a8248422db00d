"""Which errors of a batch are those of PyTorch's compiler, rather than of the model or of its inputs"""

import sys

from ...errors import EngineFailed

__all__ = ["NotCompiledError", "is_of_compiler"]


class NotCompiledError(EngineFailed):
    """The program cannot be compiled for such inputs"""


def is_of_compiler(error: BaseException) -> bool:
    """Whether the compiler raised it, or Triton's, which it asks for kernels"""
    # whoever has compiled nothing has not loaded it
    if dynamo := sys.modules.get("torch._dynamo.exc"):
        # what the model itself raises while the compiler follows it
        of_model = (dynamo.TorchRuntimeError, dynamo.ObservedException)
        if isinstance(error, dynamo.TorchDynamoException) and not isinstance(error, of_model):
            return True
    return _raised_in(error).partition(".")[0] == "triton"


def _raised_in(error: BaseException) -> str:
    """The module whose function has raised it"""
    trace, name = error.__traceback__, ""
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    return name
