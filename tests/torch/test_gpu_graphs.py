"""CUDA graphs on a GPU: which batches they execute, side by side, and what becomes of models that have none."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from runners import Engine, EngineOptions, ModelOptions
from runners.backends.torch.graphs import Graphs
from runners.errors import EngineFailed, KushiError
from tests.torch.models import (
    NETWORK_INPUTS,
    NETWORK_OUTPUTS,
    Network,
    export,
    model_config,
    network_arguments,
    parameter,
    put,
)
from tests.torch.test_gpu import GROUP, MIB, ONE
from tests.torch.test_running import Halves

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.gpu

HALVES: Final = [("x", "FP32", [16])], [("OUTPUT__0", "FP32", [4])]
GRAPHS: Final = parameter("kushi.cuda_graphs", "1,4")


class NonZero(nn.Module):
    """How long its answer is depends on the data, which the host has to know: no graph can repeat that."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.nonzero(x).sum()


class Greedy(nn.Module):
    """Takes 8 TiB where there are three rows, and next to nothing for other numbers."""

    def forward(self, x: Tensor) -> Tensor:
        much = 1 << 41 if x.shape[0] == 3 else 1
        return x + torch.ones([much], device=x.device).max()


class Drawing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


@pytest.mark.parametrize(
    ("extra", "repeated"),
    [
        ("", {}),
        (GRAPHS, {1: 1, 4: 1}),
        (GRAPHS + parameter("kushi.cuda_graphs_padding", "true"), {1: 1, 2: 1, 3: 1, 4: 1}),
        (parameter("kushi.compile", "reduce-overhead"), {1: 1, 2: 1, 4: 1, 8: 1}),
    ],
)
def test_batches_are_repeated_by_the_graph_of_their_size(
    repository: Path, monkeypatch: pytest.MonkeyPatch, extra: str, repeated: dict[int, int]
) -> None:
    network = Network().eval()
    text = model_config("m", NETWORK_INPUTS, NETWORK_OUTPUTS, max_batch_size=8, extra=f"{extra} {GROUP.format(1)}")
    put(repository, "m", export(network, network_arguments(2)), text)
    counts: Counter[int] = Counter()
    run = Graphs.run

    def counted(self: Graphs, size: int, values: Mapping[Any, Any]) -> Any:  # noqa: ANN401 - as it is
        counts[len(values[0])] += 1
        return run(self, size, values)

    with Engine(repository) as engine:
        assert not engine.failures
        # what is compiled goes through a graph at load, too
        monkeypatch.setattr(Graphs, "run", counted)
        for rows in (1, 2, 3, 4, 5, 8):
            image, scale = network_arguments(rows)
            with torch.inference_mode():
                expected = network(image, scale)
            got = engine.infer("m", image.numpy(), scale.numpy())
            for index, tensor in enumerate(expected):
                np.testing.assert_allclose(got[f"OUTPUT__{index}"], tensor.numpy(), rtol=0, atol=1e-3)
    assert counts == repeated


def test_instances_repeat_graphs_side_by_side(repository: Path) -> None:
    module = Halves(torch.float32).eval()
    text = model_config("m", *HALVES, max_batch_size=4, extra=f"{GRAPHS} {GROUP.format(4)}")
    put(repository, "m", export(module, (torch.zeros(2, 16),)), text)
    wrong: list[float] = []
    with Engine(repository) as engine:
        assert not engine.failures

        def ask(seed: int) -> None:
            random = np.random.default_rng(seed)
            for turn in range(100):
                x = random.standard_normal((1 + 3 * (turn % 2), 16), dtype=np.float32)
                with torch.inference_mode():
                    expected = module(torch.from_numpy(x)).numpy()
                wrong.extend(d for d in [np.abs(engine.infer("m", x)["OUTPUT__0"] - expected).max()] if d > 1e-2)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_model_that_no_graph_can_repeat_is_refused_and_others_go_on(repository: Path) -> None:
    put(repository, "m", NonZero(), model_config("m", *ONE, max_batch_size=4, extra=f"{GRAPHS} {GROUP.format(1)}"))
    put(repository, "fine", NonZero(), model_config("fine", *ONE, max_batch_size=4, extra=GROUP.format(1)))
    with Engine(repository, options=EngineOptions(exit_on_error=False)) as engine:
        assert list(engine.failures) == ["m"]
        assert "unable to load model 'm': a CUDA graph of 4 rows cannot be captured" in str(engine.failures["m"])
        for _ in range(3):
            assert engine.infer("fine", np.ones((1, 1), np.float32))["OUTPUT__0"][0, 0] == 1


def test_a_model_that_draws_random_numbers_runs_after_a_capture_that_failed(repository: Path) -> None:
    put(repository, "m", NonZero(), model_config("m", *ONE, max_batch_size=4, extra=f"{GRAPHS} {GROUP.format(1)}"))
    put(repository, "random", Drawing(), model_config("random", *ONE, max_batch_size=4, extra=GROUP.format(1)))
    options = EngineOptions(models=ModelOptions(control="explicit"))
    with Engine(repository, options=options) as engine:
        with pytest.raises(KushiError, match="cannot be captured"):
            engine.load_model("m")
        engine.load_model("random")
        drawn = {float(engine.infer("random", np.ones((1, 1), np.float32))["OUTPUT__0"][0, 0]) for _ in range(3)}
    assert len(drawn) == 3
    assert all(1 <= one < 2 for one in drawn)


def test_want_of_memory_beside_graphs_fails_one_request(repository: Path) -> None:
    text = model_config("m", *ONE, max_batch_size=4, extra=f"{GRAPHS} {GROUP.format(1)}")
    put(repository, "m", Greedy(), text)
    with Engine(repository) as engine:
        assert not engine.failures
        for _ in range(2):
            with pytest.raises(EngineFailed, match=r"PyTorch execute failure: [\s\S]*CUDA out of memory"):
                engine.infer("m", np.ones((3, 1), np.float32))
            assert engine.infer("m", np.ones((1, 1), np.float32))["OUTPUT__0"][0, 0] == 2


def test_a_graph_for_which_memory_is_short_fails_its_load_and_takes_nothing(repository: Path) -> None:
    before = torch.cuda.memory_allocated(0)
    stated = parameter("kushi.cuda_graphs", "3")
    text = model_config("m", *ONE, max_batch_size=4, extra=f"{stated} {GROUP.format(1)}")
    put(repository, "m", Greedy(), text)
    with Engine(repository, options=EngineOptions(exit_on_error=False)) as engine:
        text = str(engine.failures["m"])
        assert "a CUDA graph of 3 rows cannot be captured" in text
        assert "CUDA out of memory" in text
        gc.collect()
        assert torch.cuda.memory_allocated(0) - before < 64 * MIB
