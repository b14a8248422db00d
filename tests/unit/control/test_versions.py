"""How requests find the versions of a model, and how that changes while it serves"""

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runners import ConfigInvalid, Engine, EngineOptions, ModelNotFound, ModelOptions, ModelUnavailable
from runners.repository.kept_routes import KEPT
from tests import models
from tests.unit.control.polled import TWICE, Polled, answer
from tests.unit.controlled import plus
from tests.waiting import eventually

BOTH: Mapping[str, Any] = {"labels": {"stable": 1, "canary": 2}, "weights": {"stable": 90, "canary": 10}}
EXPLICIT = EngineOptions(models=ModelOptions(control="explicit", load=("m",)))


def declared(versions: Mapping[str, Any] | None, policy: str = "all {}") -> str:
    text = f'version_policy {{ {policy} }} backend: "onnxruntime"'
    if versions is None:
        return text
    return f"{text} parameters {{ key: 'kushi.versions' value {{ string_value: '{json.dumps(versions)}' }} }}"


def write(repository: Path, versions: Mapping[str, Any] | None = BOTH, numbers: tuple[int, ...] = (1, 2)) -> None:
    plus(repository, versions=numbers, text=declared(versions))


def declare(repository: Path, versions: Mapping[str, Any] | None, policy: str = "all {}") -> None:
    (repository / "m" / "config.pbtxt").write_text(declared(versions, policy))


def shares(engine: Engine, count: int, **options: Any) -> dict[int, int]:  # noqa: ANN401 - as infer takes them
    given = {"INPUT0": np.zeros((1, 1), np.int32)}
    answers = (engine.infer("m", given, **options)["OUTPUT0"] for _ in range(count))
    return dict(Counter(int(one[0, 0]) for one in answers))


def is_shared(engine: Engine, first: float) -> bool:
    """Whether this part of the requests meets version 1, and the others version 2"""
    found = shares(engine, 100)
    return abs(found.get(1, 0) - 100 * first) <= 3 and sum(found.values()) == 100


def statistics(engine: Engine) -> dict[str, int]:
    return {row["version"]: row["inference_count"] for row in engine.get_inference_statistics("m")["model_stats"]}


def change(engine: Engine, **stated: object) -> None:
    """As a client sends it"""
    status, _, body = engine._core.call(
        "RepositoryModelLoad",
        json.dumps({"model_name": "m", "parameters": {"kushi.versions": json.dumps(stated)}}).encode(),
    )
    if status != 200:
        raise ConfigInvalid(json.loads(body)["error"])


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    write(tmp_path)
    with Engine(tmp_path, options=EXPLICIT) as engine:
        yield engine


def test_requests_are_shared_out_and_labels_are_versions(engine: Engine) -> None:
    assert is_shared(engine, 0.9)
    assert [answer(engine, "m", version) for version in ("stable", "canary", 1, "2")] == [1, 2, 1, 2]
    assert engine.get_model_versions("m") == {**BOTH, "sticky": None}
    metadata = engine.get_model_metadata("m", "stable")
    assert metadata["versions"] == ["1"]
    assert engine.get_inference_statistics("m", "canary")["model_stats"][0]["version"] == "2"
    assert engine.is_model_ready("m", "canary")
    assert not engine.is_model_ready("m", "other")
    with pytest.raises(ModelNotFound, match="has no version 'other': expected a number or one of its labels, 'canary'"):
        answer(engine, "m", "other")


def test_a_change_leaves_the_versions_as_they_are(engine: Engine) -> None:
    shares(engine, 10)
    before = statistics(engine)
    engine.change_model_versions("m", weights={"stable": 1, "canary": 1}, sticky="user")
    assert engine.get_model_versions("m") == {**BOTH, "weights": {"stable": 1, "canary": 1}, "sticky": "user"}
    assert statistics(engine) == before
    assert is_shared(engine, 0.5)
    assert all(len(shares(engine, 5, parameters={"user": user})) == 1 for user in range(20))
    engine.change_model_versions("m", labels={}, weights={2: 1}, sticky="")
    assert engine.get_model_versions("m") == {"labels": {}, "weights": {"2": 1}, "sticky": None}
    engine.change_model_versions("m", weights={})
    assert engine.get_model_versions("m") == {"labels": {}, "weights": {}, "sticky": None}
    assert shares(engine, 10) == {2: 10}
    assert sum(statistics(engine).values()) == 10 + 100 + 100 + 10


