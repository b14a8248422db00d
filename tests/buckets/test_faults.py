"""A store that does not answer, or answers wrongly, or changes while it is read."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from runners import Engine, KushiError, ModelUnavailable
from runners.buckets import store
from tests import models
from tests.buckets.test_s3 import EXPLICIT, POLL, answer, options, put, states
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.buckets.stores import S3, Faults

LARGE = 20_000_000
"""Bytes of a model that is fetched in several parts"""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not come is waited for shortly."""
    monkeypatch.setattr(store, "_READ_SECONDS", 1)
    monkeypatch.setattr(store, "_RETRIES", 2)


def reasons(engine: Engine) -> dict[str, str]:
    return {row["name"]: row.get("reason", "") for row in engine.get_model_repository_index()}


def put_large(s3: S3) -> None:
    s3.put("repository/m/1/model.onnx", models.large(LARGE).SerializeToString())


@pytest.mark.parametrize("fault", ["error", "cut", "stall", "slow down"])
def test_an_outage_leaves_everything_serving(s3: S3, faults: Faults, fault: str) -> None:
    put(s3, "m", 1)
    with Engine(s3.url(port=faults.port), options=options(POLL)) as engine:
        faults.fault = lambda _: fault
        put(s3, "m", 2)
        eventually(lambda: reasons(engine)["m"] != "", "the index says so")
        assert reasons(engine)["m"].startswith("it is not polled: ")
        assert answer(engine) == 1
        assert engine.is_server_ready()
        faults.fault = lambda _: ""
        eventually(lambda: answer(engine) == 2, "it is polled again")
        eventually(lambda: reasons(engine) == {"m": ""}, "the index says nothing any more")


def test_what_was_fetched_serves_again_without_the_store(s3: S3, faults: Faults) -> None:
    put(s3, "m", 1)
    put(s3, "n", 2)
    url = s3.url(port=faults.port)
    with Engine(url, options=options(EXPLICIT)) as engine:
        engine.load_model("m")
    faults.fault = lambda _: "error"
    with Engine(url, options=options()) as engine:
        assert answer(engine) == 1
        assert "'1/model.onnx' cannot be read" in str(engine.failures["n"]).replace("n/1/", "1/")


def test_without_the_store_a_load_takes_what_was_fetched_unless_it_serves(s3: S3, faults: Faults) -> None:
    put(s3, "m", 1)
    url = s3.url(port=faults.port)
    with Engine(url, options=options()):
        pass
    faults.fault = lambda _: "error"
    with Engine(url, options=options(EXPLICIT)) as engine:
        engine.load_model("m")
        assert answer(engine) == 1
        with pytest.raises(KushiError, match="cannot be listed"):
            engine.load_model("m")
        assert answer(engine) == 1


def test_a_start_without_the_store_that_was_never_reached_says_so(s3: S3, faults: Faults) -> None:
    faults.fault = lambda _: "error"
    with pytest.raises(ModelUnavailable, match="cannot be listed: GET http://"):
        Engine(s3.url(port=faults.port), options=options())


@pytest.mark.parametrize("fault", ["error", "cut", "stall", "slow down"])
def test_what_goes_wrong_once_is_asked_again(s3: S3, faults: Faults, fault: str) -> None:
    put_large(s3)
    met: list[str] = []

    def fault_of(request: str) -> str:
        is_first = request.startswith("GET") and met.count(request) == 0
        met.append(request)
        return fault if is_first else ""

    faults.fault = fault_of
    with Engine(s3.url(port=faults.port), options=options()) as engine:
        assert not engine.failures
        assert len(met) > 2


def test_an_object_that_changes_before_it_is_read_is_read_as_it_is_then(s3: S3, faults: Faults) -> None:
    put(s3, "m", 1)
    changed: list[str] = []

    def before(request: str) -> None:
        if "model" in request and "list-type" not in request and not changed:
            changed.append(request)
            put(s3, "m", 2)

    faults.before = before
    with Engine(s3.url(port=faults.port), options=options()) as engine:
        assert answer(engine) == 2


def test_files_of_one_model_are_those_of_one_moment(s3: S3, faults: Faults) -> None:
    """The configuration is read, then both files change, then the model is read."""
    states_number = 'parameters {{ key: "number" value {{ string_value: "{}" }} }}'
    put(s3, "m", 1, config=states_number.format(1))
    changed: list[str] = []

    def before(request: str) -> None:
        if "model" in request and "list-type" not in request and "config" not in request and not changed:
            changed.append(request)
            put(s3, "m", 2, config=states_number.format(2))

    faults.before = before
    with Engine(s3.url(port=faults.port), options=options()) as engine:
        assert answer(engine) == 2
        assert engine.get_model_config("m")["parameters"]["number"]["string_value"] == "2"


def test_files_that_change_behind_their_reading_are_read_again(s3: S3, faults: Faults) -> None:
    """Both were read as they were listed, and one of them has changed before the other one was read."""
    put(s3, "m", 1, config="max_batch_size: 4")
    changed: list[str] = []

    def before(request: str) -> None:
        if "model" in request and "list-type" not in request and "config" not in request and not changed:
            changed.append(request)
            s3.put("repository/m/config.pbtxt", b"max_batch_size: 3")

    faults.before = before
    with Engine(s3.url(port=faults.port), options=options()) as engine:
        assert engine.get_model_config("m")["max_batch_size"] == 3


