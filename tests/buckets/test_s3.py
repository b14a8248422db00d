"""A repository in a bucket of S3 is served as a folder is."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from runners import ConfigInvalid, Engine, EngineOptions, KushiError, ModelUnavailable
from runners.settings import BucketOptions, ModelOptions
from tests import models
from tests.buckets.stores import S3, Faults, credentials
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

EXPLICIT = ModelOptions(control="explicit")
POLL = ModelOptions(control="poll", poll_seconds=0.2)


def options(control: ModelOptions | None = None, cache: str | None = None) -> EngineOptions:
    return EngineOptions(exit_on_error=False, models=control or ModelOptions(), buckets=BucketOptions(directory=cache))


def put(s3: S3, name: str, constant: int, version: int = 1, config: str = "") -> None:
    """A model that adds a constant."""
    s3.put(f"repository/{name}/{version}/model.onnx", models.plus_constant(constant).SerializeToString())
    if config:
        s3.put(f"repository/{name}/config.pbtxt", config.encode())


def answer(engine: Engine, name: str = "m", version: str = "") -> int:
    result = engine.model(name, version).run({"INPUT0": np.zeros((1, 1), np.int32)})
    return int(result["OUTPUT0"].item())


def states(engine: Engine) -> dict[str, str]:
    rows = engine.get_model_repository_index()
    return {f"{row['name']}:{row.get('version', '')}": row.get("state", "") for row in rows}


def test_models_of_a_bucket_are_served(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1)
    put(s3, "n", 2)
    with Engine(s3.url(), options=options()) as engine:
        assert (answer(engine), answer(engine, "n")) == (1, 2)
        assert states(engine) == {"m:1": "READY", "n:1": "READY"}
        assert repr(engine) == f"Engine('{s3.url()}')"


def test_versions_that_do_not_serve_are_not_fetched(s3: S3, tmp_path: Path) -> None:
    for version in (1, 2, 3):
        put(s3, "m", version, version, "version_policy { latest { num_versions: 2 } }")
    with Engine(s3.url(), options=options()) as engine:
        assert states(engine) == {"m:2": "READY", "m:3": "READY"}
        assert answer(engine, version="2") == 2
    cache = tmp_path / "cache/kushi/buckets/files"
    assert len([*cache.iterdir()]) == len(["config.pbtxt", "2", "3"])


def test_a_start_fetches_what_has_changed_alone(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1)
    put(s3, "n", 2)
    with Engine(s3.url(), options=options()) as engine:
        assert answer(engine) == 1
    cache = tmp_path / "cache/kushi/buckets/files"
    before = {file.name for file in cache.iterdir()}
    put(s3, "m", 3)
    with Engine(s3.url(), options=options()) as engine:
        assert (answer(engine), answer(engine, "n")) == (3, 2)
    assert len({file.name for file in cache.iterdir()} - before) == 1


def test_a_bucket_is_polled(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1)
    with Engine(s3.url(), options=options(POLL)) as engine:
        put(s3, "m", 2)
        put(s3, "n", 3)
        eventually(lambda: states(engine) == {"m:1": "READY", "n:1": "READY"}, "the new one serves")
        eventually(lambda: answer(engine) == 2, "what has changed serves")
        put(s3, "m", 4, version=2)
        eventually(lambda: states(engine).get("m:2") == "READY", "the new version serves")
        s3.delete("repository/m/2/model.onnx")
        eventually(lambda: states(engine).get("m:2") != "READY" and answer(engine) == 2, "the earlier one serves")
        s3.delete("repository/n/1/model.onnx")
        eventually(lambda: "n:1" not in states(engine), "it is gone")
        assert answer(engine) == 2


def test_versions_that_have_not_changed_stay(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1, 1, "version_policy { all { } }")
    with Engine(s3.url(), options=options(POLL)) as engine:
        answer(engine)
        put(s3, "m", 2, 2, "version_policy { all { } }")
        eventually(lambda: states(engine).get("m:2") == "READY", "the new version serves")
        first = next(row for row in engine.statistics()["model_stats"] if row["version"] == "1")
        assert int(first["inference_count"]) == 1


def test_what_is_broken_keeps_what_served(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1)
    with Engine(s3.url(), options=options(POLL)) as engine:
        s3.put("repository/m/1/model.onnx", b"broken")
        eventually(lambda: "m" in engine.failures, "it was tried")
        assert answer(engine) == 1
        put(s3, "m", 5)
        eventually(lambda: answer(engine) == 5, "it is mended")


def test_a_load_takes_what_lies_there_then(s3: S3, tmp_path: Path) -> None:
    put(s3, "n", 7)
    with Engine(s3.url(), options=options(EXPLICIT)) as engine:
        assert states(engine) == {"n:": ""}
        put(s3, "m", 1)
        engine.load_model("m")
        assert answer(engine) == 1
        put(s3, "m", 2)
        assert answer(engine) == 1
        engine.load_model("m")
        assert answer(engine) == 2
        engine.unload_model("m")
        s3.delete("repository/m/1/model.onnx")
        with pytest.raises(KushiError, match="failed to load 'm', failed to poll from model repository"):
            engine.load_model("m")
        eventually(lambda: states(engine) == {"n:": ""}, "it is gone")


def test_a_load_may_bring_a_configuration(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1)
    put(s3, "m", 2, version=2)
    with Engine(s3.url(), options=options(EXPLICIT)) as engine:
        engine.load_model("m", config='{"version_policy": {"specific": {"versions": [1]}}, "max_batch_size": 8}')
        assert states(engine) == {"m:1": "READY"}
        assert answer(engine) == 1


def test_an_ensemble_has_its_folder_of_a_version_by_a_mark(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1)
    s3.put(
        "repository/twice/config.pbtxt",
        b"""platform: "ensemble" max_batch_size: 4
        input { name: "IN" data_type: TYPE_INT32 dims: 1 } output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
        ensemble_scheduling {
          step { model_name: "m" model_version: -1
            input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "MIDDLE" } }
          step { model_name: "m" model_version: -1
            input_map { key: "INPUT0" value: "MIDDLE" } output_map { key: "OUTPUT0" value: "OUT" } }
        }""",
    )
    s3.put("repository/twice/1/", b"")
    with Engine(s3.url(), options=options()) as engine:
        assert not engine.failures
        result = engine.infer("twice", {"IN": np.zeros((1, 1), np.int32)})
        assert result["OUT"].item() == 2


def test_a_folder_and_a_bucket_are_served_together(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1)
    put(s3, "n", 2)
    models.write(tmp_path / "here", "n", models.plus_constant(3))
    models.write(tmp_path / "here", "o", models.plus_constant(4))
    with Engine(tmp_path / "here", s3.url(), options=options()) as engine:
        assert (answer(engine), answer(engine, "o")) == (1, 4)
        assert f"model 'n' is in more than one repository: {tmp_path / 'here/n'}, {s3.url()}/n" in str(
            engine.failures["n"]
        )


def test_errors_name_the_url(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1)
    s3.put("repository/m/config.pbtxt", b"nam: 1")
    with Engine(s3.url(), options=options()) as engine:
        assert str(engine.failures["m"]).startswith(f"{s3.url()}/m/config.pbtxt:1:1: ModelConfig has no field 'nam'")
        (row,) = engine.models()
        assert row.reason == str(engine.failures["m"])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nothing", "not found: there is no model in it"),
        ("repository/m", "looks like a model, expected its model repository"),
    ],
)
def test_what_is_no_repository_is_refused(s3: S3, tmp_path: Path, url: str, message: str) -> None:
    put(s3, "m", 1)
    with pytest.raises(ConfigInvalid, match=message):
        Engine(s3.url(url), options=options())


def test_a_bucket_that_is_not_there_is_named(s3: S3) -> None:
    with pytest.raises(ConfigInvalid, match="there is no bucket 'others'"):
        Engine(f"s3://127.0.0.1:{s3.port}/others/repository", options=options())


def test_objects_that_cannot_be_files_are_told_of(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1)
    s3.put("repository/odd/1", b"a file")
    s3.put("repository/odd/1/model.onnx", b"below it")
    s3.put(f"repository/long/{'x' * 300}", b"")
    with Engine(s3.url(), options=options()) as engine:
        assert answer(engine) == 1
        assert "object 'odd/1' lies where other objects have a folder" in str(engine.failures["odd"])
        assert "cannot be a file" in str(engine.failures["long"])


def test_files_of_a_model_may_lie_deep(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1)
    s3.put("repository/m/assets/a/b/c.txt", b"deep")
    s3.put("repository/m/1/assets/c.txt", b"deep")
    with Engine(s3.url(), options=options(POLL)) as engine:
        served = next((tmp_path / "cache/kushi/buckets/served").rglob("m"))
        assert (served / "assets/a/b/c.txt").read_bytes() == (served / "1/assets/c.txt").read_bytes() == b"deep"
        s3.delete("repository/m/assets/a/b/c.txt")
        s3.put("repository/m/assets/a", b"now a file")
        eventually((served / "assets/a").is_file, "the folder is a file now")
        assert answer(engine) == 1


def test_credentials_come_from_tritons_file(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(s3, "m", 1)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    keys = {"key_id": "key", "secret_key": "secret"}
    document = {"s3": {"": {"key_id": "", "secret_key": ""}, s3.url()[:15]: keys}}
    monkeypatch.setenv("TRITON_CLOUD_CREDENTIAL_PATH", credentials(tmp_path / "credentials.json", document))
    with Engine(s3.url(), options=options()) as engine:
        assert answer(engine) == 1


def test_what_was_fetched_goes_with_the_engine(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1)
    with Engine(s3.url(), options=options()) as engine:
        assert answer(engine) == 1
        assert [*(tmp_path / "cache/kushi/buckets/served").iterdir()]
    assert not [*(tmp_path / "cache/kushi/buckets/served").iterdir()]


def test_an_engine_that_does_not_start_leaves_nothing(s3: S3, tmp_path: Path) -> None:
    s3.put("repository/m/1/model.onnx", b"broken")
    with pytest.raises(ModelUnavailable):
        Engine(s3.url())
    assert not [*(tmp_path / "cache/kushi/buckets/served").iterdir()]


def test_what_is_kept_of_versions_is_kept_in_the_bucket(s3: S3) -> None:
    for version in (1, 2):
        put(s3, "m", version, version, "version_policy { all { } }")
    with Engine(s3.url(), options=options(POLL)) as engine, Engine(s3.url(), options=options(POLL)) as replica:
        assert answer(engine) == answer(replica) == 2
        engine.promote_model_version("m", 1, keep=True)
        assert answer(engine) == 1
        eventually(lambda: answer(replica) == 1, "the other replica follows")
    with Engine(s3.url(), options=options()) as engine:
        assert answer(engine) == 1
        engine.forget_model_versions("m")
        assert answer(engine) == 2
    with Engine(s3.url(), options=options()) as engine:
        assert answer(engine) == 2


def test_what_cannot_be_kept_in_the_bucket_changes_nothing(s3: S3, faults: Faults) -> None:
    for version in (1, 2):
        put(s3, "m", version, version, "version_policy { all { } }")
    with Engine(s3.url(port=faults.port), options=options(EXPLICIT)) as engine:
        engine.load_model("m")
        faults.fault = lambda request: "denied" if request.startswith("PUT") else ""
        with pytest.raises(KushiError, match=r"'m/kushi.versions.json' cannot be written: the store refuses"):
            engine.promote_model_version("m", 1, keep=True)
        assert answer(engine) == 2


def test_buckets_of_one_name_in_two_stores_are_told_apart(s3: S3, faults: Faults) -> None:
    put(s3, "m", 1)
    s3.put("other/n/1/model.onnx", models.plus_constant(2).SerializeToString())
    nested = s3.url("repository", faults.port)
    with Engine(s3.url("other"), nested, options=options()) as engine:
        assert (answer(engine), answer(engine, "n")) == (1, 2)
    with Engine(s3.url(), f"{s3.url()}/", options=options()) as engine:
        assert answer(engine) == 1


def test_the_endpoint_of_the_url_wins_over_that_of_variables(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    put(s3, "m", 1)
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with Engine(s3.url(), options=options()) as engine:
        assert answer(engine) == 1


def test_a_model_larger_than_the_cache_is_served(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1, config="max_batch_size: 4")
    s3.put("repository/m/1/words.txt", b"x" * 3_000_000)
    small = EngineOptions(buckets=BucketOptions(directory=str(tmp_path / "files"), most_bytes=1000))
    with Engine(s3.url(), options=small) as engine:
        assert answer(engine) == 1


def test_a_profile_that_is_wrong_is_named(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("[default]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = other\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(ConfigInvalid, match=r"cannot be opened: .*other"):
        Engine(s3.url(), options=options())


def test_an_odd_name_costs_its_model_alone(s3: S3) -> None:
    put(s3, "m", 1)
    put(s3, "odd", 2)
    s3.put("repository/odd//1", b"")
    with Engine(s3.url(), options=options(POLL)) as engine:
        assert answer(engine) == 1
        assert "there is an object with an odd name" in str(engine.failures["odd"])
        s3.delete("repository/odd//1")
        eventually(lambda: states(engine) == {"m:1": "READY", "odd:1": "READY"}, "it is mended")


def test_a_model_that_is_listed_no_more_and_serves_keeps_its_files(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1)
    with Engine(s3.url(), options=options(EXPLICIT)) as engine:
        engine.load_model("m")
        served = next((tmp_path / "cache/kushi/buckets/served").rglob("m"))
        s3.delete("repository/m/1/model.onnx")
        with pytest.raises(KushiError):
            engine.load_model("m")
        assert answer(engine) == 1
        assert (served / "1/model.onnx").exists()
        engine.unload_model("m")
        assert not served.exists()
        eventually(lambda: states(engine) == {}, "it is gone")


def test_a_mark_of_a_version_that_goes_is_heard(s3: S3) -> None:
    put(s3, "m", 1)
    ensemble = b"""platform: "ensemble" max_batch_size: 4 version_policy { all { } }
        input { name: "IN" data_type: TYPE_INT32 dims: 1 } output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
        ensemble_scheduling { step { model_name: "m" model_version: -1
            input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "OUT" } } }"""
    s3.put("repository/e/config.pbtxt", ensemble)
    for version in (1, 2):
        s3.put(f"repository/e/{version}/", b"")
    with Engine(s3.url(), options=options(POLL)) as engine:
        assert states(engine)["e:2"] == "READY"
        s3.delete("repository/e/2/")
        eventually(lambda: states(engine).get("e:2") != "READY", "the version is gone")
        assert states(engine)["e:1"] == "READY"


def test_what_a_model_has_written_goes_with_its_version(s3: S3, tmp_path: Path) -> None:
    for version in (1, 2):
        put(s3, "m", version, version)
    with Engine(s3.url(), options=options(POLL)) as engine:
        served = next((tmp_path / "cache/kushi/buckets/served").rglob("m"))
        (served / "2/written.txt").write_text("by the model")
        s3.delete("repository/m/2/model.onnx")
        eventually(lambda: answer(engine) == 1, "the earlier version serves")
        assert not (served / "2").exists()


def test_a_large_file_that_was_written_to_is_fetched_again(s3: S3, tmp_path: Path) -> None:
    content = models.plus_constant(1).SerializeToString()
    s3.put("repository/m/1/model.onnx", content)
    s3.put("repository/m/1/large.bin", b"x" * 2_000_000)
    with Engine(s3.url(), options=options(EXPLICIT)) as engine:
        engine.load_model("m")
        served = next((tmp_path / "cache/kushi/buckets/served").rglob("large.bin"))
        served.chmod(0o644)
        with served.open("r+b") as file:
            file.write(b"y")
        engine.load_model("m")
        assert served.read_bytes() == b"x" * 2_000_000


def test_the_last_model_may_go(s3: S3) -> None:
    put(s3, "m", 1)
    with Engine(s3.url(), options=options(POLL)) as engine:
        s3.delete("repository/m/1/model.onnx")
        eventually(lambda: states(engine) == {}, "it is gone")
        s3.put("repository/1/model.bin", b"an odd name of a model")
        put(s3, "m", 2)
        eventually(lambda: states(engine).get("m:1") == "READY", "another one came")


def test_a_cache_that_was_deleted_is_made_again(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1)
    with Engine(s3.url(), options=options(EXPLICIT)) as engine:
        engine.load_model("m")
        shutil.rmtree(tmp_path / "cache/kushi/buckets")
        put(s3, "m", 2)
        engine.load_model("m")
        assert answer(engine) == 2


def test_a_listing_of_several_pages_is_held_against_another_one(s3: S3, faults: Faults) -> None:
    """The first page has the configuration as it was, the second one the model as it is then."""
    states_number = 'parameters {{ key: "number" value {{ string_value: "{}" }} }}'
    for number in (1, 2):
        put(s3, "m", number, config=states_number.format(number))
        with Engine(s3.url(), options=options()) as engine:
            assert answer(engine) == number
    put(s3, "m", 1, config=states_number.format(1))
    for number in range(999):
        s3.put(f"repository/a/{number}", b"x")
    changed: list[str] = []

    def before(request: str) -> None:
        if "continuation" in request and not changed:
            changed.append(request)
            put(s3, "m", 2, config=states_number.format(2))

    faults.before = before
    with Engine(s3.url(port=faults.port), options=options()) as engine:
        assert changed
        assert engine.get_model_config("m")["parameters"]["number"]["string_value"] == str(answer(engine))


def test_files_of_a_model_that_was_unloaded_are_in_use_no_more(s3: S3, tmp_path: Path) -> None:
    few = EngineOptions(models=EXPLICIT, buckets=BucketOptions(directory=str(tmp_path / "files"), most_bytes=5_000_000))
    for number in range(4):
        put(s3, f"m{number}", number)
        s3.put(f"repository/m{number}/1/large.bin", bytes([number]) * 2_000_000)
    with Engine(s3.url(), options=few) as engine:
        for number in range(4):
            engine.load_model(f"m{number}")
            assert answer(engine, f"m{number}") == number
            engine.unload_model(f"m{number}")
        assert sum(file.stat().st_size for file in (tmp_path / "files/files").iterdir()) <= 5_000_000
        engine.load_model("m0")
        assert answer(engine, "m0") == 0


def test_an_odd_name_at_the_top_hides_new_models_alone(s3: S3) -> None:
    put(s3, "m", 1)
    with Engine(s3.url(), options=options(POLL)) as engine:
        s3.put("repository//odd/1", b"")
        put(s3, "m", 2)
        eventually(lambda: answer(engine) == 2, "what is known is polled")
    with pytest.raises(KushiError, match="there is an object with an odd name"):
        Engine(s3.url(), options=options())


def test_what_a_model_has_written_in_the_place_of_a_file_or_folder_goes(s3: S3, tmp_path: Path) -> None:
    put(s3, "m", 1)
    with Engine(s3.url(), options=options(EXPLICIT)) as engine:
        engine.load_model("m")
        served = next((tmp_path / "cache/kushi/buckets/served").rglob("m"))
        (served / "words.txt").mkdir()
        (served / "words.txt/inside").write_text("by the model")
        (served / "assets").write_text("by the model")
        s3.put("repository/m/words.txt", b"words")
        s3.put("repository/m/assets/a", b"an asset")
        engine.load_model("m")
        assert (served / "words.txt").read_bytes() == b"words"
        assert (served / "assets/a").read_bytes() == b"an asset"
        assert answer(engine) == 1
