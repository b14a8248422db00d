"""Plans in an engine: what they answer, and what happens on the way there."""

from __future__ import annotations

import ctypes
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runners import Engine, EngineOptions
from runners.errors import EngineFailed, InvalidInput, KushiError
from tests.gates import Gate, gate_name

from .plans import ADD_SUB, ONE_GPU, plan, tensor, write

if TYPE_CHECKING:
    from pathlib import Path

LENIENT = EngineOptions(exit_on_error=False)
STRATEGY = "execution_context_allocation_strategy"
ON_PROFILE_CHANGE = f'parameters {{ key: "{STRATEGY}" value {{ string_value: "ON_PROFILE_CHANGE" }} }}'
GRAPHS = "optimization { cuda { graphs: true } }\n"


def opened(repository: Path) -> Engine:
    engine = Engine(repository)
    assert not engine.failures
    return engine


def rows(count: int, start: float = 0.0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return (np.arange(2 * count, dtype=np.float32) + start).reshape(count, 2)


def check_add_sub(engine: Engine, name: str, count: int) -> None:
    a, b = rows(count), rows(count, 100.0)
    answer = engine.infer(name, {"A": a, "B": b})
    np.testing.assert_array_equal(answer["SUM"], a + b)
    np.testing.assert_array_equal(answer["DIFFERENCE"], a - b)


def test_a_plan_is_served_without_a_configuration(repository: Path) -> None:
    write(repository, "m", ADD_SUB)
    with opened(repository) as engine:
        config = engine.get_model_config("m")
        assert (config["backend"], config["platform"]) == ("tensorrt", "tensorrt_plan")
        assert config["max_batch_size"] == 8
        assert config["instance_group"] == [{**config["instance_group"][0], "kind": "KIND_GPU", "gpus": [0, 1]}]
        for count in (1, 3, 8):
            check_add_sub(engine, "m", count)


@pytest.mark.parametrize(
    "text",
    [
        ONE_GPU,
        "instance_group { kind: KIND_GPU count: 3 gpus: [ 0, 1 ] }",
        f"{ONE_GPU}{GRAPHS}",
        f"{ONE_GPU}optimization {{ priority: PRIORITY_MAX cuda {{ busy_wait_events: true }} }}",
        f"{ONE_GPU}optimization {{ cuda {{ output_copy_stream: true }} }}",
        f"{ONE_GPU}{ON_PROFILE_CHANGE}",
        f"{ONE_GPU}optimization {{ eager_batching: true gather_kernel_buffer_threshold: 4 }}",
    ],
)
def test_many_requests_at_once_get_their_own_answers(repository: Path, text: str) -> None:
    write(repository, "m", ADD_SUB, text)
    with opened(repository) as engine, ThreadPoolExecutor(8) as pool:

        def ask(number: int) -> None:
            a, b = rows(1 + number % 4, float(number)), rows(1 + number % 4, -3.0 * number)
            answer = engine.infer("m", {"A": a, "B": b})
            np.testing.assert_array_equal(answer["SUM"], a + b)
            np.testing.assert_array_equal(answer["DIFFERENCE"], a - b)

        list(pool.map(ask, range(400)))


def test_the_golden_case_of_one_row(repository: Path) -> None:
    """Dimensions of any size, no maximum batch size, and a profile from 1 x 1 to 1 x 512"""
    ranges = [[[1, 1], [1, 64], [1, 512]]]
    made = plan([tensor("X", [1, -1], ranges=ranges)], [tensor("Y", [1, -1], formula="X * 2")])
    text = (
        'platform: "tensorrt_plan" input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } '
        'output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }'
    )
    write(repository, "m", made, text)
    with opened(repository) as engine:
        assert engine.get_model_config("m")["max_batch_size"] == 1
        for size in (1, 5, 512):
            x = np.arange(size, dtype=np.float32).reshape(1, size)
            np.testing.assert_array_equal(engine.infer("m", {"X": x})["Y"], x * 2)
        with pytest.raises(InvalidInput, match="to be between 1 and 512 but received 513"):
            engine.infer("m", {"X": np.zeros((1, 513), np.float32)})


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("BOOL", np.array([[True, False, True]])),
        ("INT8", np.array([[-128, 0, 127]], np.int8)),
        ("UINT8", np.array([[0, 1, 255]], np.uint8)),
        ("FP16", np.array([[-1.5, 0, 65504]], np.float16)),
        ("INT32", np.array([[-(2**31), 0, 2**31 - 1]], np.int32)),
        ("FP32", np.array([[-1.5, np.inf, 1e-40]], np.float32)),
        ("INT64", np.array([[-(2**63), 0, 2**63 - 1]], np.int64)),
    ],
)
def test_all_data_types_pass(repository: Path, datatype: str, values: np.ndarray[Any, Any]) -> None:
    write(repository, "m", plan([tensor("X", [1, 3], datatype)], [tensor("Y", [1, 3], datatype, formula="X")]), ONE_GPU)
    with opened(repository) as engine:
        np.testing.assert_array_equal(engine.infer("m", {"X": values})["Y"], values)


