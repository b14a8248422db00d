"""How PyTorch models are loaded: names, and configurations completed and refused."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from runners import Engine
from runners.errors import ConfigInvalid
from tests.torch.models import BATCH, VECTOR, TwoIntoTwo, export, fp32, loaded, model_config, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


Tensors = list[tuple[str, str, list[int]]]


class OfDictionary(nn.Module):
    def forward(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sum": tensors["left"] + tensors["right"], "left": tensors["left"] * 1}


class Defaulted(nn.Module):
    def forward(self, x: Tensor, bias: Tensor | None = None, factor: int = 2) -> Tensor:
        x = x * factor
        return x if bias is None else x + bias


class Listed(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        return [x, x + 1, x + 2]


class Words(nn.Module):
    def forward(self, words: list[str], pairs: list[list[str]]) -> tuple[list[str], list[list[str]], Tensor]:
        return [word + "!" for word in words], pairs, torch.tensor([len(word) for word in words], dtype=torch.int64)


class NoTensor(nn.Module):
    def forward(self, x: Tensor, steps: int) -> Tensor:
        return x * steps


class GivesNumber(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        return x, 3


def vectors(count: int, rows: int = 2) -> list[np.ndarray[Any, Any]]:
    return [np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32) for seed in range(count)]


# the place in the model of each name
NAMED = [
    ({"x": 0, "y": 1}, {"OUTPUT__0": 0, "OUTPUT__1": 1}),
    ({"y": 1, "x": 0}, {"OUTPUT__1": 1, "OUTPUT__0": 0}),
    ({"INPUT__1": 1, "INPUT__0": 0}, {"a": 0, "b": 1}),
    ({"first": 0, "second": 1}, {"only__1": 1}),
]


@pytest.mark.parametrize(("inputs", "outputs"), NAMED)
@pytest.mark.parametrize("kind", ["script", "exported"])
def test_tensors_are_named_as_in_triton(
    repository: Path, kind: str, inputs: dict[str, int], outputs: dict[str, int]
) -> None:
    module = TwoIntoTwo()
    made = module if kind == "script" else export(module, (torch.zeros(2, 4), torch.zeros(2, 4)))
    put(repository, "m", made, model_config("m", fp32(*inputs), fp32(*outputs), max_batch_size=8))
    sent = vectors(2)
    with Engine(repository) as engine:
        assert not engine.failures
        got = engine.infer("m", dict(zip(inputs, sent, strict=True)))
    in_order = [sent[list(inputs.values()).index(place)] for place in range(2)]
    expected = module(*map(torch.from_numpy, in_order))
    assert list(got) == list(outputs)
    for name, place in outputs.items():
        np.testing.assert_array_equal(got[name], expected[place].numpy())


def test_torchscript_may_take_and_give_a_dictionary(repository: Path) -> None:
    put(
        repository, "m", OfDictionary(), model_config("m", fp32("right", "left"), fp32("left", "sum"), max_batch_size=8)
    )
    right, left = vectors(2)
    with Engine(repository) as engine:
        got = engine.infer("m", {"right": right, "left": left})
    np.testing.assert_array_equal(got["sum"], left + right)
    np.testing.assert_array_equal(got["left"], left)


def test_an_argument_with_a_default_may_be_missing_or_optional(repository: Path) -> None:
    optional = {"bias": "optional: true"}
    put(repository, "without", Defaulted(), model_config("without", fp32("x"), fp32("OUT__0")))
    put(repository, "with", Defaulted(), model_config("with", fp32("x", "bias"), fp32("OUT__0"), fields=optional))
    x, bias = (array[0] for array in vectors(2))
    with Engine(repository) as engine:
        assert not engine.failures
        np.testing.assert_array_equal(engine.infer("without", x)["OUT__0"], 2 * x)
        np.testing.assert_array_equal(engine.infer("with", {"x": x})["OUT__0"], 2 * x)
        np.testing.assert_array_equal(engine.infer("with", {"x": x, "bias": bias})["OUT__0"], 2 * x + bias)


def test_a_list_of_tensors_is_taken_by_index(repository: Path) -> None:
    put(repository, "m", Listed(), model_config("m", fp32("x"), fp32("OUT__2", "OUT__0"), max_batch_size=8))
    (x,) = vectors(1)
    with Engine(repository) as engine:
        np.testing.assert_array_equal(engine.infer("m", x)["OUT__2"], x + 2)


def test_strings_are_lists_of_str(repository: Path) -> None:
    inputs: Tensors = [("words", "BYTES", [-1]), ("pairs", "BYTES", [-1, 2])]
    outputs: Tensors = [("OUT__0", "BYTES", [-1]), ("OUT__1", "BYTES", [-1, 2]), ("OUT__2", "INT64", [-1])]
    put(repository, "m", Words(), model_config("m", inputs, outputs))
    words = np.array(["kůň", "", "long " * 1000], object)
    pairs = np.array([["a", "b"], ["c", "d"]], object)
    with Engine(repository) as engine:
        assert not engine.failures
        got = engine.infer("m", words, pairs)
        assert [word.decode() for word in got["OUT__0"]] == [f"{word}!" for word in words]
        assert got["OUT__1"].tolist() == [[b"a", b"b"], [b"c", b"d"]]
        # lengths in bytes, which strings of TorchScript consist of
        assert got["OUT__2"].tolist() == [5, 0, 5000]
        empty = engine.infer("m", np.array([], object), pairs, outputs=["OUT__0", "OUT__2"])
        assert (empty["OUT__0"].shape, empty["OUT__2"].shape) == ((0,), (0,))


class Nested(nn.Module):
    def forward(self, x: Tensor, more: dict[str, Tensor], *, Mask: Tensor) -> dict[str, Any]:  # noqa: N803
        return {"scores": x + more["k"], "rest": (x * Mask, [more["k"] * 3])}


def test_an_exported_program_completes_its_configuration(repository: Path) -> None:
    put(repository, "pair", export(TwoIntoTwo(), (torch.zeros(2, 4), torch.zeros(2, 4))))
    spec = loaded(repository).specification
    assert (spec.max_batch_size, spec.batching is not None, spec.platform) == (4, True, "pytorch_libtorch")
    assert [(t.name, t.datatype, t.dims) for t in spec.inputs] == [("x", "FP32", (4,)), ("y", "FP32", (4,))]
    assert [(t.name, t.datatype, t.dims) for t in spec.outputs] == [
        ("OUTPUT__0", "FP32", (4,)),
        ("OUTPUT__1", "FP32", (4,)),
    ]


NESTED = {"x": {0: BATCH}, "more": {"k": {0: BATCH}}, "Mask": {0: BATCH}}


def nested() -> torch.export.ExportedProgram:
    # one tensor given twice would be one input
    return export(Nested(), (torch.zeros(2, 4), {"k": torch.zeros(2, 4)}), NESTED, Mask=torch.zeros(2, 4))


def test_tensors_of_an_exported_program_go_by_their_places(repository: Path) -> None:
    inputs = fp32("KWARGS[Mask]", "ARGS[1][k]", "ARGS[0]")
    outputs = fp32("RESULT[rest][1][0]", "RESULT[scores]", "RESULT[rest][0]")
    put(repository, "m", nested(), model_config("m", inputs, outputs, max_batch_size=8))
    mask, k, x = vectors(3)
    with Engine(repository) as engine:
        assert not engine.failures
        got = engine.infer("m", {"KWARGS[Mask]": mask, "ARGS[1][k]": k, "ARGS[0]": x})
    np.testing.assert_array_equal(got["RESULT[rest][1][0]"], k * 3)
    np.testing.assert_array_equal(got["RESULT[scores]"], x + k)
    np.testing.assert_array_equal(got["RESULT[rest][0]"], x * mask)


def test_results_of_a_flat_dictionary_complete_to_its_keys(repository: Path) -> None:
    class Flat(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"scores": x + 1, "boxes": x.sum()}

    program = export(Flat(), (torch.zeros(2, 4),), ({},))
    put(repository, "m", program)
    spec = loaded(repository).specification
    assert [(t.name, t.dims, t.reshape) for t in spec.outputs] == [("scores", (2, 4), None), ("boxes", (1,), ())]


def test_an_exported_program_may_have_constants_among_its_arguments(repository: Path) -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, factor: int, y: Tensor) -> Tensor:
            return x * factor + y

    program = export(Scaled(), (torch.zeros(2, 4), 3, torch.zeros(2, 4)), ({0: BATCH}, None, {0: BATCH}))
    put(repository, "m", program, model_config("m", fp32("x", "y"), fp32("OUTPUT__0"), max_batch_size=8))
    x, y = vectors(2)
    with Engine(repository) as engine:
        assert not engine.failures
        np.testing.assert_allclose(engine.infer("m", x, y)["OUTPUT__0"], x * 3 + y, rtol=1e-6)


WRONG: list[tuple[Callable[[], Any], str, str]] = [
    (
        TwoIntoTwo,
        "",
        "The file does not say data types and shapes, only forward(x: Tensor, y: Tensor) -> Tuple[Tensor, Tensor]",
    ),
    (
        TwoIntoTwo,
        model_config("m", fp32("x"), fp32("o")),
        "unable to load model 'm', configuration expects 1 inputs, model provides 2: forward(x: Tensor, y: Tensor)",
    ),
    (
        TwoIntoTwo,
        model_config("m", fp32("x", "y"), fp32("OUT__2")),
        "The output OUT__2 in the model configuration refers to an output index which doesn't exist. This model has 2",
    ),
    (
        TwoIntoTwo,
        model_config("m", fp32("x", "y"), [("OUT__0", "FP64", VECTOR)]),
        "configuration expects datatype TYPE_FP64 for output 'OUT__0', model provides TYPE_FP32",
    ),
    (NoTensor, model_config("m", fp32("x"), fp32("o")), "argument 'steps' is int, expected Tensor, List[str], or a"),
    (GivesNumber, model_config("m", fp32("x"), fp32("o")), "result 1 is int, expected Tensor, List[str], a tuple of"),
    (
        OfDictionary,
        model_config("m", fp32("left", "right"), fp32("sun")),
        "the model has no output 'sun', it has 'sum', 'left'",
    ),
    (
        Listed,
        model_config("m", fp32("x"), fp32("OUT__3")),
        "refers to an output index which doesn't exist. This model has 3 outputs",
    ),
    (
        Words,
        model_config("m", [("words", "BYTES", [-1]), ("pairs", "BYTES", [-1])], [("OUT__0", "BYTES", [-1])]),
        "input 'pairs' has 1 dimensions with that of the batch, in the model it is List[List[str]]",
    ),
    (
        TwoIntoTwo,
        model_config("m", [("x", "FP32", VECTOR), ("y", "BYTES", [-1])], fp32("o")),
        "input 'y' is of TYPE_STRING, in the model it is Tensor",
    ),
    (
        lambda: export(TwoIntoTwo(), (torch.zeros(2, 4), torch.zeros(2, 4))),
        model_config("m", fp32("x"), fp32("OUTPUT__0")),
        "configuration expects 1 inputs, model provides 2: forward(x, y) -> OUTPUT__0, OUTPUT__1",
    ),
    (
        lambda: export(TwoIntoTwo(), (torch.zeros(2, 4), torch.zeros(2, 4)), ({}, {})),
        model_config("m", fp32("x", "y"), fp32("OUTPUT__0"), max_batch_size=8),
        "and the first dimension must be -1; but shape expected by the model is [2,4]",
    ),
    (
        lambda: export(TwoIntoTwo(), (torch.zeros(2, 4), torch.zeros(2, 4))),
        model_config("m", [("x", "FP32", [4]), ("y", "FP32", [5])], fp32("OUTPUT__0"), max_batch_size=8),
        "model 'm', tensor 'y': the model expects 2 dimensions (shape [-1,4]) but the model configuration specifies 2",
    ),
]


@pytest.mark.parametrize(("make", "text", "message"), WRONG)
def test_a_configuration_that_does_not_fit_is_refused_with_its_file_named(
    repository: Path, make: Callable[[], Any], text: str, message: str
) -> None:
    put(repository, "m", make(), text)
    with pytest.raises(ConfigInvalid) as raised:
        loaded(repository)
    assert message in str(raised.value)


def test_a_model_saved_in_training_mode_is_warned_about(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Training(nn.Dropout):
        def eval(self) -> Training:
            return self

    put(repository, "m", Training(), model_config("m", fp32("input"), fp32("o")))
    with caplog.at_level(logging.WARNING):
        loaded(repository)
    assert "was saved in training mode: call eval() before it is saved" in caplog.text
