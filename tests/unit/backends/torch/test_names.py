import logging

import pytest

from runners.backends.torch.names import Leaf, Signature, bind_inputs, bind_outputs
from runners.errors import ConfigInvalid
from runners.repository.messages import ModelConfig
from tests.unit.text import config

TWO = Signature("forward(image: Tensor, mask: Tensor)", arguments=(Leaf(("image",)), Leaf(("mask",))))
GIVES_TWO = Signature("forward() -> Tuple[Tensor, Tensor]", arguments=(), results=(Leaf(()), Leaf(())))


def inputs(*names: str, fields: str = "") -> ModelConfig:
    return config('name: "m"' + "".join(f'input {{ name: "{name}" {fields} }}' for name in names))


def outputs(*names: str) -> ModelConfig:
    return config('name: "m"' + "".join(f'output {{ name: "{name}" }}' for name in names))


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (("mask", "image"), (1, 0)),
        (("INPUT__1", "INPUT__0"), (1, 0)),
        (("a__0", "another_name__1"), (0, 1)),
    ],
)
def test_an_input_is_the_argument_of_its_name_or_index(names: tuple[str, ...], places: tuple[int, ...]) -> None:
    assert bind_inputs(inputs(*names), TWO) == places


@pytest.mark.parametrize("names", [("x", "y"), ("image", "y"), ("x__0", "y"), ("x__0__1", "y__1"), ("x__", "y__")])
def test_other_names_are_taken_in_the_order_of_the_configuration(
    names: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert bind_inputs(inputs(*names), TWO) == (0, 1)
    assert "is neither a name that the model has nor of the form NAME__INDEX" in caplog.text


def test_a_single_input_may_have_any_name_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    one = Signature("forward(x: Tensor)", arguments=(Leaf(("x",)),))
    assert bind_inputs(inputs("anything"), one) == (0,)
    assert not caplog.records


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), "must contain at least one input, none were specified. .* only forward\\(image: Tensor, mask: Tensor\\)"),
        (("image",), "configuration expects 1 inputs, model provides 2: forward"),
        (("a__0", "b__1", "c__2"), "configuration expects 3 inputs, model provides 2"),
        (("a__0", "b__2"), "The input b__2 in the model configuration refers to an input index which doesn't exist"),
        (("a__1", "b__1"), "input 'a__1' of model 'm' is not the only one with index 1"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(names: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigInvalid, match=text):
        bind_inputs(inputs(*names), TWO)


DEFAULTED = Signature(
    "forward(x: Tensor, bias: Optional[Tensor], steps: int)",
    arguments=(Leaf(("x",)), Leaf(("bias",), required=False), Leaf(("steps",), required=False, fixed=True)),
)


def test_an_argument_with_a_default_may_be_left_to_it() -> None:
    assert bind_inputs(inputs("x"), DEFAULTED) == (0,)
    assert bind_inputs(inputs("bias", "x"), DEFAULTED) == (1, 0)


@pytest.mark.parametrize(
    ("names", "fields", "text"),
    [
        (("bias",), "", "no input of the configuration is its argument 0, 'x'"),
        (("x", "steps"), "", "input 'steps' of model 'm' is no tensor in the model"),
        (("x",), "optional: true", "input 'x' is optional in the configuration, and the model has no default for it"),
        (("a__0", "b__1", "c__2", "d__3"), "", "configuration expects 4 inputs, model provides 1 to 3"),
    ],
)
def test_an_argument_without_a_default_is_needed(names: tuple[str, ...], fields: str, text: str) -> None:
    with pytest.raises(ConfigInvalid, match=text):
        bind_inputs(inputs(*names, fields=fields), DEFAULTED)


def test_a_dictionary_takes_inputs_by_their_names() -> None:
    keyed = Signature("forward(d: Dict[str, Tensor])", arguments=(), takes_dictionary=True)
    assert bind_inputs(inputs("b", "a__0"), keyed) == ("b", "a__0")


@pytest.mark.parametrize(
    ("names", "places"), [(("OUT__1",), (1,)), (("second__1", "first__0"), (1, 0)), (("y",), (0,))]
)
def test_outputs_may_be_some_of_the_results(names: tuple[str, ...], places: tuple[int, ...]) -> None:
    assert bind_outputs(outputs(*names), GIVES_TWO) == places


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), "must contain at least one output, none were specified"),
        (("OUT__2",), "The output OUT__2 .* refers to an output index which doesn't exist. This model has 2 outputs"),
        (("a", "b", "c"), "The output c .* This model has 2 outputs"),
        (("OUT__999999999",), "The output OUT__999999999 .* refers to an output index which doesn't exist"),
    ],
)
def test_outputs_that_the_model_has_not_are_refused(names: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigInvalid, match=text):
        bind_outputs(outputs(*names), GIVES_TWO)


@pytest.mark.parametrize("name", ["OUT__\u0661", "OUT__" + "1" * 5000])
def test_what_is_no_index_is_a_name(name: str) -> None:
    assert bind_outputs(outputs(name), GIVES_TWO) == (0,)


def test_outputs_of_a_dictionary_go_by_their_names() -> None:
    keyed = Signature("forward() -> Dict[str, Tensor]", arguments=(), gives_dictionary=True)
    assert bind_outputs(outputs("scores", "boxes"), keyed) == ("scores", "boxes")


def test_results_of_unknown_number_are_taken_by_index() -> None:
    listed = Signature("forward() -> List[Tensor]", arguments=())
    assert bind_outputs(outputs("OUT__7"), listed) == (7,)


def test_a_tensor_of_an_exported_program_goes_by_several_names() -> None:
    leaves = (Leaf(("scores", "RESULT[scores]")), Leaf(("boxes", "RESULT[boxes]")))
    program = Signature("forward()", arguments=(), results=leaves)
    assert bind_outputs(outputs("RESULT[boxes]", "scores"), program) == (1, 0)
    assert bind_outputs(outputs("OUTPUT__1"), program) == (1,)
