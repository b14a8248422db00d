from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runners.worker import functions, pb_utils
from runners.worker import server as servers
from runners.worker.datatypes import TRITON_STRING_TO_NUMPY
from runners.worker.errors import TritonModelException
from runners.worker.logger import Logger, LogLevel
from runners.worker.requests import InferenceRequest
from runners.worker.responses import InferenceResponse
from runners.worker.tensors import Tensor

if TYPE_CHECKING:
    from tests.unit.worker.answering import AnsweringServer

CONFIG: dict[str, Any] = {"input": [{"name": "IN", "dims": [1]}], "output": [{"name": "OUT", "dims": [2]}]}


def test_tensors_are_found_by_name() -> None:
    first, second = Tensor("A", np.zeros(1)), Tensor("B", np.zeros(1))
    request = InferenceRequest(model_name="m", inputs=[first, second], requested_output_names=[])
    assert functions.get_input_tensor_by_name(request, "B") is second
    assert functions.get_input_tensor_by_name(request, "C") is None
    response = InferenceResponse([first, second])
    assert functions.get_output_tensor_by_name(response, "A") is first
    assert functions.get_output_tensor_by_name(response, "C") is None


def test_configurations_are_found_by_name() -> None:
    assert functions.get_input_config_by_name(CONFIG, "IN") == {"name": "IN", "dims": [1]}
    assert functions.get_output_config_by_name(CONFIG, "OUT") == {"name": "OUT", "dims": [2]}
    assert functions.get_output_config_by_name(CONFIG, "IN") is None
    assert functions.get_input_config_by_name({}, "IN") is None


@pytest.mark.parametrize(
    ("config", "decoupled"),
    [({}, False), ({"model_transaction_policy": {}}, False), ({"model_transaction_policy": {"decoupled": True}}, True)],
)
def test_a_configuration_says_whether_a_model_is_decoupled(config: dict[str, Any], decoupled: bool) -> None:
    assert functions.using_decoupled_model_transaction_policy(config) is decoupled


@pytest.mark.parametrize("name", sorted(TRITON_STRING_TO_NUMPY))
def test_a_type_is_the_same_in_all_its_names(name: str) -> None:
    dtype = functions.triton_string_to_numpy(name)
    number = functions.numpy_to_triton_type(dtype)
    assert functions.triton_to_numpy_type(number) is dtype
    # as models use it
    assert np.zeros(1).astype(dtype).dtype == dtype


def test_types_have_the_numbers_of_triton() -> None:
    assert functions.numpy_to_triton_type(np.float32) == 11
    assert functions.numpy_to_triton_type(np.bytes_) == 13
    assert functions.triton_to_numpy_type(9) is np.int64


def test_there_is_no_bf16_in_numpy() -> None:
    with pytest.raises(KeyError):
        functions.triton_string_to_numpy("TYPE_BF16")


def test_strings_are_serialized_and_read_again() -> None:
    array = np.array([["a", b"bc"], ["", "é"]], dtype=np.object_)
    serialized = functions.serialize_byte_tensor(array)
    assert serialized is not None
    assert serialized.item() == b"\x01\x00\x00\x00a\x02\x00\x00\x00bc\x00\x00\x00\x00\x02\x00\x00\x00\xc3\xa9"
    assert functions.deserialize_bytes_tensor(serialized.item()).tolist() == [b"a", b"bc", b"", "é".encode()]


def test_nothing_is_serialized_of_what_has_no_strings() -> None:
    assert functions.serialize_byte_tensor(np.zeros(2)) is None
    assert functions.serialize_byte_tensor(np.empty(0, dtype=np.object_)) is None