def test_bf16_passes_with_its_bits(repository: Path) -> None:
    import ml_dtypes  # noqa: PLC0415 - of this test

    write(repository, "m", plan([tensor("X", [1, 3], "BF16")], [tensor("Y", [1, 3], "BF16", formula="X")]), ONE_GPU)
    x = np.array([[1.5, -2.0, 3e38]], ml_dtypes.bfloat16)
    with opened(repository) as engine:
        answer = np.asarray(engine.infer("m", {"X": x})["Y"])
        np.testing.assert_array_equal(answer.astype(np.float32), x.astype(np.float32))


TWO_PROFILES = plan(
    [tensor("X", [-1, 2], ranges=[[[1, 2], [1, 2], [2, 2]], [[1, 2], [8, 2], [16, 2]]])],
    [tensor("Y", [-1, 2], formula="X + 1")],
    profiles=2,
)


def test_groups_have_profiles_of_their_own(repository: Path) -> None:
    write(repository, "first", TWO_PROFILES, ONE_GPU)
    write(repository, "both", TWO_PROFILES, 'instance_group { kind: KIND_GPU gpus: 0 profile: [ "0", "1" ] }')
    with opened(repository) as engine:
        assert engine.get_model_config("first")["max_batch_size"] == 2
        assert engine.get_model_config("both")["max_batch_size"] == 16
        for count in (1, 2, 16):
            np.testing.assert_array_equal(engine.infer("both", {"X": rows(count)})["Y"], rows(count) + 1)


def test_processes_of_their_own_have_the_profiles_of_their_groups(repository: Path) -> None:
    """Each group takes one width, and says that it is not the one where it gets the other"""
    widths = [[[1, width], [1, width], [1, width]] for width in (2, 3)]
    made = plan([tensor("X", [-1, -1], ranges=widths)], [tensor("Y", [-1, -1], formula="X + 1")], profiles=2)
    groups = " ".join(
        f'instance_group {{ name: "{name}" kind: KIND_GPU gpus: 0 profile: "{profile}" }}'
        for name, profile in (("a", 0), ("b", 1))
    )
    write(repository, "m", made, f'{groups} parameters {{ key: "kushi.isolate" value {{ string_value: "true" }} }}')

    def ask(width: int) -> tuple[int, str]:
        try:
            answer = engine.infer("m", {"X": np.ones((1, width), np.float32)})
        except KushiError as error:
            found = re.search(r"for ([ab]_0)\. Error", str(error))
            return width, f"refused by {found[1]}" if found else str(error)
        assert np.asarray(answer["Y"]).shape == (1, width)
        return width, "answered"

    with opened(repository) as engine, ThreadPoolExecutor(8) as pool:
        found = set(pool.map(ask, [2, 3] * 200))
    assert found == {(2, "answered"), (3, "refused by a_0"), (3, "answered"), (2, "refused by b_0")}