def test_a_promoted_version_gets_all_until_somebody_goes_back(engine: Engine) -> None:
    engine.promote_model_version("m", "canary")
    expected = {"labels": {"stable": 2, "canary": 2}, "weights": {"stable": 1}, "sticky": None}
    assert engine.get_model_versions("m") == expected
    assert shares(engine, 20) == {2: 20}
    engine.roll_back_model_versions("m")
    assert is_shared(engine, 0.9)
    engine.roll_back_model_versions("m")
    assert shares(engine, 20) == {2: 20}
    engine.promote_model_version("m", 1)
    assert shares(engine, 20) == {1: 20}


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"labels": {"stable": 3}}, "a weight is for 'canary'"),
        ({"labels": {"stable": 3}, "weights": None}, "label 'stable' is for version 3, and the versions that are"),
        ({"weights": {"9": 1}}, "the weight of '9' is for version 9"),
        ({"weights": 1}, "'weights': expected an object"),
        ({"other": 1}, "'other' is not known there"),
        ({"promote": "other"}, "'promote' is 'other', expected a label ('stable', 'canary') or the number"),
        ({"promote": 7}, "is for version 7"),
        ({"promote": True}, "'promote' is True"),
        ({"promote": 1, "weights": {}}, "'promote' changes labels and weights"),
        ({"back": True}, "there is nothing to go back to"),
        ({"back": True, "labels": {}}, "'back' and 'forget' change all"),
        ({"back": 1}, "'back' is 1, expected true or false"),
        ({"promote": "9" * 5000}, "'promote' is '9"),
        ({"back": True, "forget": True}, "'back' and 'forget' change all"),
        ({"forget": True, "keep": True}, "'back' and 'forget' change all"),
        ({"keep": "yes"}, "'keep' is 'yes', expected true or false"),
    ],
)
def test_what_makes_no_sense_changes_nothing(engine: Engine, stated: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigInvalid) as refusal:
        change(engine, **stated)
    assert said in str(refusal.value)
    assert engine.get_model_versions("m") == {**BOTH, "sticky": None}
    assert engine.failures == {}


def test_a_change_comes_alone_and_to_a_model_that_serves(engine: Engine) -> None:
    parameters = {"kushi.versions": "{}", "config": "{}"}
    message = json.dumps({"model_name": "m", "parameters": parameters}).encode()
    status, _, body = engine._core.call("RepositoryModelLoad", message)
    assert status == 400
    assert b"parameter 'kushi.versions' changes nothing else of a model: load it before" in body
    for name in ("other", "m"):
        engine.unload_model(name)
        with pytest.raises(ModelUnavailable, match=f"of model '{name}' cannot be changed: it does not serve"):
            engine.change_model_versions(name, weights={})


def test_a_load_keeps_what_was_said_until_it_is_declared_anew(tmp_path: Path, engine: Engine) -> None:
    engine.promote_model_version("m", "canary")
    engine.load_model("m")
    assert shares(engine, 20) == {2: 20}
    plus(tmp_path, versions=(3,), text=declared(BOTH))
    engine.load_model("m")
    assert shares(engine, 20) == {2: 20}
    assert [model.version for model in engine.models()] == ["1", "2", "3"]
    declare(tmp_path, {**BOTH, "weights": {"stable": 1}})
    engine.load_model("m")
    assert shares(engine, 20) == {1: 20}
    engine.promote_model_version("m", 3)
    engine.unload_model("m")
    engine.load_model("m")
    assert shares(engine, 20) == {1: 20}


def test_a_version_that_requests_are_sent_to_does_not_go(tmp_path: Path) -> None:
    write(tmp_path, None)
    with Engine(tmp_path, options=EXPLICIT) as engine:
        engine.change_model_versions("m", weights={1: 1})
        declare(tmp_path, None, "latest { num_versions: 1 }")
        with pytest.raises(ModelUnavailable, match=r"the weight of '1' is for version 1, and the versions .* are 2"):
            engine.load_model("m")
        assert shares(engine, 10) == {1: 10}


