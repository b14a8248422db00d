"""What Python models say of their configuration by themselves"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from runners import Engine, EngineOptions, ModelOptions
from tests.integration.python_models import models
from tests.integration.python_models.test_models import client_of
from tests.integration.test_hostile_models import change
from tests.processes import lives
from tests.raw_http import frame
from tests.waiting import eventually, settles

if TYPE_CHECKING:
    from tests.conftest import StartServer

PYTHON: Final = 'backend: "python"\n'
TENSORS: Final = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""
COMPLETE: Final = """
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [2]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [2]})
"""
ECHO: Final = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
BODY

    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.output(request)]) for request in requests]

    def output(self, request):
        return pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy() * 2)
"""


def write(repository: Path, body: str, config: str = PYTHON) -> Path:
    """A model `m` with this `auto_complete_config`; its file."""
    indented = "\n".join(f"        {line.strip()}" for line in body.strip().splitlines())
    models.write(repository, "m", ECHO.replace("BODY", indented), config)
    return repository / "m" / "1" / "model.py"


def why(repository: Path, **options: Any) -> str:  # noqa: ANN401 - of EngineOptions
    """The reason why `m` is not served"""
    with Engine(repository, options=EngineOptions(exit_on_error=False, **options)) as engine:
        return str(engine.failures["m"])


def config_of(engine: Engine) -> dict[str, Any]:
    found: dict[str, Any] = engine.get_model_config("m")
    return found


def test_a_model_says_everything_by_itself(repository: Path) -> None:
    file = write(repository, COMPLETE + "config.set_max_batch_size(4)\nconfig.set_dynamic_batching()\nreturn config")
    (repository / "m" / "config.pbtxt").unlink()
    assert file.exists()
    with Engine(repository) as engine:
        config = config_of(engine)
        assert engine.infer("m", np.ones((3, 2), np.float32))["Y"].tolist() == [[2, 2]] * 3
    assert config["max_batch_size"] == 4
    assert config["dynamic_batching"]["preferred_batch_size"] == [4]
    assert [(one["name"], one["data_type"], one["dims"]) for one in config["input"] + config["output"]] == [
        ("X", "TYPE_FP32", [2]),
        ("Y", "TYPE_FP32", [2]),
    ]


def test_a_model_says_that_it_is_decoupled(repository: Path) -> None:
    write(repository, COMPLETE + 'config.set_model_transaction_policy({"decoupled": True})\nreturn config')
    with Engine(repository) as engine:
        assert config_of(engine)["model_transaction_policy"] == {"decoupled": True}


def test_what_is_stated_may_be_completed(repository: Path) -> None:
    write(repository, "config.set_max_batch_size(8)\nreturn config", PYTHON + "max_batch_size: 2" + TENSORS)
    with Engine(repository) as engine:
        assert config_of(engine)["max_batch_size"] == 8


def test_what_a_model_may_not_decide_stays_as_it_was(repository: Path) -> None:
    body = 'config.as_dict()["instance_group"] = [{"count": 3}]\nconfig.as_dict()["name"] = "n"\nreturn config'
    write(repository, COMPLETE + body)
    with Engine(repository) as engine:
        config = config_of(engine)
    assert (config["name"], [group["count"] for group in config["instance_group"]]) == ("m", [1])


def test_a_class_may_inherit_it(repository: Path) -> None:
    write(repository, COMPLETE + "return config")
    file = repository / "m" / "1" / "model.py"
    file.rename(file.with_name("base.py"))
    file.write_text("from base import TritonPythonModel\n")
    with Engine(repository) as engine:
        assert engine.infer("m", np.ones(2, np.float32))["Y"].tolist() == [2, 2]


def test_without_auto_completion_a_model_is_not_asked(repository: Path, start_server: StartServer) -> None:
    write(repository, 'raise ValueError("not to be asked")', PYTHON + TENSORS)
    server = start_server(repository, "--disable-auto-complete-config")
    assert client_of(server).get_model_metadata("m")["inputs"][0]["name"] == "X"


