"""Ensembles in the control plane: they come and go with the models that they are made of"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runners import Engine, EngineOptions, KushiError, ModelOptions, ModelUnavailable
from runners.backends import ensemble as backend
from runners.backends.pipeline import Loaded
from runners.control.state import State
from tests import models
from tests.unit.controlled import EXPLICIT, plus, rows
from tests.waiting import eventually

LENIENT = EngineOptions(exit_on_error=False)
STEP = """{{ model_name: "{model}" model_version: {version}
  input_map {{ key: "INPUT0" value: "{taken}" }} output_map {{ key: "OUTPUT0" value: "{made}" }} }}"""


def step(model: str, taken: str, made: str, version: int = -1) -> str:
    return STEP.format(model=model, taken=taken, made=made, version=version)


def ensemble(repository: Path, name: str, *steps: str, dims: str = "1", datatype: str = "TYPE_INT32") -> None:
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(
        f"""platform: "ensemble" max_batch_size: 4
input {{ name: "A" data_type: {datatype} dims: [ {dims} ] }}
output {{ name: "C" data_type: TYPE_INT32 dims: [ 1 ] }}
ensemble_scheduling {{ {" ".join(f"step {one}" for one in steps)} }}
"""
    )


def two(repository: Path) -> None:
    """An ensemble `e` that adds 1 in `a`, and 1 in `b`"""
    plus(repository, "a")
    plus(repository, "b")
    ensemble(repository, "e", step("a", "A", "B"), step("b", "B", "C"))


def states(engine: Engine) -> dict[str, str]:
    return {name: state for name, _, state, _ in rows(engine)}


def ask(engine: Engine, name: str = "e") -> int:
    return int(np.asarray(engine.infer(name, np.zeros((1, 1), np.int32))["C"])[0, 0])


def test_an_ensemble_is_served_with_its_models(tmp_path: Path) -> None:
    two(tmp_path)
    with Engine(tmp_path) as engine:
        assert states(engine) == {"a": "READY", "b": "READY", "e": "READY"}
        assert ask(engine) == 2
        config = engine.get_model_config("e")
        assert (config["platform"], config["backend"], config["instance_group"]) == ("ensemble", "", [])
        assert config["model_transaction_policy"] == {"decoupled": False}
        assert [one["model_name"] for one in config["ensemble_scheduling"]["step"]] == ["a", "b"]


def test_an_ensemble_of_an_ensemble_is_loaded_behind_it(tmp_path: Path) -> None:
    two(tmp_path)
    inner = '{ model_name: "e" model_version: -1 input_map { key: "A" value: "A" } output_map { key: "C" value: "B" } }'
    ensemble(tmp_path, "d", inner, step("a", "B", "C"))
    with Engine(tmp_path) as engine:
        assert ask(engine, "d") == 3


def test_the_models_of_an_ensemble_are_loaded_with_it(tmp_path: Path) -> None:
    two(tmp_path)
    with Engine(tmp_path, options=EXPLICIT) as engine:
        engine.load_model("e")
        assert states(engine) == {"a": "READY", "b": "READY", "e": "READY"}
        assert ask(engine) == 2
    with Engine(tmp_path, options=EngineOptions(models=ModelOptions(control="explicit", load=("e",)))) as engine:
        assert ask(engine) == 2


def test_an_ensemble_leaves_with_a_model_and_comes_back_with_it(tmp_path: Path) -> None:
    two(tmp_path)
    with Engine(tmp_path) as engine:
        engine.unload_model("b")
        eventually(lambda: states(engine)["e"] == "UNAVAILABLE", "the ensemble leaves")
        with pytest.raises(KushiError):
            ask(engine)
        assert str(engine.failures["e"]) == "ensemble 'e' depends on 'b' which has no loaded version"
        engine.load_model("b")
        assert states(engine) == {"a": "READY", "b": "READY", "e": "READY"}
        assert not engine.failures
        assert ask(engine) == 2


def test_a_model_that_no_longer_fits_takes_its_ensemble_away(tmp_path: Path) -> None:
    two(tmp_path)
    with Engine(tmp_path) as engine:
        models.write(tmp_path, "b", {2: models.cast("INT32", "FP32", ("batch", 1))})
        engine.load_model("b")
        eventually(lambda: states(engine)["e"] == "UNAVAILABLE", "the ensemble leaves")
        assert (
            "inconsistent data type: TYPE_INT32 is inferred from model e while TYPE_FP32 is inferred from model b"
            in str(engine.failures["e"])
        )


def test_a_reload_of_a_model_is_seen_by_its_ensemble(tmp_path: Path) -> None:
    two(tmp_path)
    with Engine(tmp_path) as engine:
        models.write(tmp_path, "b", {2: models.plus_constant(5)})
        engine.load_model("b")
        assert ask(engine) == 6


def test_dependents_are_unloaded_with_an_ensemble_but_for_those_that_another_needs(tmp_path: Path) -> None:
    two(tmp_path)
    ensemble(tmp_path, "f", step("a", "A", "C"))
    with Engine(tmp_path) as engine:
        engine.unload_model("e", unload_dependents=True)
        expected = {"a": "READY", "b": "UNAVAILABLE", "e": "UNAVAILABLE", "f": "READY"}
        eventually(lambda: states(engine) == expected, "what nobody needs is unloaded")


def test_an_ensemble_whose_model_fails_says_so(tmp_path: Path) -> None:
    two(tmp_path)
    (tmp_path / "b" / "1" / "model.onnx").write_bytes(b"broken")
    with Engine(tmp_path, options=LENIENT) as engine:
        text = str(engine.failures["e"])
    beginning = "ensemble 'e' depends on 'b' which has no loaded version. Model 'b' loading failed with error: "
    assert f"config.pbtxt: {beginning}" in text


def test_a_model_that_is_nowhere_is_named(tmp_path: Path) -> None:
    plus(tmp_path, "a")
    ensemble(tmp_path, "e", step("a", "A", "B"), step("nowhere", "B", "C"))
    text = "ensemble e contains models that are not available or ambiguous: nowhere"
    with Engine(tmp_path, options=LENIENT) as engine:
        assert str(engine.failures["e"]) == text
    with Engine(tmp_path, options=EXPLICIT) as engine:
        with pytest.raises(ModelUnavailable, match=text):
            engine.load_model("e")
        assert states(engine) == {"a": "READY", "e": "UNAVAILABLE"}


@pytest.mark.parametrize("explicit", [False, True])
def test_ensembles_are_as_deep_as_requests_may_be(tmp_path: Path, *, explicit: bool) -> None:
    plus(tmp_path, "e0")
    ensemble(tmp_path, "e1", step("e0", "A", "C"))
    for depth in range(2, 41):
        below = step(f"e{depth - 1}", "A", "C").replace("INPUT0", "A").replace("OUTPUT0", "C")
        ensemble(tmp_path, f"e{depth}", below)
    too_deep = "is too deep: no more than 32 models may ask one another in a row"
    with Engine(tmp_path, options=EXPLICIT if explicit else LENIENT) as engine:
        if explicit:
            with pytest.raises(ModelUnavailable, match=too_deep):
                engine.load_model("e40")
            engine.load_model("e32")
        assert ask(engine, "e32") == 1
        assert states(engine)["e33"] == "UNAVAILABLE"
        assert max(len(str(error)) for error in engine.failures.values()) < 5000


@pytest.mark.parametrize("explicit", [False, True])
def test_ensembles_in_a_circle_fail_and_the_circle_is_named(tmp_path: Path, *, explicit: bool) -> None:
    for name, other in (("e", "f"), ("f", "e")):
        inner = f'{{ model_name: "{other}" model_version: -1 input_map {{ key: "A" value: "A" }}'
        ensemble(tmp_path, name, inner + ' output_map { key: "C" value: "C" } }')
    with Engine(tmp_path, options=EXPLICIT if explicit else LENIENT) as engine:
        if explicit:
            with pytest.raises(ModelUnavailable, match="circular dependency between ensembles: e -> f -> e"):
                engine.load_model("e")
        else:
            assert "circular dependency between ensembles: " in str(engine.failures["e"])
            assert engine.failures["e"] == engine.failures["f"]


@pytest.mark.parametrize(
    ("first", "more", "text"),
    [
        (step("a", "A", "B", version=3), {}, "ensemble 'e' depends on 'a' whose required version 3 is not loaded."),
        (
            step("a", "A", "B"),
            {"datatype": "TYPE_FP32"},
            (
                "in ensemble e, ensemble tensor A: inconsistent data type: TYPE_FP32 is inferred from model e while "
                "TYPE_INT32 is inferred from model a"
            ),
        ),
        (
            step("a", "A", "B"),
            {"dims": "3"},
            (
                "in ensemble e, ensemble tensor A: inconsistent shape: [-1,3] is inferred from model e while [-1,1] is "
                "inferred from model a"
            ),
        ),
        (
            step("a", "A", "B").replace('"INPUT0"', '"z"'),
            {},
            "in ensemble e, ensemble tensor A is mapping to non-existing input z in model a",
        ),
        (
            step("a", "A", "B").replace('"OUTPUT0"', '"z"'),
            {},
            "in ensemble e, ensemble tensor B is mapped from non-existing output z in model a",
        ),
    ],
)
def test_an_ensemble_that_does_not_fit_its_models_fails(
    tmp_path: Path, first: str, more: dict[str, str], text: str
) -> None:
    plus(tmp_path, "a")
    plus(tmp_path, "b")
    ensemble(tmp_path, "e", first, step("b", "B", "C"), **more)
    with Engine(tmp_path, options=LENIENT) as engine:
        assert str(engine.failures["e"]) == f"{tmp_path}/e/config.pbtxt: {text}"
        assert states(engine)["a"] == "READY"


def test_an_ensemble_follows_a_model_that_leaves_while_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two(tmp_path)
    with Engine(tmp_path) as engine, ThreadPoolExecutor(1) as other:
        engine.unload_model("a")
        load = backend.load

        def load_while_b_leaves(*args: Any) -> Loaded:  # noqa: ANN401 - passed on as they come
            other.submit(engine.unload_model, "b").result(30)
            return load(*args)

        with monkeypatch.context() as patch:
            patch.setattr(backend, "load", load_while_b_leaves)
            engine.load_model("a")
        expected = {"a": "READY", "b": "UNAVAILABLE", "e": "UNAVAILABLE"}
        eventually(lambda: states(engine) == expected, "what has left is unloaded")
        assert str(engine.failures["e"]) == "ensemble 'e' depends on 'b' which has no loaded version"
        engine.load_model("b")
        assert states(engine)["e"] == "READY"


def test_an_ensemble_follows_a_model_that_comes_back_while_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two(tmp_path)
    with Engine(tmp_path) as engine, ThreadPoolExecutor(1) as other:
        suspends = State.suspends

        def suspends_while_b_comes_back(state: State, *args: Any) -> None:  # noqa: ANN401 - passed on as they come
            other.submit(engine.load_model, "b").result(30)
            suspends(state, *args)

        with monkeypatch.context() as patch:
            patch.setattr(State, "suspends", suspends_while_b_comes_back)
            engine.unload_model("b")
        assert states(engine) == {"a": "READY", "b": "READY", "e": "READY"}
        assert ask(engine) == 2


def test_a_failed_reload_leaves_its_models_to_the_ensemble_that_serves(tmp_path: Path) -> None:
    two(tmp_path)
    ensemble(tmp_path, "f", step("a", "A", "B"), step("b", "B", "C"))
    with Engine(tmp_path) as engine:
        (tmp_path / "e" / "config.pbtxt").write_text("broken")
        with pytest.raises(KushiError):
            engine.load_model("e")
        engine.unload_model("f", unload_dependents=True)
        expected = {"a": "READY", "b": "READY", "e": "READY", "f": "UNAVAILABLE"}
        eventually(lambda: states(engine) == expected, "f alone is unloaded")
        engine.unload_model("e", unload_dependents=True)
        eventually(lambda: {*states(engine).values()} == {"UNAVAILABLE"}, "nobody needs the others")
