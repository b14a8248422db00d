"""Models as attributes of an engine: which names are, and how their inputs are given."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from runners import Engine, Model, ModelNotFound, ShuttingDown
from tests import models, standard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROW = np.arange(16, dtype=np.int32).reshape(1, 16)
ONES = np.ones((1, 16), dtype=np.int32)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    repository = tmp_path_factory.mktemp("repository")
    for name in ("add_sub", "add-sub", "infer", "adder"):
        models.write_add_sub(repository, name)
    standard.write_versions(repository)
    with Engine(repository) as opened:
        yield opened


def test_a_model_is_an_attribute(engine: Engine) -> None:
    assert isinstance(engine.add_sub, Model)
    assert (engine.add_sub.name, engine.add_sub.version) == ("add_sub", "")


def test_inputs_are_given_by_position(engine: Engine) -> None:
    assert (engine.add_sub.run(ROW, ONES)["OUTPUT0"] == ROW + 1).all()


def test_inputs_are_given_by_name(engine: Engine) -> None:
    assert (engine.add_sub.run(INPUT1=ONES, INPUT0=ROW)["OUTPUT1"] == ROW - 1).all()


def test_inputs_are_given_as_one_mapping(engine: Engine) -> None:
    assert (engine.add_sub.run({"INPUT1": ONES, "INPUT0": ROW})["OUTPUT1"] == ROW - 1).all()


def test_a_model_is_awaited(engine: Engine) -> None:
    async def ask() -> list[int]:
        both = [engine.add_sub.async_run(ROW, ONES), engine.add_sub.async_run(INPUT0=ROW, INPUT1=ROW)]
        return [int(result["OUTPUT0"].sum()) for result in await asyncio.gather(*both)]

    assert asyncio.run(ask()) == [136, 240]


def test_inputs_by_position_and_by_name_are_not_mixed(engine: Engine) -> None:
    for run in (engine.add_sub.run, engine.add_sub.async_run):
        with pytest.raises(TypeError) as caught:
            run(ROW, INPUT1=ONES)
        assert str(caught.value) == (
            "model 'add_sub': expected all inputs by position or all by name, got 1 by position and 'INPUT1' by name"
        )


def test_inputs_may_be_called_like_arguments_of_a_method(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Identity", ["self"], ["model"])
    model = models.model([node], [models.tensor("self", "FP32", [1])], [models.tensor("model", "FP32", [1])])
    models.write(tmp_path, "m", model)
    with Engine(tmp_path) as engine:
        assert engine.m.run(self=np.ones(1, np.float32))["model"] == [1]


def test_a_name_that_is_no_identifier_is_asked_for(engine: Engine) -> None:
    assert (engine.model("add-sub").run(ROW, ONES)["OUTPUT0"] == ROW + 1).all()


def test_a_model_with_the_name_of_a_method_is_asked_for(engine: Engine) -> None:
    assert callable(engine.infer)
    assert (engine.model("infer").run(ROW, ONES)["OUTPUT0"] == ROW + 1).all()


def test_a_handle_may_be_of_a_version(engine: Engine) -> None:
    forty = np.array([[40]], dtype=np.int32)
    for version in (1, "1"):
        handle = engine.model("all_versions", version)
        assert handle.version == "1"
        assert handle.run(forty)["OUTPUT0"] == [[41]]


def test_a_handle_of_what_does_not_exist_says_so_when_it_is_asked(engine: Engine) -> None:
    with pytest.raises(ModelNotFound, match="unknown model: 'nothing'"):
        engine.model("nothing").run(ROW)


def test_a_handle_is_made_once(engine: Engine) -> None:
    assert engine.add_sub is engine.add_sub is engine.model("add_sub")
    assert engine.model("add_sub", 1) is engine.model("add_sub", "1")
    assert engine.model("add_sub", 1) is not engine.add_sub


def test_handles_take_bounded_memory(engine: Engine) -> None:
    first = engine.model("model 0")
    for number in range(5000):
        assert engine.model(f"model {number}").name == f"model {number}"
    assert first.name == "model 0"
    assert len(engine._handles) < 2000


def test_an_unknown_attribute_names_the_models_like_it(engine: Engine) -> None:
    with pytest.raises(AttributeError) as caught:
        _ = engine.add_subb
    text = str(caught.value)
    assert text.startswith(f"{engine!r} has no attribute and no model 'add_subb', did you mean 'add_sub' or ")
    assert "engine.model(…)" in text


def test_an_unknown_attribute_like_no_model_is_plain(engine: Engine) -> None:
    with pytest.raises(AttributeError, match="no model 'zzz'; for a name") as caught:
        _ = engine.zzz
    assert "did you mean" not in str(caught.value)
    assert not hasattr(engine, "zzz")


def test_no_name_with_an_underscore_in_front_is_a_model(tmp_path: Path) -> None:
    models.write_add_sub(tmp_path, "_hidden")
    with Engine(tmp_path) as engine:
        with pytest.raises(AttributeError, match=r"^'Engine' object has no attribute '_hidden'$"):
            _ = engine._hidden
        assert not hasattr(engine, "__array__")
        assert (engine.model("_hidden").run(ROW, ONES)["OUTPUT0"] == ROW + 1).all()


def test_dir_lists_the_models_that_are_attributes(engine: Engine) -> None:
    assert {"add_sub", "adder", "all_versions", "async_infer", "get_model_config"} <= set(dir(engine))
    assert "add-sub" not in dir(engine)


def test_a_handle_says_what_it_is(engine: Engine) -> None:
    assert repr(engine.add_sub) == f"<Model 'add_sub' of {engine!r}>"
    assert repr(engine.model("add_sub", 1)) == f"<Model 'add_sub' version 1 of {engine!r}>"


def test_handles_and_engines_stay_in_their_process(engine: Engine) -> None:
    with pytest.raises(TypeError, match="cannot pickle 'Model' object: send the name 'add_sub'"):
        pickle.dumps(engine.add_sub)
    with pytest.raises(TypeError, match="cannot pickle 'Engine' object: it belongs to this process"):
        pickle.dumps(engine)
    with pytest.raises(TypeError, match="cannot pickle 'Engine' object"):
        copy.copy(engine)


def test_a_closed_engine_says_so_when_a_model_is_asked(tmp_path: Path) -> None:
    models.write_add_sub(tmp_path)
    engine = Engine(tmp_path)
    engine.close()
    with pytest.raises(ShuttingDown, match="the engine is closed"):
        engine.add_sub.run(ROW, ONES)
    assert "infer" in dir(engine)
