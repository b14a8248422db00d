"""ONNX models with OpenVINO, whose provider takes CPUs of Intel alone: on others the tests see that it says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from onnx import helper

from runners import Engine, EngineOptions
from tests import models
from tests.examples import built

if TYPE_CHECKING:
    import onnx

pytest.importorskip("onnxruntime_ep_openvino", reason="there is no package of it for this machine")

INTEL: Final = "GenuineIntel" in Path("/proc/cpuinfo").read_text()
VALUE: Final = np.arange(32, dtype=np.float32).reshape(2, 16)


def openvino(**parameters: str) -> str:
    stated = " ".join(f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items())
    inside = f'cpu_execution_accelerator {{ name: "openvino" {stated} }}'
    return f"optimization {{ execution_accelerators {{ {inside} }} }}\n"


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def model() -> onnx.ModelProto:
    return models.add_sub(["batch", 16], "FP32")


def check(engine: Engine, name: str) -> None:
    answer = engine.infer(name, VALUE, VALUE)
    assert np.array_equal(answer["OUTPUT0"], VALUE + VALUE)
    assert np.array_equal(answer["OUTPUT1"], VALUE - VALUE)


@pytest.mark.skipif(INTEL, reason="OpenVINO computes here")
def test_a_cpu_that_openvino_does_not_take_is_an_error_and_the_old_version_goes_on(tmp_path: Path) -> None:
    folder = models.write(tmp_path, "m", model())
    with Engine(tmp_path) as engine:
        (folder / "config.pbtxt").write_text(openvino())
        with pytest.raises(Exception, match="of model 'm' cannot be used: OpenVINO takes CPUs of Intel alone"):
            engine.load_model("m")
        check(engine, "m")


@pytest.mark.skipif(not INTEL, reason="OpenVINO takes CPUs of Intel alone")
def test_openvino_computes_for_each_instance_with_the_options_of_the_model(tmp_path: Path) -> None:
    repository, profiles = tmp_path / "models", tmp_path / "profiles"
    profiles.mkdir()
    only = parameter("session.disable_cpu_ep_fallback", "1")
    models.write(repository, "plain", model(), openvino() + only + parameter("kushi.profile", "1"))
    stated = openvino(num_of_threads="1", num_streams="2", precision="FP32", cache_dir="cache")
    folder = models.write(repository, "stated", model(), stated + only)
    settings = EngineOptions(backend_config={"onnxruntime": {"profile-directory": str(profiles)}})
    with Engine(repository, options=settings) as engine:
        assert not engine.failures
        for name in ("plain", "stated"):
            check(engine, name)
    assert list((folder / "1" / "cache").glob("*.blob"))
    events: list[dict[str, Any]] = [e for path in profiles.iterdir() for e in json.loads(path.read_text())]
    ran = [event["args"] for event in events if "op_name" in event.get("args", {})]
    assert {arguments["provider"] for arguments in ran} == {"OpenVINOExecutionProvider"}


@pytest.mark.skipif(not INTEL, reason="OpenVINO takes CPUs of Intel alone")
@pytest.mark.parametrize("embedded", ["0", "1"])
def test_what_openvino_has_compiled_is_written_once_and_served_as_a_model(tmp_path: Path, embedded: str) -> None:
    text = parameter("ep.context_enable", "1") + parameter("ep.context_embed_mode", embedded)
    folder = models.write(tmp_path, "m", model(), openvino() + text)
    with Engine(tmp_path) as engine:
        assert not engine.failures
        engine.load_model("m")
        check(engine, "m")
    (folder / "1" / "model_ctx.onnx").replace(folder / "1" / "model.onnx")
    (folder / "config.pbtxt").write_text(openvino())
    with Engine(tmp_path) as engine:
        assert not engine.failures
        check(engine, "m")


def tripled(*, after: bool) -> onnx.ModelProto:
    """An operator of a library of its own, alone or after one that OpenVINO has."""
    nodes = [helper.make_node("Relu", ["X"], ["H"])] if after else []
    nodes.append(helper.make_node("Triple", ["H" if after else "X"], ["Y"], domain="kushi.test"))
    given, made = ([models.tensor(name, "FP32", ["batch", 2])] for name in ("X", "Y"))
    opsets = [helper.make_opsetid("", models.OPSET), helper.make_opsetid("kushi.test", 1)]
    built_graph = helper.make_graph(nodes, "graph", given, made)
    return helper.make_model(built_graph, opset_imports=opsets, ir_version=models.IR_VERSION)


@pytest.mark.skipif(not INTEL, reason="OpenVINO takes CPUs of Intel alone")
def test_what_openvino_does_not_compute_is_an_error_or_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = openvino() + 'model_operations { op_library_filename: "operators.so" }'
    for name, after in {"none": False, "some": True}.items():
        folder = models.write(tmp_path, name, tripled(after=after), text)
        shutil.copy(built("kushi_custom_op"), folder / "operators.so")
    models.write(tmp_path, "strings", models.identity("BYTES"), openvino())
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        assert "OpenVINO has none of its operators: Triple" in str(engine.failures["none"])
        assert "OpenVINO does not take strings, and 'INPUT0' is of BYTES" in str(engine.failures["strings"])
        answer = engine.infer("some", np.array([[-1.0, 2.0]], np.float32))
        assert answer["Y"].tolist() == [[0.0, 6.0]]
    logged = capfd.readouterr().err
    assert "some/1/model.onnx': the CPU computes operators that OpenVINO does not take: Triple" in logged