def test_a_configuration_that_says_so_wrongly_is_not_loaded(tmp_path: Path, engine: Engine) -> None:
    declare(tmp_path, {"labels": {"stable": 9}})
    with pytest.raises(ConfigInvalid, match="label 'stable' is for version 9"):
        engine.load_model("m")
    assert is_shared(engine, 0.9)


def test_what_is_kept_outlives_the_engine(tmp_path: Path) -> None:
    write(tmp_path)
    with Engine(tmp_path, options=EXPLICIT) as engine:
        engine.promote_model_version("m", "canary", keep=True)
        engine.change_model_versions("m", weights={"1": 1})
    with Engine(tmp_path) as engine:
        assert shares(engine, 20) == {2: 20}
        engine.roll_back_model_versions("m")
        assert is_shared(engine, 0.9)
    (tmp_path / "m" / KEPT).unlink()
    with Engine(tmp_path) as engine:
        assert is_shared(engine, 0.9)


def test_what_is_kept_can_be_forgotten(tmp_path: Path, engine: Engine) -> None:
    engine.promote_model_version("m", 2, keep=True)
    declare(tmp_path, {**BOTH, "weights": {"canary": 1}})
    engine.forget_model_versions("m")
    assert not (tmp_path / "m" / KEPT).exists()
    assert engine.get_model_versions("m")["weights"] == {"canary": 1}
    engine.load_model("m")
    assert engine.get_model_versions("m")["weights"] == {"canary": 1}


def test_a_kept_file_that_is_wrong_is_named(tmp_path: Path, engine: Engine) -> None:
    (tmp_path / "m" / KEPT).write_text('{"labels": {"stable": 9}}')
    with pytest.raises(ConfigInvalid, match=f"file '{KEPT}': label 'stable' is for version 9"):
        engine.load_model("m")
    assert is_shared(engine, 0.9)


def test_a_load_that_states_its_own_wins_over_what_is_kept(engine: Engine) -> None:
    engine.promote_model_version("m", 2, keep=True)
    policy: dict[str, Any] = {"all": {}}
    parameters = {"kushi.versions": {"string_value": '{"weights": {"1": 1}}'}}
    config = {"backend": "onnxruntime", "version_policy": policy, "parameters": parameters}
    engine.load_model("m", config=json.dumps(config))
    assert shares(engine, 20) == {1: 20}
    engine.load_model("m", config=json.dumps({**config, "parameters": {}}))
    assert shares(engine, 20) == {2: 20}


def test_a_change_of_what_a_load_states_stays_where_it_is_kept(engine: Engine) -> None:
    parameters = {"kushi.versions": {"string_value": '{"weights": {"1": 1}}'}}
    config = {"backend": "onnxruntime", "version_policy": {"all": {}}, "parameters": parameters}
    engine.load_model("m", config=json.dumps(config))
    engine.promote_model_version("m", 2, keep=True)
    engine.load_model("m")
    assert shares(engine, 20) == {2: 20}


def test_a_configuration_that_a_load_has_brought_stays_where_a_change_is_kept(engine: Engine) -> None:
    config = {"backend": "onnxruntime", "version_policy": {"all": {}}, "max_batch_size": 3}
    engine.load_model("m", config=json.dumps(config))
    engine.promote_model_version("m", 2, keep=True)
    engine.load_model("m")
    assert engine.get_model_config("m")["max_batch_size"] == 3
    assert shares(engine, 20) == {2: 20}


def test_nothing_is_kept_where_loads_bring_no_files(tmp_path: Path) -> None:
    write(tmp_path)
    options = EngineOptions(models=ModelOptions(control="explicit", load=("m",), load_files="none"))
    with Engine(tmp_path, options=options) as engine:
        with pytest.raises(ConfigInvalid, match="nothing may be kept"):
            engine.promote_model_version("m", 2, keep=True)
        assert is_shared(engine, 0.9)


