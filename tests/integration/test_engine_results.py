"""What a call to an engine in this process answers: a mapping of arrays that may be kept, and not be written to."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from runners import Engine, ShuttingDown
from tests import models
from tests.arrays import DTYPES, LARGE, ones, sample

Array = NDArray[Any]
ROOT = Path(__file__).parents[2]


def test_a_result_is_a_mapping_of_arrays(engine: Engine) -> None:
    result = engine.infer("add_sub", ones(), ones(), request_id="r5")
    assert isinstance(result, Mapping)
    assert (result.model_name, result.model_version, result.request_id) == ("add_sub", "1", "r5")
    assert list(result) == list(result.keys()) == ["OUTPUT0", "OUTPUT1"]
    assert len(result) == 2
    assert "OUTPUT0" in result
    assert "OUTPUT2" not in result
    number: object = 5
    assert number not in result
    assert [array.sum() for array in result.values()] == [32, 0]
    assert [(name, array.sum()) for name, array in result.items()] == [("OUTPUT0", 32), ("OUTPUT1", 0)]
    assert result.get("OUTPUT2") is None
    assert result.get("OUTPUT2", 5) == 5
    assert result.as_numpy("OUTPUT2") is None
    assert result.as_numpy("OUTPUT0") is result["OUTPUT0"]
    first, second = result.values()
    assert (first.sum(), second.sum()) == (32, 0)
    assert repr(result) == "<Result of 'add_sub' version 1: OUTPUT0: INT32[1, 16], OUTPUT1: INT32[1, 16]>"


def test_an_unknown_output_names_those_that_there_are(engine: Engine) -> None:
    result = engine.infer("add_sub", ones(), ones())
    for look in (result.__getitem__, result.tensor):
        with pytest.raises(KeyError) as raised:
            look("OUTPUT2")
        assert raised.value.args == (
            "'OUTPUT2' is no output of this answer of model 'add_sub', expected 'OUTPUT0' or 'OUTPUT1'",
        )


def test_a_result_describes_itself_as_tritonclients_does(engine: Engine) -> None:
    result = engine.infer("add_sub", ones(), ones(), outputs=["OUTPUT1"], request_id="r6")
    described = {"name": "OUTPUT1", "datatype": "INT32", "shape": [1, 16], "parameters": {"binary_data_size": 64}}
    assert result.get_output("OUTPUT1") == described
    assert result.get_output("OUTPUT0") is None
    assert result.get_response() == {
        "id": "r6",
        "model_name": "add_sub",
        "model_version": "1",
        "outputs": [described],
    }


def test_a_result_says_where_the_time_went(engine: Engine) -> None:
    timings = engine.infer("add_sub", ones(), ones()).timings
    assert timings is not None
    parts = (timings.queue_us, timings.compute_input_us, timings.compute_infer_us, timings.compute_output_us)
    assert all(part >= 0 for part in parts)
    assert timings.compute_infer_us > 0
    assert repr(timings).startswith("Timings(queue_us=")


def test_outputs_of_requests_that_shared_a_batch_are_not_each_others(tmp_path: Path) -> None:
    text = models.config(
        "identity",
        [("INPUT0", "FP32", [-1])],
        [("OUTPUT0", "FP32", [-1])],
        max_batch_size=2,
        extra="dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 10000000 }",
    )
    models.write(tmp_path, "identity", models.identity("FP32"), text)

    async def both(engine: Engine) -> list[Array]:
        rows = [np.full((1, LARGE), value, np.float32) for value in (1, 2)]
        return [
            result["OUTPUT0"] for result in await asyncio.gather(*(engine.async_infer("identity", r) for r in rows))
        ]

    with Engine(tmp_path) as engine:
        first, second = asyncio.run(both(engine))
        assert engine.statistics()["model_stats"][0]["execution_count"] == 1
        with pytest.raises(ValueError, match="read-only"):
            first[:] = 7
        assert (first.tolist(), second.tolist()) == ([[1.0] * LARGE], [[2.0] * LARGE])


@pytest.mark.parametrize("columns", [3, LARGE])
@pytest.mark.parametrize("datatype", DTYPES)
def test_an_output_is_not_written_to_whatever_its_size(engine: Engine, datatype: str, columns: int) -> None:
    result = engine.infer(f"identity_{datatype.lower()}", sample(DTYPES[datatype], columns))
    for array in (result["OUTPUT0"], result.tensor("OUTPUT0").numpy()):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
        if not array.flags.owndata:
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True
        array.copy()[...] = 0


def test_a_large_output_shows_the_engines_memory_and_a_small_one_is_a_copy(engine: Engine) -> None:
    large = engine.infer("identity_fp32", sample(np.float32, LARGE))["OUTPUT0"]
    small = engine.infer("identity_fp32", sample(np.float32))["OUTPUT0"]
    assert not large.flags.owndata
    assert small.flags.owndata


@pytest.mark.parametrize("columns", [3, LARGE])
def test_an_output_outlives_its_result_and_its_engine(repository: Path, columns: int) -> None:
    models.write(repository, "identity", models.identity("FP32"))
    sent = sample(np.float32, columns)
    with Engine(repository) as engine:
        result = engine.infer("identity", sent)
        output = result["OUTPUT0"][1:]
        tensor = result.tensor("OUTPUT0")
    del engine, result
    gc.collect()
    assert output.tolist() == sent[1:].tolist()
    assert np.from_dlpack(tensor).tolist() == sent.tolist()


def test_an_input_may_be_written_to_once_its_call_has_ended(engine: Engine) -> None:
    sent = sample(np.float32, LARGE)
    before = sys.getrefcount(sent)
    result = engine.infer("identity_fp32", sent)
    assert sys.getrefcount(sent) == before
    sent[:] = -1
    assert result["OUTPUT0"][1, 1] == LARGE + 1


def test_a_closed_engine_says_so(repository: Path) -> None:
    models.write(repository, "identity", models.identity("FP32"))
    engine = Engine(repository)
    engine.close()
    with pytest.raises(ShuttingDown, match=r"^the engine is closed$") as raised:
        engine.infer("identity", sample(np.float32), request_id="r8")
    assert (raised.value.model, raised.value.request_id) == ("identity", "r8")


# --- DLPack ---


@pytest.mark.parametrize("columns", [3, LARGE])
@pytest.mark.parametrize("datatype", [name for name in DTYPES if name != "BF16"])
def test_other_frameworks_take_a_tensor_by_dlpack(engine: Engine, datatype: str, columns: int) -> None:
    sent = sample(DTYPES[datatype], columns)
    tensor = engine.infer(f"identity_{datatype.lower()}", sent).tensor("OUTPUT0")
    assert tensor.__dlpack_device__() == (1, 0)
    taken = np.from_dlpack(tensor)
    assert taken.dtype == sent.dtype
    assert taken.tolist() == sent.tolist()
    assert np.from_dlpack(tensor, copy=True).tolist() == sent.tolist()


def test_dlpack_shares_memory_unless_a_copy_is_asked_for(engine: Engine) -> None:
    tensor = engine.infer("identity_fp32", sample(np.float32, LARGE)).tensor("OUTPUT0")
    assert np.shares_memory(np.from_dlpack(tensor), tensor.numpy())
    assert not np.shares_memory(np.from_dlpack(tensor, copy=True), tensor.numpy())


def test_dlpack_says_that_memory_is_not_to_be_written_to_or_copies_it(engine: Engine) -> None:
    tensor = engine.infer("identity_fp32", sample(np.float32, LARGE)).tensor("OUTPUT0")

    class Old:
        """What a consumer sees that knows only the form of capsule without flags"""

        def __dlpack__(self, *, stream: None = None, **_: object) -> Any:  # noqa: ANN401 - a capsule
            return tensor.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return tensor.__dlpack_device__()

    assert not np.from_dlpack(tensor).flags.writeable
    assert np.from_dlpack(tensor, copy=True).flags.writeable
    old = np.from_dlpack(Old())
    assert not np.shares_memory(old, tensor.numpy())
    assert old.tolist() == tensor.numpy().tolist()
    with pytest.raises(BufferError, match=r"max_version is below 1\.0, DLPack needs a copy of the tensor"):
        tensor.__dlpack__(copy=False)


def test_dlpack_hands_out_both_forms_of_capsule(engine: Engine) -> None:
    tensor = engine.infer("identity_bf16", sample(ml_dtypes.bfloat16)).tensor("OUTPUT0")
    assert '"dltensor"' in repr(tensor.__dlpack__())
    assert '"dltensor"' in repr(tensor.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(tensor.__dlpack__(max_version=(1, 0)))


def test_dlpack_refuses_what_it_cannot_carry(engine: Engine) -> None:
    strings = engine.infer("identity_bytes", [["a"]]).tensor("OUTPUT0")
    with pytest.raises(BufferError, match="a tensor of BYTES cannot be handed on by DLPack"):
        strings.__dlpack__()
    numbers = engine.infer("identity_fp32", sample(np.float32)).tensor("OUTPUT0")
    with pytest.raises(BufferError, match=r"dl_device is \(2, 0\)"):
        numbers.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream is given"):
        numbers.__dlpack__(stream=5)


def test_a_tensor_is_an_array_like(engine: Engine) -> None:
    tensor = engine.infer("identity_fp32", sample(np.float32)).tensor("OUTPUT0")
    assert np.asarray(tensor).tolist() == sample(np.float32).tolist()
    assert np.asarray(tensor, dtype=np.float64).dtype == np.float64
    assert np.array(tensor, copy=True) is not tensor.numpy()
    assert repr(tensor) == "<Tensor FP32[2, 5]>"


WITHOUT_ML_DTYPES = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np
from runners import Engine
with Engine(sys.argv[1]) as engine:
    output = engine.infer("narrow", np.array([[1.5, -2.0, 0.0]], np.float32))["OUTPUT0"]
    print(output.dtype, output.tolist())
"""


def test_bf16_comes_as_float32_where_no_package_has_it(tmp_path: Path) -> None:
    models.write(tmp_path, "narrow", models.cast("FP32", "BF16"))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ML_DTYPES, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.stdout == "float32 [[1.5, -2.0, 0.0]]\n", done.stderr
