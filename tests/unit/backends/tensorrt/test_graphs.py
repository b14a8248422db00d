"""For which shapes CUDA graphs are recorded, and which one a batch runs with."""

from __future__ import annotations

import pytest

from runners.backends.tensorrt.graphs import GraphShapes, find, graph_shapes
from runners.errors import ConfigInvalid
from tests.unit.text import config as parse

from .plans import given, made, plan

PLAN = plan(given("X", (-1, 8), ((1, 8), (4, 8), (16, 8))), made("Y", (-1, 8)))
OPEN = plan(given("X", (-1, -1), ((1, 1), (4, 8), (16, 64))))


OF_EIGHT = 'input { key: "X" value { dim: [ 8 ] } }'
OF_NINE = OF_EIGHT.replace("8", "9")


def graphs(text: str) -> list[tuple[int, int]]:
    return [
        (graph.least["X"][0], graph.most["X"][0]) for graph in graph_shapes(parse(f"max_batch_size: 16 {text}"), PLAN)
    ]


def spec(text: str) -> str:
    return f"optimization {{ cuda {{ graphs: true graph_spec {{ {text} }} }} }}"


def test_without_a_specification_there_are_those_of_triton() -> None:
    assert graphs("") == [(size, size) for size in (1, 2, 3, 4, 6, 8, 12, 16)]
    preferred = "dynamic_batching { preferred_batch_size: [ 4, 8 ] }"
    assert graphs(preferred) == [(1, 1), (4, 4), (8, 8), (16, 16)]


def test_a_model_without_batches_has_one() -> None:
    fixed = plan(given("X", (2, 8)))
    assert [graph.most for graph in graph_shapes(parse(""), fixed)] == [{"X": (2, 8)}]


def test_a_specification_says_sizes_and_their_lower_bounds() -> None:
    assert graphs(spec("batch_size: 4")) == [(4, 4)]
    assert graphs(spec("batch_size: 4 graph_lower_bound { batch_size: 2 }")) == [(2, 4)]


def test_dimensions_that_the_plan_leaves_open_have_to_be_stated() -> None:
    with pytest.raises(ConfigInvalid, match="leaves open which dimensions input 'X' has"):
        graph_shapes(parse(f"max_batch_size: 16 {spec('batch_size: 4')}"), OPEN)
    stated = spec('batch_size: 4 input { key: "X" value { dim: [ 32 ] } }')
    assert graph_shapes(parse(f"max_batch_size: 16 {stated}"), OPEN)[0].most == {"X": (4, 32)}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("batch_size: 17", "to be >= 1 and <= 16"),
        ("batch_size: 0", "to be >= 1 and <= 16"),
        ("batch_size: 2 graph_lower_bound { batch_size: 3 }", "lower bound spec expects 'batch_size' to be <="),
        (
            'batch_size: 2 input { key: "X" value { dim: [ 8 ] } } graph_lower_bound { batch_size: 1 }',
            "expects shape for input 'X'",
        ),
        (
            f"batch_size: 2 {OF_EIGHT} graph_lower_bound {{ batch_size: 1 {OF_NINE} }}",
            "to have dimension <= 8",
        ),
        ('batch_size: 2 input { key: "Z" value { dim: [ 8 ] } }', "names the input 'Z', the model has X"),
    ],
)
def test_what_cannot_be_is_an_error_of_the_load(text: str, error: str) -> None:
    with pytest.raises(ConfigInvalid, match=error):
        graphs(spec(text))


def test_a_model_without_batches_takes_no_batch_size() -> None:
    with pytest.raises(ConfigInvalid, match="to be 0 if 'max_batch_size' is 0"):
        graph_shapes(parse(spec("batch_size: 1")), PLAN)


def test_a_batch_runs_with_the_graph_of_its_shapes_or_the_smallest_that_takes_it() -> None:
    small = GraphShapes({"X": (4, 8)}, {"X": (2, 8)})
    large = GraphShapes({"X": (8, 8)}, {"X": (2, 8)})
    assert find([large, small], {"X": (4, 8)}) == small
    assert find([large, small], {"X": (3, 8)}) == small
    assert find([small, large], {"X": (8, 8)}) == large
    assert find([small, large], {"X": (5, 8)}) == large
    assert find([small, large], {"X": (1, 8)}) is None
    assert find([small, large], {"X": (4, 9)}) is None