def test_without_auto_completion_what_is_missing_is_missing(repository: Path) -> None:
    write(repository, COMPLETE + "return config")
    with Engine(repository, options=EngineOptions(models=ModelOptions(strict_config=True))) as engine:
        assert (config_of(engine)["input"], config_of(engine)["output"]) == ([], [])


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('raise OSError("no weights")', r"OSError: no weights\n\nAt:\n  {file}\(8\): auto_complete_config\n"),
        ("return None", "auto_complete_config function in model 'm' must return a valid pb.ModelConfig object."),
        ("return config.as_dict()", "auto_complete_config function in model 'm' must return a valid pb.ModelConfig"),
        ('config.add_input({"name": "X"})', "input 'X' in .* for model 'm' is missing 'data_type' property."),
        ("config.add_input(None)\nreturn config", "TypeError: "),
        (
            'config.add_input({"name": "X", "data_type": "TYPE_FP99", "dims": [1]})\nreturn config',
            "'{file}' completes the configuration wrongly: .*TYPE_FP99",
        ),
        (
            'config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": ["many"]})\nreturn config',
            "'{file}' completes the configuration wrongly: ",
        ),
        ('config.as_dict()["nothing"] = 1\nreturn config', "'{file}' completes the configuration wrongly: .*nothing"),
        ("config.as_dict()[1] = {1}\nreturn config", "TypeError: Object of type set is not JSON serializable"),
        ('config.as_dict()["max_batch_size"] = -1\nreturn config', "'max_batch_size' must be non-negative value for m"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        (
            "import os\nprint('last words', flush=True)\nos._exit(7)",
            "exited with code 7; the last it printed:\nlast words",
        ),
        ("import ctypes\nctypes.string_at(0)", r"killed by signal 11 \(SIGSEGV: a segmentation fault\)"),
        ("import os, sys\nos.write(int(sys.argv[1]), b'x' * 64)\nimport signal\nsignal.pause()", "m_auto_complete: "),
    ],
)
def test_one_that_fails_fails_the_model_with_a_reason(repository: Path, body: str, text: str) -> None:
    file = write(repository, body)
    reason = why(repository)
    assert re.search(text.replace("{file}", re.escape(str(file))), reason, re.DOTALL), reason


def test_one_that_contradicts_the_configuration_is_refused(repository: Path) -> None:
    write(repository, "config.set_max_batch_size(2)\nreturn config", PYTHON + "max_batch_size: 4" + TENSORS)
    assert "configuration specified max_batch_size 4, but in auto-complete-config function for model 'm'" in why(
        repository
    )


def test_one_that_takes_too_long_is_ended(repository: Path) -> None:
    write(repository, "import signal\nsignal.pause()")
    backends = {"python": {"stub-timeout-seconds": "1"}}
    reason = why(repository, backend_config=backends)
    assert reason.endswith(
        "m_auto_complete: its configuration was not complete in time; it was killed by signal 9 (SIGKILL)"
    )


def test_its_traceback_is_whole_in_the_log(repository: Path, start_server: StartServer) -> None:
    file = write(repository, 'import json\njson.loads("{")')
    server = start_server(repository, "--exit-on-error=false", "--strict-readiness=false")
    for line in (
        r"Traceback \(most recent call last\):",
        rf'  File "{re.escape(str(file))}", line 9, in auto_complete_config',
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes",
    ):
        server.log.wait_for(re.compile(f"m_auto_complete: {line}"), 10)


def test_a_configuration_without_end_is_not_read(repository: Path) -> None:
    body = """
        config._config["input"] = [{}] * 6_000_000
        return config
"""
    models.write(repository, "endless", ECHO.replace("BODY", body), PYTHON)
    with Engine(repository, options=EngineOptions(exit_on_error=False)) as engine:
        assert "at most 16777216 are read" in str(engine.failures["endless"])


def test_an_unload_ends_the_process_in_which_a_configuration_is_completed(
    repository: Path, start_server: StartServer, tmp_path: Path
) -> None:
    written = tmp_path / "pid"
    body = f"""
        import os, pathlib, time
        part = pathlib.Path({str(written)!r} + ".part")
        part.write_text(str(os.getpid()))
        part.rename({str(written)!r})
        time.sleep(3600)
    """
    write(repository, body)
    server = start_server(repository, "--model-control-mode=explicit")
    with server.connect() as loading:
        loading.send(frame("POST", "/v2/repository/models/m/load"))
        eventually(written.exists, "the process has begun")
        assert change(server, "m", "unload").status == 200
        assert "given up: the model is to be unloaded" in loading.receive().error
    settles(lambda: not lives(int(written.read_text())), "the process has ended")
    shutil.rmtree(repository / "m")
    write(repository, COMPLETE + "return config")
    assert change(server, "m", "load").status == 200
