import pytest

from runners.backends.torch.graph_plan import GraphPlan, check_places, plan_graphs, rows_to_compile
from runners.errors import ConfigInvalid, Unsupported
from runners.repository.messages import ModelConfig
from runners.repository.sizes import stated_sizes
from tests.unit.text import config

IMAGE = 'input { name: "image" data_type: TYPE_FP16 dims: [ 3, 8 ] }'


def model(value: str = "1,4", batch: int = 8, inputs: str = IMAGE) -> ModelConfig:
    stated = f'parameters {{ key: "kushi.cuda_graphs" value {{ string_value: "{value}" }} }}'
    return config(f'name: "m" max_batch_size: {batch} {inputs} {stated}')


def planned(model: ModelConfig, *, pads: bool = False, stateful: bool = False) -> GraphPlan:
    return plan_graphs(
        model, "kushi.cuda_graphs", stated_sizes(model, "kushi.cuda_graphs"), pads=pads, stateful=stateful
    )


EXACT = GraphPlan((1, 2, 8), ((3, 8), (1,)), ("FP32", "FP32"), pads=False)
PADDED = GraphPlan((1, 2, 8), ((3, 8), (1,)), ("FP32", "FP32"), pads=True)


@pytest.mark.parametrize(("rows", "exact", "padded"), [(1, 1, 1), (2, 2, 2), (3, None, 8), (8, 8, 8), (9, None, None)])
def test_a_batch_takes_the_graph_of_its_size_and_where_asked_the_next_larger_one(
    rows: int, exact: int | None, padded: int | None
) -> None:
    shapes = [(rows, 3, 8), (rows, 1)]
    assert (EXACT.size_for(shapes), PADDED.size_for(shapes)) == (exact, padded)


@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 3, 9), (2, 1)],
        [(2, 3, 8), (1, 1)],
        [(2, 3, 8), None],
        [None, None],
        [(), ()],
        [(0, 3, 8), (0, 1)],
    ],
)
def test_other_shapes_and_inputs_that_are_left_out_take_no_graph(shapes: list[tuple[int, ...] | None]) -> None:
    assert EXACT.size_for(shapes) is None
    assert PADDED.size_for(shapes) is None


def test_a_plan_has_the_shape_of_a_row_also_where_the_model_sees_another_one() -> None:
    reshaped = 'input { name: "x" data_type: TYPE_INT64 dims: [ 6 ] reshape { shape: [ 2, 3 ] } }'
    assert planned(model(inputs=IMAGE + reshaped), pads=True) == GraphPlan(
        (1, 4), ((3, 8), (2, 3)), ("FP16", "INT64"), pads=True
    )


@pytest.mark.parametrize(("batch", "sizes"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))])
def test_where_no_sizes_are_stated_they_are_powers_of_two_up_to_the_largest_batch(
    batch: int, sizes: tuple[int, ...]
) -> None:
    made = plan_graphs(model(batch=batch), "kushi.compile", (), pads=False, stateful=False)
    assert made.sizes == sizes


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        (model(batch=0), "parameter 'kushi.cuda_graphs' of model 'm': a CUDA graph has one number of rows"),
        (model(inputs='input { name: "x" data_type: TYPE_STRING dims: [ 1 ] }'), "input 'x' has strings"),
        (model(inputs='input { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] }'), r"input 'x' has dims \[3, -1\]"),
    ],
)
def test_a_model_that_no_graph_can_execute_is_refused_with_the_reason(stated: ModelConfig, text: str) -> None:
    with pytest.raises(Unsupported, match=text):
        planned(stated)


def test_a_model_that_changes_itself_is_refused() -> None:
    with pytest.raises(Unsupported, match="the model changes itself"):
        planned(model(), stateful=True)


def test_a_size_above_the_largest_batch_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="expected sizes up to max_batch_size, 8, got 16"):
        planned(model("1,16"))


def test_instances_on_the_cpu_are_refused() -> None:
    check_places(model(), "kushi.compile", [0, 1])
    with pytest.raises(
        ConfigInvalid, match=r"parameter 'kushi.compile' of model 'm' asks for CUDA graphs, and an inst"
    ):
        check_places(model(), "kushi.compile", [0, None])


@pytest.mark.parametrize(("largest", "rows"), [(0, (None,)), (1, (1,)), (2, (1, 2)), (16, (1, 2, 16))])
def test_a_model_is_compiled_for_one_row_for_two_and_for_most(largest: int, rows: tuple[int | None, ...]) -> None:
    assert rows_to_compile(largest) == rows