@pytest.mark.parametrize("graphs", ["", GRAPHS], ids=["plain", "graphs"])
@pytest.mark.parametrize(("profiles", "scratch"), [(("0", "1"), 3 << 20), (("0",), 1 << 20)])
def test_profiles_and_graphs_of_an_instance_compute_in_one_block_of_memory(
    repository: Path, profiles: tuple[str, ...], scratch: int, graphs: str
) -> None:
    driver = ctypes.CDLL("libcuda.so.1")
    driver.stand_in_allocated.restype = ctypes.c_size_t
    stated = " ".join(f'profile: "{profile}"' for profile in profiles)
    text = f"instance_group {{ kind: KIND_GPU gpus: 0 count: 2 {stated} }} {graphs}"
    write(repository, "m", {**TWO_PROFILES, "scratch": [1 << 20, 3 << 20]}, text)
    before = driver.stand_in_allocated()
    with opened(repository) as engine:
        taken = driver.stand_in_allocated() - before
        assert 2 * scratch <= taken < 2 * scratch + (1 << 19), "one block for each instance"
        for count in (1, 2, 16) if len(profiles) > 1 else (1, 2):
            np.testing.assert_array_equal(engine.infer("m", {"X": rows(count)})["Y"], rows(count) + 1)


def test_a_batch_that_the_profile_does_not_take_fails_alone(repository: Path) -> None:
    """Joined with one that is right, which is executed once more by itself"""
    ranges = [[[1, 4], [1, 8], [8, 16]]]
    made = plan([tensor("X", [-1, -1], ranges=ranges)], [tensor("Y", [-1, -1], formula="X * 2")])
    write(repository, "m", made, f"{ONE_GPU}max_batch_size: 8")
    with opened(repository) as engine:
        with pytest.raises(InvalidInput, match="dimension 1 to be between 4 and 16 but received 3"):
            engine.infer("m", {"X": np.zeros((1, 3), np.float32)})
        x = np.ones((2, 16), np.float32)
        np.testing.assert_array_equal(engine.infer("m", {"X": x})["Y"], x * 2)


def test_outputs_whose_size_follows_from_data(repository: Path) -> None:
    made = plan(
        [tensor("X", [8])], [tensor("Y", [2, -1], "INT64", formula="np.stack([np.nonzero(X)[0]] * 2)", grows=True)]
    )
    write(repository, "m", made, f'{ONE_GPU}{GRAPHS}input {{ name: "X" dims: [ 8 ] }}')
    with opened(repository) as engine:
        for places in ([], [3], [0, 7], list(range(8))):
            x = np.zeros(8, np.float32)
            x[places] = 1
            answer = engine.infer("m", {"X": x})["Y"]
            assert np.asarray(answer).tolist() == [places, places]


def test_shape_tensors_say_how_large_an_output_is(repository: Path) -> None:
    values = [[[1, 1], [2, 2], [4, 4]]]
    made = plan(
        [tensor("X", [1]), tensor("S", [2], "INT32", on_host=True, values=values)],
        [tensor("Y", [-1, -1], formula="np.broadcast_to(X, tuple(S))")],
    )
    write(repository, "m", made, ONE_GPU)
    with opened(repository) as engine:
        for shape in ([1, 1], [3, 2], [4, 4]):
            answer = engine.infer("m", {"X": np.full(1, 7, np.float32), "S": np.array(shape, np.int32)})["Y"]
            np.testing.assert_array_equal(answer, np.full(shape, 7))
        with pytest.raises(InvalidInput, match="the values of dimension 0 to be between 1 and 4 but received 5"):
            engine.infer("m", {"X": np.zeros(1, np.float32), "S": np.array([5, 1], np.int32)})


