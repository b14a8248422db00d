import asyncio
import math
import shutil
from pathlib import Path

import pytest

from runners import ConfigInvalid, Engine, EngineOptions, ModelNotFound, ModelOptions, ModelUnavailable
from tests import models
from tests.unit.controlled import EXPLICIT, index, plus, rows
from tests.waiting import eventually


def test_an_explicit_engine_loads_nothing_at_the_start_and_lists_what_there_is(tmp_path: Path) -> None:
    plus(tmp_path, "a")
    plus(tmp_path, "b")
    (tmp_path / ".hidden").mkdir()
    with Engine(tmp_path, options=EXPLICIT) as engine:
        assert rows(engine) == []
        assert index(engine) == [{"name": "a"}, {"name": "b"}]
        assert index(engine, b'{"ready": true}') == []
        assert engine._core.call("ServerReady", b"") == (200, "", b"true")


def test_the_models_to_load_are_chosen_by_name_or_all_of_them(tmp_path: Path) -> None:
    plus(tmp_path, "a")
    plus(tmp_path, "b")
    for names, expected in ((("b",), ["b"]), (("*",), ["a", "b"])):
        with Engine(tmp_path, options=EngineOptions(models=ModelOptions(control="explicit", load=names))) as engine:
            assert [row[0] for row in rows(engine)] == expected


def test_a_model_to_load_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    plus(tmp_path, "a")
    options = EngineOptions(exit_on_error=False, models=ModelOptions(control="explicit", load=("a", "nowhere")))
    with Engine(tmp_path, options=options) as engine:
        assert str(engine.failures["nowhere"]) == "failed to load 'nowhere', failed to poll from model repository"
        assert isinstance(engine.failures["nowhere"], ModelNotFound)
        assert [row[:3] for row in rows(engine)] == [("a", "1", "READY")]


@pytest.mark.parametrize("names", [("*", "a"), ("a", "*")])
def test_all_models_and_some_exclude_each_other(names: tuple[str, ...]) -> None:
    with pytest.raises(
        ConfigInvalid, match=r"^Wildcard model name '\*' must be the ONLY startup model if specified at all\.$"
    ):
        EngineOptions(models=ModelOptions(control="explicit", load=names))


def test_models_to_load_need_explicit_control() -> None:
    with pytest.raises(
        ConfigInvalid, match=r"^Use of 'models\.load' requires setting 'models\.control=explicit' as well"
    ):
        EngineOptions(models=ModelOptions(load=("a",)))


@pytest.mark.parametrize("threads", [0, -1])
def test_models_need_a_thread_that_loads_them(threads: int) -> None:
    with pytest.raises(ConfigInvalid, match=f"^models.load_threads is {threads}, expected an integer from 1 to 1024$"):
        EngineOptions(models=ModelOptions(load_threads=threads))


@pytest.mark.parametrize("options", [EngineOptions(), EXPLICIT])
def test_models_are_loaded_and_unloaded_in_process_whatever_the_mode(tmp_path: Path, options: EngineOptions) -> None:
    with Engine(tmp_path, options=options) as engine:
        plus(tmp_path)
        engine.load_model("m")
        assert rows(engine) == [("m", "1", "READY", "")]
        engine.unload_model("m")
        eventually(lambda: rows(engine) == [("m", "1", "UNAVAILABLE", "unloaded")], "the model is unloaded")
        asyncio.run(engine.async_load_model("m"))
        assert rows(engine) == [("m", "1", "READY", "")]
        asyncio.run(engine.async_unload_model("m"))
        eventually(lambda: rows(engine) == [("m", "1", "UNAVAILABLE", "unloaded")], "the model is unloaded again")


def test_a_model_that_no_repository_has_cannot_be_loaded(tmp_path: Path) -> None:
    with Engine(tmp_path) as engine:
        with pytest.raises(ModelNotFound) as raised:
            engine.load_model("m")
        assert str(raised.value) == "failed to load 'm', failed to poll from model repository"
        assert (raised.value.model, raised.value.status) == ("m", 500)
        assert rows(engine) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (" ", "Model name cannot be empty. Please enter a valid name to deploy."),
        ("..", "invalid model name '..', model name must not contain path traversal characters"),
        ("a/b", "invalid model name 'a/b', model name must not contain path traversal characters"),
    ],
)
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with Engine(tmp_path) as engine, pytest.raises(ConfigInvalid) as raised:
        engine.load_model(name)
    assert (str(raised.value), raised.value.status) == (message, 400)