def test_a_poll_brings_another_declaration_and_leaves_the_versions(tmp_path: Path) -> None:
    write(tmp_path)
    polled = Polled(tmp_path)
    with polled.engine as engine:
        shares(engine, 20)
        before = polled.counts()
        declare(tmp_path, {**BOTH, "weights": {"stable": 1, "canary": 1}})
        polled.look_twice()
        assert polled.counts() == before
        assert is_shared(engine, 0.5)
        engine.promote_model_version("m", "canary", keep=True)
        polled.look_twice()
        assert shares(engine, 20) == {2: 20}
        # as another server that shares the directory keeps it
        (tmp_path / "m" / KEPT).write_text('{"weights": {"1": 1}}')
        polled.look_twice()
        assert shares(engine, 20) == {1: 20}
        assert sum(polled.counts().values()) == 20 + 100 + 20 + 20


def test_the_steps_of_an_ensemble_are_shared_out_as_well(tmp_path: Path) -> None:
    write(tmp_path, {**BOTH, "weights": {"stable": 1, "canary": 1}, "sticky": "user"})
    (tmp_path / "twice" / "1").mkdir(parents=True)
    (tmp_path / "twice" / "config.pbtxt").write_text(TWICE % "m")
    with Engine(tmp_path) as engine:
        found = Counter(answer(engine, "twice") for _ in range(40))
        assert abs(found[1] - 20) <= 2
        given = {"INPUT0": np.zeros((1, 1), np.int32)}
        for user in range(8):
            options: dict[str, Any] = {"parameters": {"user": user}}
            alone = shares(engine, 3, **options)
            steps = {int(engine.infer("twice", given, **options)["OUTPUT0"][0, 0]) for _ in range(3)}
            assert steps == alone.keys()


def write_unlike(repository: Path, versions: Mapping[str, Any]) -> None:
    """Version 2 takes numbers of another type"""
    models.write(repository, "m", {1: models.plus_constant(1), 2: models.identity("FP32")}, declared(versions))


def test_versions_that_take_other_requests_share_none(tmp_path: Path) -> None:
    write_unlike(tmp_path, BOTH)
    with pytest.raises(ModelUnavailable, match="versions 1 and 2 have weights and differ in input 'INPUT0'"):
        Engine(tmp_path)
    declare(tmp_path, {"labels": BOTH["labels"]})
    with Engine(tmp_path) as engine:
        assert answer(engine, "m", "stable") == 1
        with pytest.raises(ConfigInvalid, match="versions 1 and 2 have weights and differ in"):
            engine.change_model_versions("m", weights={"stable": 1, "canary": 1}, keep=True)
        assert not (tmp_path / "m" / KEPT).exists()
        engine.promote_model_version("m", 1)
        assert shares(engine, 5) == {1: 5}


def test_an_ensemble_waits_while_a_version_that_does_not_fit_gets_the_requests(tmp_path: Path) -> None:
    write_unlike(tmp_path, {"weights": {"1": 1}})
    (tmp_path / "twice" / "1").mkdir(parents=True)
    (tmp_path / "twice" / "config.pbtxt").write_text(TWICE % "m")
    with Engine(tmp_path) as engine:
        assert answer(engine, "twice") == 1
        engine.promote_model_version("m", 2)
        with pytest.raises(ModelNotFound, match="'twice' has no available versions"):
            answer(engine, "twice")
        engine.roll_back_model_versions("m")
        assert answer(engine, "twice") == 1


def test_requests_go_on_while_the_versions_are_changed(engine: Engine) -> None:
    ends = threading.Event()
    wrong: list[object] = []
    answered = []

    def ask() -> None:
        while not ends.is_set():
            try:
                value = answer(engine)
            except Exception as error:  # noqa: BLE001 - what is tested
                wrong.append(error)
            else:
                answered.append(value)

    def has_answers(count: int) -> bool:
        return len(answered) >= count or bool(wrong)

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    for number in range(30):
        engine.promote_model_version("m", 1 + number % 2)
        enough = len(answered) + 5
        eventually(partial(has_answers, enough), "requests are answered")
        if number % 10 == 0:
            engine.load_model("m")
    ends.set()
    for asker in askers:
        asker.join()
    assert wrong == []
    assert set(answered) == {1, 2}
    eventually(lambda: set(statistics(engine)) == {"1", "2"}, "both serve")