def test_graphs_take_smaller_batches_only_where_that_is_said(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bounded = "graph_spec { batch_size: 8 graph_lower_bound { batch_size: 2 } }"
    for name, spec in (("exact", "graph_spec { batch_size: 4 }"), ("bounded", bounded)):
        text = f"{ONE_GPU}optimization {{ cuda {{ graphs: true {spec} }} }}"
        write(repository, name, ADD_SUB, text)
    with opened(repository) as engine:
        for name in ("exact", "bounded"):
            for count in (1, 2, 4, 5, 8):
                check_add_sub(engine, name, count)
    assert "has no CUDA graph" not in caplog.text


def test_a_failure_of_the_run_is_that_of_its_batch(repository: Path) -> None:
    write(repository, "m", {**ADD_SUB, "refuses": "out of luck"}, ONE_GPU)
    with opened(repository) as engine, pytest.raises(EngineFailed, match=r"TensorRT execute failure: .*out of luck"):
        check_add_sub(engine, "m", 1)


def test_weights_are_there_once_and_what_is_unloaded_gives_its_memory_back(repository: Path) -> None:
    write(repository, "m", ADD_SUB, "instance_group { kind: KIND_GPU count: 4 gpus: 0 }")
    driver = ctypes.CDLL("libcuda.so.1")
    driver.stand_in_allocated.restype = ctypes.c_size_t
    before = driver.stand_in_allocated()
    with opened(repository) as engine:
        check_add_sub(engine, "m", 2)
        assert driver.stand_in_allocated() > before


def test_a_second_batch_is_on_its_way_while_the_first_computes(repository: Path) -> None:
    write(repository, "m", {**ADD_SUB, "gate": gate_name(repository, "m")}, f"{ONE_GPU}max_batch_size: 1")
    with Gate(repository, "m") as gate, opened(repository) as engine, ThreadPoolExecutor(4) as pool:

        def ask(number: int) -> list[list[float]]:
            answer = engine.infer("m", {"A": rows(1, float(number)), "B": rows(1)})
            found: list[list[float]] = np.asarray(answer["SUM"]).tolist()
            return found

        waiting = [pool.submit(ask, number) for number in range(4)]
        for _ in waiting:
            gate.until_reached()
            gate.let_through()
        found = [one.result(timeout=30) for one in waiting]
    assert found == [(rows(1, float(number)) + rows(1)).tolist() for number in range(4)]


def test_a_batch_that_fails_leaves_the_one_before_alone(repository: Path) -> None:
    """It fails while that one is unanswered, and the next one begins at once"""
    ranges = [[[1, 2], [1, 2], [4, 8]]]
    made = plan([tensor("X", [-1, -1], ranges=ranges)], [tensor("Y", [-1, -1], formula="X * 2")])
    write(repository, "m", {**made, "gate": gate_name(repository, "m")}, f"{ONE_GPU}max_batch_size: 1")
    with Gate(repository, "m") as gate, opened(repository) as engine, ThreadPoolExecutor(3) as pool:

        def ask(value: float, width: int) -> list[list[float]]:
            found: list[list[float]] = np.asarray(
                engine.infer("m", {"X": np.full((1, width), value, np.float32)})["Y"]
            ).tolist()
            return found

        first = pool.submit(ask, 1.0, 8)
        gate.until_reached()
        wrong = pool.submit(ask, 0.0, 9)
        with pytest.raises(InvalidInput, match="but received 9"):
            wrong.result(timeout=30)
        third = pool.submit(ask, 3.0, 8)
        gate.let_through()
        gate.until_reached()
        gate.let_through()
        assert first.result(timeout=30) == [[2.0] * 8]
        assert third.result(timeout=30) == [[6.0] * 8]


def test_outputs_grow_in_one_profile_and_not_in_another(repository: Path) -> None:
    made = plan(
        [tensor("X", [-1], ranges=[[[1], [4], [8]], [[1], [16], [32]]])],
        [tensor("Y", [-1], "INT64", formula="np.nonzero(X)[0]", grows=True), tensor("Z", [-1], formula="X")],
        profiles=2,
    )
    text = 'instance_group { kind: KIND_GPU gpus: 0 profile: [ "0", "1" ] } input { name: "X" dims: [ -1 ] }'
    write(repository, "m", made, text)
    with opened(repository) as engine:
        for size in (1, 8, 32, 5):
            answer = engine.infer("m", {"X": np.ones(size, np.float32)})
            assert np.asarray(answer["Y"]).tolist() == list(range(size))
            assert np.asarray(answer["Z"]).tolist() == [1.0] * size


def test_without_pinned_memory_the_answers_are_the_same(repository: Path) -> None:
    write(repository, "m", ADD_SUB, f"{ONE_GPU}optimization {{ input_pinned_memory {{ enable: false }} }}")
    with opened(repository) as engine:
        for count in (1, 8):
            check_add_sub(engine, "m", count)