def test_models_are_loaded_and_unloaded(server: AnsweringServer) -> None:
    functions.load_model("m")
    functions.load_model(model_name="m", config="{}", files={"file:1/model.onnx": b"x"})
    functions.unload_model("m")
    functions.unload_model("m", unload_dependents=True)
    assert server.verbs == [
        ("load", "m", "", {}),
        ("load", "m", "{}", {"file:1/model.onnx": b"x"}),
        ("unload", "m", False),
        ("unload", "m", True),
    ]
    server.ready.add(("m", ""))
    assert functions.is_model_ready("m")
    assert not functions.is_model_ready(model_name="m", model_version="2")


def test_a_model_knows_its_directory(server: AnsweringServer) -> None:
    assert functions.get_model_dir() == "/models/m/1"


def test_lines_have_a_level(server: AnsweringServer) -> None:
    logger = pb_utils.Logger
    logger.log("none")
    logger.log("some", logger.WARNING)
    logger.log_info("a")
    logger.log_warn("b")
    logger.log_error("c")
    logger.log_verbose("d")
    assert server.lines == [
        ("info", "none"),
        ("warning", "some"),
        ("info", "a"),
        ("warning", "b"),
        ("error", "c"),
        ("verbose", "d"),
    ]


@pytest.mark.parametrize("level", [None, 1])
def test_a_level_is_one_of_the_loggers(server: AnsweringServer, level: Any) -> None:
    with pytest.raises(TypeError):
        Logger.log("text", level)


@pytest.mark.parametrize("log", [Logger.log, Logger.log_info, Logger.log_warn, Logger.log_error, Logger.log_verbose])
def test_a_line_is_a_string(server: AnsweringServer, log: Any) -> None:
    with pytest.raises(TypeError):
        log(None)


def test_the_api_says_where_there_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    # a model that ran in this process before may have left its own
    monkeypatch.setattr(servers, "_all", [])
    servers._of_thread.set(None)
    with pytest.raises(TritonModelException, match="there is no server here"):
        servers.current()


def test_a_line_is_printed_where_there_is_no_server(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(servers, "_all", [])
    servers._of_thread.set(None)
    Logger.log_info("text")
    assert capfd.readouterr().err == "text\n"


def test_both_names_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in pb_utils.NAMES:
        monkeypatch.setitem(sys.modules, name, None)
    pb_utils.install()
    for name in pb_utils.NAMES:
        assert importlib.import_module(name) is pb_utils


# the surface that models touch, as the documentation of Triton's Python backend lists it
SURFACE = """
    InferenceRequest InferenceResponse InferenceResponseSender InferenceTrace LogLevel Logger MemoryType Metric
    MetricFamily MetricKind ModelConfig PreferredMemory ResponseIterator Tensor TritonError TritonModelException
    TRITON_STRING_TO_NUMPY TRITONSERVER_MEMORY_CPU TRITONSERVER_MEMORY_GPU
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
    TRITONSERVER_REQUEST_RELEASE_ALL TRITONSERVER_REQUEST_RELEASE_RESCHEDULE TRITONSERVER_RESPONSE_COMPLETE_FINAL
    deserialize_bytes_tensor get_input_config_by_name get_input_tensor_by_name get_model_dir
    get_output_config_by_name get_output_tensor_by_name is_model_ready load_model numpy_to_triton_type
    serialize_byte_tensor triton_string_to_numpy triton_to_numpy_type unload_model
    using_decoupled_model_transaction_policy
"""


@pytest.mark.parametrize("name", SURFACE.split())
def test_the_api_has(name: str) -> None:
    assert hasattr(pb_utils, name)


def test_constants_are_those_of_triton() -> None:
    assert pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START == 1
    assert pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END == 2
    assert pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL == 1
    assert pb_utils.TRITONSERVER_REQUEST_RELEASE_ALL == 1
    assert pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE == 2
    assert pb_utils.TRITONSERVER_MEMORY_GPU is pb_utils.MemoryType.TRITONSERVER_MEMORY_GPU
    assert [LogLevel.INFO, LogLevel.ERROR] == [Logger.INFO, Logger.ERROR]
