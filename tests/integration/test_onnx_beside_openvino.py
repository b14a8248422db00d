"""What computes a model: what its own configuration says, whatever other models of the process have asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from tests import models
from tests.serving import ROOT

if TYPE_CHECKING:
    import onnx

pytest.importorskip("onnxruntime_ep_openvino", reason="there is no package of it for this machine")
pytestmark = pytest.mark.skipif(
    "GenuineIntel" not in Path("/proc/cpuinfo").read_text(), reason="OpenVINO takes CPUs of Intel alone"
)

SIZE: Final = 64
VALUE: Final = np.random.default_rng(1).standard_normal((2, SIZE), dtype=np.float32)
OUTSIDE: Final = 99
CPU, OPENVINO = "CPUExecutionProvider", "OpenVINOExecutionProvider"
BF16: Final = " avx512_bf16 " in Path("/proc/cpuinfo").read_text()


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def openvino(**parameters: str) -> str:
    stated = " ".join(f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items())
    inside = f'cpu_execution_accelerator {{ name: "openvino" {stated} }}'
    return f"optimization {{ execution_accelerators {{ {inside} }} }}\n"


def network() -> onnx.ModelProto:
    """Two products of matrices, whose answers show in what they were computed."""
    generator = np.random.default_rng(2)
    weights = [
        numpy_helper.from_array(generator.standard_normal((SIZE, SIZE), dtype=np.float32), name) for name in ("A", "B")
    ]
    nodes = [
        helper.make_node("MatMul", ["X", "A"], ["H"]),
        helper.make_node("Tanh", ["H"], ["T"]),
        helper.make_node("MatMul", ["T", "B"], ["Y"]),
    ]
    given, made = ([models.tensor(name, "FP32", ["batch", SIZE])] for name in ("X", "Y"))
    return models.model(nodes, given, made, weights)


ONLY: Final = parameter("session.disable_cpu_ep_fallback", "1")
PLAIN: Final = models.ONE_INSTANCE + models.ONE_THREAD
CONFIGURATIONS: Final = {
    "plain": PLAIN + parameter("kushi.profile", "1"),
    "openvino": models.ONE_INSTANCE + openvino() + ONLY + parameter("kushi.profile", "1"),
    "bf16": models.ONE_INSTANCE + openvino(precision="BF16") + ONLY,
    "own_threads": models.ONE_INSTANCE + parameter("intra_op_thread_count", "2"),
    "without_cpu": PLAIN + ONLY,
}

PROGRAM: Final = """
import json, sys
import numpy as np
from runners import Engine, EngineOptions, ModelOptions
from runners.errors import KushiError

repository, profiles, value, outside = sys.argv[1], sys.argv[2], np.load(sys.argv[3]), int(sys.argv[4])
options = EngineOptions(
    models=ModelOptions(control="explicit"), backend_config={"onnxruntime": {"profile-directory": profiles}}
)
answers = []
with Engine(repository, options=options) as engine:
    def ask(name):
        if name == "gather":
            return engine.infer(name, np.array([[outside]]))["OUTPUT0"].tolist()
        return engine.infer(name, value)["Y"].tolist()

    def answer(name):
        try:
            return ask(name)
        except KushiError as error:
            return str(error)

    loaded = []
    for name in sys.argv[5:]:
        try:
            engine.load_model(name)
            loaded.append(name)
        except KushiError as error:
            answers.append([name, str(error)])
        # those that came before, too
        answers.extend([name, answer(name)] for name in dict.fromkeys(loaded))
print(json.dumps(answers))
"""


class Ran:
    """The answers of models that one process loaded, one after the other, each time by all that were there."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        repository, self._profiles = folder / "models", folder / "profiles"
        self._profiles.mkdir()
        for name, text in CONFIGURATIONS.items():
            models.write(repository, name, network(), text)
        models.write(repository, "gather", models.gather())
        np.save(folder / "value.npy", VALUE)
        arguments = [repository, self._profiles, folder / "value.npy", OUTSIDE, *names]
        command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        self._answers: list[tuple[str, Any]] = json.loads(done.stdout)

    def texts(self, name: str) -> list[str]:
        found = [answer for model, answer in self._answers if model == name]
        assert found
        assert all(isinstance(answer, str) for answer in found), found
        return found

    def values(self, name: str) -> list[np.ndarray[Any, Any]]:
        found = [answer for model, answer in self._answers if model == name]
        assert found
        assert not [answer for answer in found if isinstance(answer, str)]
        return [np.array(answer, np.float32) for answer in found]

    def computed_by(self, name: str) -> set[str]:
        """The execution providers of all that was computed, as the profiles of ONNX Runtime have it."""
        texts = [path.read_text() for path in self._profiles.glob(f"{name}_*.json")]
        events = [event["args"] for text in texts for event in json.loads(text) if "op_name" in event.get("args", {})]
        return {arguments["provider"] for arguments in events}


def alone() -> np.ndarray[Any, Any]:
    """What ONNX Runtime itself answers, on its CPU provider."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(network().SerializeToString(), options, providers=[CPU])
    (answer,) = session.run(None, {"X": VALUE})
    return np.asarray(answer)


def furthest(answers: list[np.ndarray[Any, Any]]) -> float:
    return max(float(np.abs(answer - alone()).max()) for answer in answers)


@pytest.mark.parametrize(
    "names",
    [
        ("openvino", "plain"),
        ("plain", "openvino"),
        ("openvino", "plain", "openvino", "plain"),
        ("plain", "bf16", "own_threads", "openvino", "plain", "own_threads"),
    ],
    ids=" ".join,
)
def test_a_model_is_computed_by_what_its_own_configuration_says(tmp_path: Path, names: tuple[str, ...]) -> None:
    ran = Ran(tmp_path, names)
    for name in {"plain", "own_threads"} & set(names):
        assert all(np.array_equal(answer, alone()) for answer in ran.values(name)), furthest(ran.values(name))
    assert (ran.computed_by("plain"), ran.computed_by("openvino")) == ({CPU}, {OPENVINO})


def test_an_index_out_of_range_fails_beside_openvino(tmp_path: Path) -> None:
    for text in Ran(tmp_path, ("openvino", "gather", "openvino")).texts("gather"):
        assert "indices element out of data bounds" in text


def test_a_model_that_must_not_fall_back_to_the_cpu_has_nothing_else_beside_openvino(tmp_path: Path) -> None:
    for text in Ran(tmp_path, ("openvino", "without_cpu")).texts("without_cpu"):
        assert "fallback to CPU EP has been explicitly disabled" in text


def test_openvino_computes_in_fp32_unless_a_model_asks_for_less(tmp_path: Path) -> None:
    ran = Ran(tmp_path, ("openvino", "bf16"))
    assert furthest(ran.values("openvino")) < 1e-4
    if BF16:
        assert furthest(ran.values("bf16")) > 1e-3