@pytest.mark.parametrize("name", [".hidden", "."])
def test_what_a_scan_skips_is_not_found_by_name_either(tmp_path: Path, name: str) -> None:
    plus(tmp_path, ".hidden")
    with Engine(tmp_path) as engine, pytest.raises(ModelNotFound):
        engine.load_model(name)


def test_a_name_that_no_directory_can_have_leaves_nothing_behind(tmp_path: Path) -> None:
    with Engine(tmp_path, options=EXPLICIT) as engine:
        with pytest.raises(ModelNotFound) as raised:
            engine.load_model("m" * 300)
        assert str(raised.value).endswith("m', failed to poll from model repository")
        assert (rows(engine), engine.failures) == ([], {})
        assert engine.is_server_ready()


def test_what_failed_can_be_loaded_again_one_by_one(tmp_path: Path) -> None:
    for name in "ab":
        plus(tmp_path, name, text="max_batch_sise: 3")
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        for name in engine.failures:
            (tmp_path / name / "config.pbtxt").unlink()
            engine.load_model(name)
        assert engine.failures == {}


def test_unloading_what_is_not_loaded_does_nothing(tmp_path: Path) -> None:
    with Engine(tmp_path) as engine:
        engine.unload_model("m")
        assert rows(engine) == []


def test_a_configuration_that_cannot_be_read_fails_the_load_and_says_why(tmp_path: Path) -> None:
    plus(tmp_path, text="max_batch_sise: 3")
    with Engine(tmp_path, options=EXPLICIT) as engine:
        with pytest.raises(ConfigInvalid) as raised:
            engine.load_model("m")
        assert str(raised.value).startswith("failed to load 'm', failed to poll from model repository: ")
        assert "m/config.pbtxt:1:1: " in str(raised.value)
        assert raised.value.status == 500
        assert list(engine.failures) == ["m"]
        (tmp_path / "m/config.pbtxt").unlink()
        engine.load_model("m")
        assert engine.failures == {}
        assert rows(engine) == [("m", "1", "READY", "")]


def test_a_load_that_fails_after_an_unload_is_the_reason_in_the_index(tmp_path: Path) -> None:
    plus(tmp_path)
    with Engine(tmp_path, options=EXPLICIT) as engine:
        engine.load_model("m")
        engine.unload_model("m")
        eventually(lambda: rows(engine) == [("m", "1", "UNAVAILABLE", "unloaded")], "the model is unloaded")
        (tmp_path / "m/config.pbtxt").write_text("max_batch_sise: 3")
        with pytest.raises(ConfigInvalid):
            engine.load_model("m")
        assert rows(engine) == [("m", "1", "UNAVAILABLE", str(engine.failures["m"]))]
        assert not engine.is_server_ready()


def test_a_failed_load_has_a_clause_for_each_failed_version(tmp_path: Path) -> None:
    whole = models.plus_constant(1).SerializeToString()
    models.write(tmp_path, "m", {1: whole, 2: b"broken", 3: whole[:-9]}, "version_policy { all { } }")
    with Engine(tmp_path, options=EXPLICIT) as engine:
        with pytest.raises(ModelUnavailable) as raised:
            engine.load_model("m")
        text = str(raised.value)
        assert text.startswith("load failed for model 'm': version 2 is at UNAVAILABLE state: ")
        assert ";version 3 is at UNAVAILABLE state: " in text
        assert text.endswith(";\n")
        assert (raised.value.status, raised.value.retryable) == (400, False)
        assert [(row[1], row[2]) for row in rows(engine)] == [
            ("1", "UNAVAILABLE"),
            ("2", "UNAVAILABLE"),
            ("3", "UNAVAILABLE"),
        ]
        assert rows(engine)[0][3] == "unloaded"


def test_a_model_without_a_version_is_refused_in_the_words_of_the_protocol(tmp_path: Path) -> None:
    plus(tmp_path, text="version_policy { specific { versions: [2] } }")
    with Engine(tmp_path, options=EXPLICIT) as engine, pytest.raises(ModelUnavailable) as raised:
        engine.load_model("m")
    assert str(raised.value).startswith("load failed for model 'm': ")
    assert "at least one version must be available under the version policy of model 'm'" in str(raised.value)


