"""PyTorch models at work: equal to PyTorch and to ONNX Runtime, in batches, on several instances, after faults."""

from __future__ import annotations

import gc
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from runners import Engine, EngineOptions, ModelOptions
from runners.backends.torch.engine import TorchEngine
from runners.errors import EngineFailed, InvalidInput
from runners.threads import usable_cores
from tests.lifetimes import Made
from tests.torch.models import (
    BATCH,
    NETWORK_INPUTS,
    NETWORK_OUTPUTS,
    Network,
    export,
    model_config,
    network_arguments,
    parameter,
    put,
    save_script,
)
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

EXPLICIT: Final = EngineOptions(models=ModelOptions(control="explicit", load=("*",)))
BATCHING: Final = "dynamic_batching { }"


def instances(count: int) -> str:
    return f"instance_group {{ count: {count} }}"


def together(*calls: Callable[[], None]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def memory_mib() -> float:
    """The memory of this process that is of no file: the libraries may be those of other processes, too."""
    rollup = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    match = re.search(r"^Pss_Anon:\s+(\d+) kB", rollup, re.MULTILINE)
    assert match is not None
    return int(match[1]) / 1024


@pytest.fixture
def engines() -> Made[TorchEngine]:
    """Those that the test makes"""
    return Made(TorchEngine)


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Cycles stay where they are."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("threads", ["1", "2"])
def test_torchscript_exported_and_onnx_give_the_same_as_pytorch(repository: Path, threads: str) -> None:
    network = Network().eval()
    extra = f"{BATCHING} {parameter('INTRA_OP_THREAD_COUNT', threads)}"
    text = model_config("script", NETWORK_INPUTS, NETWORK_OUTPUTS, max_batch_size=8, extra=extra)
    put(repository, "script", network, text)
    put(repository, "exported", export(network, network_arguments(2)), text.replace('"script"', '"exported"'))
    folder = repository / "onnx" / "1"
    folder.mkdir(parents=True)
    torch.onnx.export(
        *(network, network_arguments(2), folder / "model.onnx"),
        input_names=["image", "scale"],
        output_names=["OUTPUT__0", "OUTPUT__1"],
        dynamic_shapes=[{0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO}],
        verbose=False,
    )
    with Engine(repository) as engine:
        assert not engine.failures
        for rows in (1, 3, 4):
            image, scale = network_arguments(rows)
            with torch.inference_mode():
                expected = network(image, scale)
            sent = image.numpy(), scale.numpy()
            answers = {model: engine.infer(model, *sent) for model in ("script", "exported", "onnx")}
            for name, tensor in zip(("OUTPUT__0", "OUTPUT__1"), expected, strict=True):
                for answer in answers.values():
                    np.testing.assert_allclose(answer[name], tensor.numpy(), rtol=0, atol=1e-5)
                for model in ("script", "exported"):
                    np.testing.assert_allclose(answers[model][name], answers["onnx"][name], rtol=0, atol=1e-5)


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def test_requests_that_wait_run_as_one_batch(repository: Path) -> None:
    delayed = "dynamic_batching { preferred_batch_size: 8 max_queue_delay_microseconds: 60000000 }"
    text = model_config("m", [("x", "FP32", [4])], [("OUT__0", "FP32", [4])], max_batch_size=8, extra=delayed)
    put(repository, "m", Weighted(), text)
    sent = [np.full((rows, 4), number, np.float32) for number, rows in enumerate((1, 3, 2, 2))]
    got: dict[int, NDArray[Any]] = {}
    with Engine(repository) as engine:

        def ask(number: int) -> None:
            got[number] = engine.infer("m", sent[number])["OUT__0"]

        together(*(lambda number=number: ask(number) for number in range(4)))
        (statistics,) = engine.statistics()["model_stats"]
    assert (statistics["execution_count"], statistics["inference_count"]) == (1, 8)
    for number, array in enumerate(sent):
        np.testing.assert_array_equal(got[number], array)


def test_shapes_may_vary_from_request_to_request(repository: Path) -> None:
    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean(dim=(1, 2), keepdim=False)

    text = model_config("m", [("x", "FP32", [-1, -1])], [("OUT__0", "FP32", [])], max_batch_size=8, extra=BATCHING)
    text = text.replace("dims: [  ]", "dims: [ 1 ] reshape { shape: [ ] }")
    put(repository, "m", Mean(), text)
    with Engine(repository) as engine:
        assert not engine.failures
        for shape in [(1, 2, 3), (3, 5, 1), (2, 7, 7), (8, 1, 2)]:
            x = np.random.default_rng(1).random(shape, np.float32)
            np.testing.assert_allclose(engine.infer("m", x)["OUT__0"], x.mean((1, 2))[:, None], rtol=1e-5)
        with pytest.raises(InvalidInput):
            engine.infer("m", np.zeros((2, 3), np.float32))


@pytest.mark.parametrize("kind", ["script", "exported"])
def test_a_model_that_writes_to_its_inputs_leaves_those_of_callers_alone(repository: Path, kind: str) -> None:
    class InPlace(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x.add_(1)
            return x * 2

    made = InPlace() if kind == "script" else export(InPlace(), (torch.zeros(2, 20_000),))
    put(
        repository,
        "m",
        made,
        model_config("m", [("x", "FP32", [20_000])], [("OUTPUT__0", "FP32", [20_000])], max_batch_size=8),
    )
    x = np.zeros((2, 20_000), np.float32)
    with Engine(repository) as engine:
        assert not engine.failures
        for _ in range(3):
            assert float(engine.infer("m", x)["OUTPUT__0"].max()) == 2
    assert not x.any()


class Counting(nn.Module):
    """Answers how often it was asked."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.count: Any
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))
        self.in_place = kind == "in place"

    def forward(self, x: Tensor) -> Tensor:
        if self.in_place:
            self.count.add_(1)
        else:
            self.count = self.count + 1
        return x * 0 + self.count


@pytest.mark.parametrize("kind", ["in place", "assigned", "exported"])
def test_instances_of_a_model_that_keeps_state_have_each_its_own(
    repository: Path, caplog: pytest.LogCaptureFixture, engines: Made[TorchEngine], kind: str
) -> None:
    module = Counting(kind)
    made = export(module, (torch.zeros(2, 1, dtype=torch.int64),)) if kind == "exported" else module
    tensors = [("x", "INT64", [1])], [("OUTPUT__0", "INT64", [1])]
    for name, extra in (("own", ""), ("shared", parameter("ENABLE_WEIGHT_SHARING", "true"))):
        text = model_config(name, *tensors, max_batch_size=1, extra=f"{extra} {instances(3)}")
        put(repository, name, made, text)
    with caplog.at_level("WARNING", "runners"), Engine(repository) as engine:
        assert not engine.failures
        for name in ("own", "shared"):
            assert (
                f"model '{name}' keeps a state in itself: what one request leaves there the next one f" in caplog.text
            )
        assert len(engines.alive()) == 4
        counts = [int(engine.infer("own", np.zeros((1, 1), np.int64))["OUTPUT__0"][0, 0]) for _ in range(9)]
        shared = [int(engine.infer("shared", np.zeros((1, 1), np.int64))["OUTPUT__0"][0, 0]) for _ in range(9)]
    # a model that keeps state is not run before its first request
    assert counts[0] == 1
    assert max(counts) < 10
    assert shared == list(range(1, 10))


class Heavy(nn.Module):
    def __init__(self, value: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((64, 1024, 256), float(value)))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight[0, 0, 0]


HEAVY_MIB: Final = 64
ONE: Final = [("x", "FP32", [1])], [("OUTPUT__0", "FP32", [1])]


def ask_from_all_sides(engine: Engine) -> None:
    def ask() -> None:
        assert ask_heavy(engine) == 1

    together(*[ask] * 8)


def ask_heavy(engine: Engine) -> float:
    return float(engine.infer("m", np.ones((1, 1), np.float32))["OUTPUT__0"][0, 0])


@pytest.mark.clock
@pytest.mark.parametrize("kind", ["script", "exported"])
@pytest.mark.usefixtures("no_collection")
def test_weights_are_in_memory_once_and_go_with_their_model(
    repository: Path, engines: Made[TorchEngine], kind: str
) -> None:
    def text(count: int, extra: str = "") -> str:
        return model_config("m", *ONE, max_batch_size=1, extra=instances(count) + extra)

    made = Heavy() if kind == "script" else export(Heavy(), (torch.zeros(2, 1),))
    folder = put(repository, "m", made, text(4))
    del made
    with Engine(repository, options=EXPLICIT) as engine:
        ask_heavy(engine)
        engine.unload_model("m")
        eventually(lambda: len(engines.alive()) == 0, "the engines of an unloaded model go")
        empty = memory_mib()
        engine.load_model("m")
        eventually(lambda: len(engines.alive()) == 1, "one engine serves all instances")
        ask_from_all_sides(engine)
        once = memory_mib()
        (folder / "config.pbtxt").write_text(text(4, parameter("ENABLE_WEIGHT_SHARING", "false")))
        engine.load_model("m")
        eventually(lambda: len(engines.alive()) == 4, "each instance has an engine, and the one before has gone")
        ask_from_all_sides(engine)
        each = memory_mib()
        engine.unload_model("m")
        eventually(lambda: len(engines.alive()) == 0, "the engines of an unloaded model go")
        after = memory_mib()
    assert 0.8 * HEAVY_MIB < once - empty < 1.5 * HEAVY_MIB
    assert 3.5 * HEAVY_MIB < each - empty < 4.5 * HEAVY_MIB
    assert after - empty < 0.5 * HEAVY_MIB


def test_a_reload_swaps_and_a_failed_one_keeps_what_serves(repository: Path, engines: Made[TorchEngine]) -> None:
    text = model_config("m", *ONE, max_batch_size=1)
    folder = put(repository, "m", Heavy(1), text)
    with Engine(repository, options=EXPLICIT) as engine:
        assert ask_heavy(engine) == 1
        save_script(Heavy(2), folder / "1" / "model.pt")
        engine.load_model("m")
        assert ask_heavy(engine) == 2
        (folder / "1" / "model.pt").write_bytes(b"broken")
        with pytest.raises(Exception, match="is no PyTorch archive"):
            engine.load_model("m")
        assert ask_heavy(engine) == 2
        eventually(lambda: len(engines.alive()) == 1, "what was replaced has gone")


class Faulty(nn.Module):
    """Fails in the way that the input says"""

    def forward(self, how: Tensor) -> Tensor:
        kind = int(how.max())
        if kind == 1:
            raise ValueError("one too many")
        if kind == 2:
            return how + torch.zeros([1000000000000000], dtype=torch.int64)[0]
        if kind == 3:
            return torch.cat([how, how])
        if kind == 4:
            return how.to(torch.float32)
        if kind == 5:
            return how.expand(1, 3)
        if kind == 6:
            return torch.ones([3], dtype=torch.int64)[how + 88]
        return how


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (1, r"PyTorch execute failure: [\s\S]*one too many"),
        (2, r"PyTorch execute failure: [\s\S]*can't allocate memory: you tried to allocate 8000000000000000 bytes"),
        (3, r"output 'OUTPUT__0' of model 'm' has shape \[2, 1\], expected \[1, 1\]"),
        (4, r"output 'OUTPUT__0' has data-type FP32, the model configuration says INT64"),
        (5, r"output 'OUTPUT__0' of model 'm' has shape \[1, 3\], expected \[1, 1\]"),
        (6, r"PyTorch execute failure: [\s\S]*index 94 is out of bounds"),
    ],
)
def test_what_goes_wrong_inside_fails_its_request_and_no_other(repository: Path, kind: int, text: str) -> None:
    tensors = [("how", "INT64", [1])], [("OUTPUT__0", "INT64", [1])]
    put(repository, "m", Faulty(), model_config("m", *tensors, max_batch_size=1))
    with Engine(repository) as engine:
        for _ in range(2):
            with pytest.raises(EngineFailed, match=text):
                engine.infer("m", np.array([[kind]]))
            assert engine.infer("m", np.array([[0]]))["OUTPUT__0"].tolist() == [[0]]


def test_a_shape_that_a_program_was_not_exported_for_is_an_error(repository: Path) -> None:
    text = model_config("m", [("x", "FP32", [-1])], [("OUTPUT__0", "FP32", [-1])], max_batch_size=8)
    sizes = {0: BATCH, 1: torch.export.Dim("n", max=100)}
    put(repository, "m", export(Weighted(), (torch.zeros(2, 4),), (sizes,)), text)
    with Engine(repository) as engine:
        assert not engine.failures
        assert engine.infer("m", np.zeros((1, 100), np.float32))["OUTPUT__0"].shape == (1, 100)
        with pytest.raises(EngineFailed, match=r"PyTorch execute failure: Guard failed: .*<= 100"):
            engine.infer("m", np.zeros((1, 101), np.float32))


def test_instances_keep_within_the_budget_of_threads(repository: Path, engines: Made[TorchEngine]) -> None:
    class Long(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.ones(256, 256)
            for _ in range(30):
                y = torch.mm(y, y).clamp(0, 1)
            return x + 0 * y.sum()

    put(repository, "short", Weighted(), model_config("short", *ONE, max_batch_size=1))
    put(repository, "long", Long(), model_config("long", *ONE, max_batch_size=1))
    asked = model_config("asked", *ONE, max_batch_size=1, extra=parameter("INTRA_OP_THREAD_COUNT", "3"))
    put(repository, "asked", Weighted(), asked)
    with Engine(repository) as engine:
        assert not engine.failures
        threads = sorted(one.threads for one in engines.alive())
    assert threads == sorted([1, usable_cores(), 3])


@pytest.mark.parametrize(
    "extra",
    [
        parameter("INFERENCE_MODE", "false"),
        parameter("DISABLE_OPTIMIZED_EXECUTION", "true"),
        parameter("ENABLE_JIT_EXECUTOR", "true") + parameter("ENABLE_JIT_PROFILING", "true"),
        parameter("ENABLE_TENSOR_FUSER", "true"),
        parameter("DISABLE_CUDNN", "true") + parameter("ENABLE_CACHE_CLEANING", "true"),
    ],
)
def test_the_answers_are_the_same_under_every_parameter(repository: Path, extra: str) -> None:
    network = Network().eval()
    put(repository, "m", network, model_config("m", NETWORK_INPUTS, NETWORK_OUTPUTS, max_batch_size=8, extra=extra))
    image, scale = network_arguments(2)
    with torch.inference_mode():
        scores, _ = network(image, scale)
    with Engine(repository) as engine:
        assert not engine.failures
        for _ in range(3):
            got = engine.infer("m", image.numpy(), scale.numpy())
            np.testing.assert_allclose(got["OUTPUT__0"], scores.numpy(), rtol=1e-5, atol=1e-6)