def test_a_model_that_changes_again_and_again_fails(s3: S3, faults: Faults) -> None:
    put(s3, "m", 1)
    numbers = iter(range(2, 1000))

    def before(request: str) -> None:
        if "model" in request and "list-type" not in request:
            put(s3, "m", next(numbers))

    faults.before = before
    with Engine(s3.url(port=faults.port), options=options()) as engine:
        assert "changes again and again while it is read" in str(engine.failures["m"])


def test_a_load_that_is_given_up_ends_while_it_is_fetched(s3: S3, faults: Faults) -> None:
    put_large(s3)
    with Engine(s3.url(port=faults.port), options=options(POLL)) as engine:
        assert not engine.failures
        s3.put("repository/n/1/model.onnx", models.large(LARGE + 4).SerializeToString())
        faults.fault = lambda request: "stall" if "repository/n" in request else ""
        eventually(lambda: any("GET" in one and "/n/1" in one for one in faults.requests), "it is fetched")
    # the engine has ended


def test_what_is_gone_has_no_folder_here(s3: S3, faults: Faults, tmp_path: Path) -> None:
    put(s3, "m", 1)
    put(s3, "n", 2)
    with Engine(s3.url(port=faults.port), options=options(POLL)) as engine:
        served = next((tmp_path / "cache/kushi/buckets/served").rglob("n"))
        s3.delete("repository/n/1/model.onnx")
        eventually(lambda: "n" not in reasons(engine), "it is gone")
        assert not served.exists()
        assert answer(engine) == 1


def test_an_outage_leaves_the_models_of_folders_alone(s3: S3, faults: Faults, tmp_path: Path) -> None:
    put(s3, "m", 1)
    folder = tmp_path / "here"
    models.write(folder, "o", models.plus_constant(3))
    repositories = (folder, s3.url(port=faults.port))
    for fault in ("error", "denied"):
        with Engine(*repositories, options=options(EXPLICIT)) as engine:
            faults.fault = lambda _, fault=fault: fault  # type: ignore[misc] # of a loop
            engine.load_model("o")
            assert answer(engine, "o") == 3
            faults.fault = lambda _: ""
    with Engine(*repositories, options=options(POLL)) as engine:
        faults.fault = lambda _: "error"
        eventually(lambda: reasons(engine)["m"] != "", "it is not polled")
        (folder / "o/1/model.onnx").write_bytes(models.plus_constant(4).SerializeToString())
        eventually(lambda: answer(engine, "o") == 4, "the folder is")
        assert not engine.failures


def test_a_reason_is_the_same_each_time(
    s3: S3, faults: Faults, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_RETRIES", 0)
    put(s3, "m", 1)
    with Engine(s3.url(port=faults.port), options=options(POLL)) as engine:
        faults.fault = lambda _: "error"
        eventually(lambda: reasons(engine)["m"] != "", "it is not polled")
        before = len(faults.requests)
        eventually(lambda: len(faults.requests) > before + 8, "it is looked at again")
    assert caplog.text.count("failed to poll model repository") == 1


def test_no_key_is_told(s3: S3, faults: Faults) -> None:
    put(s3, "m", 1)
    faults.fault = lambda _: "denied"
    with pytest.raises(KushiError) as caught:
        Engine(s3.url(port=faults.port), options=options())
    assert "AccessDenied: no" in str(caught.value)
    assert "a secret" not in str(caught.value)


def test_an_unloaded_model_is_loaded_again_without_the_store(s3: S3, faults: Faults) -> None:
    put(s3, "m", 1)
    with Engine(s3.url(port=faults.port), options=options(EXPLICIT)) as engine:
        engine.load_model("m")
        engine.unload_model("m")
        faults.fault = lambda _: "error"
        engine.load_model("m")
        assert answer(engine) == 1


def test_an_engine_closes_while_the_store_stalls(s3: S3, faults: Faults, tmp_path: Path) -> None:
    put(s3, "m", 1, config="max_batch_size: 4")
    engine = Engine(s3.url(port=faults.port), options=options(EXPLICIT))
    faults.fault = lambda request: "stall" if "list-type" in request else ""

    def load() -> None:
        with pytest.raises(KushiError):
            engine.load_model("m")

    loading = threading.Thread(target=load)
    loading.start()
    eventually(lambda: any("2Fm%2F" in request for request in faults.requests), "it is listed")
    engine.close()
    loading.join()
    assert not [*(tmp_path / "cache/kushi/buckets/served").iterdir()]


def test_a_model_that_comes_back_after_an_outage_has_no_note_of_it(s3: S3, faults: Faults) -> None:
    put(s3, "m", 1)
    put(s3, "n", 1)
    with Engine(s3.url(port=faults.port), options=options(POLL)) as engine:
        faults.fault = lambda _: "error"
        eventually(lambda: reasons(engine)["m"] != "", "it is not polled")
        s3.delete("repository/m/1/model.onnx")
        faults.fault = lambda _: ""
        eventually(lambda: "m" not in reasons(engine), "it is gone")
        put(s3, "m", 2)
        eventually(lambda: states(engine).get("m:1") == "READY", "it serves")
        assert (reasons(engine)["m"], answer(engine)) == ("", 2)