def test_a_failed_reload_keeps_what_serves(tmp_path: Path) -> None:
    plus(tmp_path)
    with Engine(tmp_path) as engine:
        (tmp_path / "m/1/model.onnx").write_bytes(b"broken")
        with pytest.raises(ModelUnavailable, match="version 1 is at UNAVAILABLE state"):
            engine.load_model("m")
        assert rows(engine) == [("m", "1", "READY", "")]
        shutil.rmtree(tmp_path / "m")
        with pytest.raises(ModelNotFound):
            engine.load_model("m")
        assert rows(engine) == [("m", "1", "READY", "")]


def test_a_reload_takes_new_versions_and_drops_old_ones(tmp_path: Path) -> None:
    plus(tmp_path)
    with Engine(tmp_path) as engine:
        plus(tmp_path, versions=(2,))
        engine.load_model("m")
        expected = [("m", "1", "UNAVAILABLE", "unloaded"), ("m", "2", "READY", "")]
        eventually(lambda: rows(engine) == expected, "version 1 is gone")
        assert index(engine, b'{"ready":true}') == [{"name": "m", "version": "2", "state": "READY"}]


def test_a_name_in_two_repositories_is_refused_and_listed_as_unavailable(tmp_path: Path) -> None:
    for repository in ("one", "two"):
        plus(tmp_path / repository)
    with Engine(tmp_path / "one", tmp_path / "two", options=EXPLICIT) as engine:
        with pytest.raises(ConfigInvalid, match="is in more than one repository") as raised:
            engine.load_model("m")
        assert raised.value.status == 500
    with Engine(tmp_path / "one", tmp_path / "two", options=EXPLICIT) as engine:
        reason = "model appears in two or more repositories"
        assert index(engine) == [{"name": "m", "state": "UNAVAILABLE", "reason": reason}]


def test_a_model_file_is_a_repository_of_one_model(tmp_path: Path) -> None:
    path = tmp_path / "plus.onnx"
    path.write_bytes(models.plus_constant(1).SerializeToString())
    with Engine(path, options=EXPLICIT) as engine:
        assert index(engine) == [{"name": "plus"}]
        engine.load_model("plus")
        assert rows(engine) == [("plus", "1", "READY", "")]


def test_a_model_that_is_gone_from_the_repository_is_listed_while_it_serves(tmp_path: Path) -> None:
    plus(tmp_path)
    with Engine(tmp_path) as engine:
        shutil.rmtree(tmp_path / "m")
        assert index(engine) == [{"name": "m", "version": "1", "state": "READY"}]
        engine.unload_model("m")
        eventually(lambda: index(engine) == [], "the model is forgotten")


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan])
def test_the_time_for_a_load_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(
        ConfigInvalid, match=f"^models.load_timeout_seconds is {seconds}, expected a number from 0 to 1000000$"
    ):
        EngineOptions(models=ModelOptions(load_timeout_seconds=seconds))


def test_a_configuration_of_another_name_takes_the_place_of_the_usual_one(tmp_path: Path) -> None:
    for name in ("a", "b"):
        plus(tmp_path, name, (1, 2))
    (tmp_path / "a" / "configs").mkdir()
    (tmp_path / "a" / "configs" / "h100.pbtxt").write_text(
        'backend: "onnxruntime" version_policy { specific { versions: [ 1 ] } }'
    )
    with Engine(tmp_path, options=EngineOptions(models=ModelOptions(config_name="h100"))) as engine:
        assert [row[:2] for row in rows(engine)] == [("a", "1"), ("b", "2")]
    with Engine(tmp_path, options=EngineOptions(models=ModelOptions(config_name="other"))) as engine:
        assert [row[:2] for row in rows(engine)] == [("a", "2"), ("b", "2")]


FAILS_TWICE = """
from pathlib import Path

class TritonPythonModel:
    def initialize(self, args):
        tries = Path(__file__).with_name("tries")
        done = len(tries.read_text()) if tries.exists() else 0
        tries.write_text("x" * (done + 1))
        if done < 2:
            raise ValueError(f"try {done}")
"""


@pytest.mark.parametrize(("retries", "loads"), [(1, False), (2, True)])
def test_a_load_that_fails_is_tried_again_as_often_as_the_operator_says(
    tmp_path: Path, retries: int, *, loads: bool
) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.py").write_text(FAILS_TWICE)
    options = EngineOptions(exit_on_error=False, models=ModelOptions(load_retries=retries))
    with Engine(tmp_path, options=options) as engine:
        assert ("m" not in engine.failures) == loads
    assert (tmp_path / "m" / "1" / "tries").read_text() == "x" * (retries + 1)
