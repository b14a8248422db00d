"""What a model says about its versions, and what is kept of it"""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from runners.errors import ConfigInvalid
from runners.repository.kept_routes import KEPT, Kept, keep, read_kept
from runners.repository.messages import ModelConfig
from runners.repository.version_routes import (
    NO_ROUTES,
    VersionRoutes,
    check_routes,
    read_routes,
    routes_of,
    with_routes,
)
from runners.version_labels import VERSIONS, is_label

BOTH: dict[str, Any] = {
    "labels": {"stable": 1, "canary": 2},
    "weights": {"stable": 90, "2": 10.5},
    "sticky": "x-user",
}
ROUTES = VersionRoutes({"stable": 1, "canary": 2}, {"stable": 90, "2": 10.5}, "x-user")


def config(text: str = "") -> ModelConfig:
    return text_format.Parse(text, ModelConfig(name="m"))


def test_all_of_it_is_read_and_written_again() -> None:
    assert read_routes(json.dumps(BOTH)) == ROUTES
    assert read_routes(ROUTES.text) == ROUTES
    stated = with_routes(config("max_batch_size: 3"), ROUTES)
    assert routes_of(stated) == ROUTES
    assert stated.max_batch_size == 3
    assert with_routes(stated, NO_ROUTES) == config("max_batch_size: 3")
    assert routes_of(config()) is None
    assert read_routes("{}") == NO_ROUTES


def test_weights_of_labels_and_numbers_are_of_versions() -> None:
    routes = read_routes('{"labels": {"a": 1, "b": 1, "c": 3}, "weights": {"a": 1, "b": 2, "1": 4, "2": 0, "c": 0.5}}')
    assert routes.shares() == {1: 7, 3: 0.5}
    native = {"labels": {"a": 1, "b": 1, "c": 3}, "weights": {"1": 7, "3": 0.5}, "sticky": None}
    assert json.loads(routes.native()) == native


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ("", "expected JSON"),
        ("[" * 5000, "expected JSON"),
        ("[]", "expected an object, as in {"),
        (" " * 20000, "more than 16384 characters"),
        ({"label": {}}, "'label' is not known there, expected 'labels', 'weights' or 'sticky'"),
        ({"labels": []}, "'labels': expected an object"),
        ({"weights": {str(number): 1 for number in range(1, 66)}}, "'weights': 65 entries, expected at most 64"),
        ({"labels": {"1": 1}}, "label '1' has to begin with a letter"),
        ({"labels": {"a b": 1}}, "label 'a b' has to begin with a letter"),
        ({"labels": {"a" * 65: 1}}, "64 at most"),
        ({"labels": {"é": 1}}, "has to begin with a letter"),
        ({"labels": {"a": 0}}, "label 'a' names 0, expected the number of a version"),
        ({"labels": {"a": True}}, "label 'a' names True"),
        ({"labels": {"a": "1"}}, "label 'a' names '1'"),
        ({"labels": {"a": 2**63}}, "label 'a' names"),
        ({"weights": {"a": 1}}, "a weight is for 'a', expected one of the labels, or a version's number"),
        ({"weights": {"9" * 5000: 1}}, "a weight is for '9"),
        ({"weights": {"0": 1}}, "a weight is for '0'"),
        ({"weights": {"1": -1}}, "the weight of '1' is -1, expected a number from 0 to 1000000000"),
        ({"weights": {"1": True}}, "the weight of '1' is True"),
        ('{"weights": {"1": NaN}}', "the weight of '1' is nan"),
        ('{"weights": {"1": 1e400}}', "the weight of '1' is inf"),
        ({"weights": {"1": 0, "2": 0}}, "all weights are 0"),
        ({"sticky": 5}, "'sticky' is 5, expected the name of a parameter or header"),
        ({"sticky": "a b"}, "'sticky' is 'a b'"),
        ({"sticky": 0}, "'sticky' is 0"),
        ({"sticky": []}, "'sticky' is []"),
    ],
)
def test_what_makes_no_sense_is_refused(stated: object, said: str) -> None:
    text = stated if isinstance(stated, str) else json.dumps(stated)
    with pytest.raises(ConfigInvalid) as refusal:
        read_routes(text)
    assert said in str(refusal.value)
    assert str(refusal.value).startswith(f"parameter '{VERSIONS}'")


@pytest.mark.parametrize(
    ("stated", "what"),
    [
        ({"labels": {"stable": 3}}, "label 'stable' is for version 3, and the versions that are served are 1, 2"),
        ({"weights": {"1": 1, "3": 1}}, "the weight of '3' is for version 3"),
    ],
)
def test_a_version_that_is_not_served_is_named(stated: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigInvalid, match="version_policy says which") as refusal:
        check_routes(with_routes(config(), read_routes(json.dumps(stated))), {1, 2})
    assert what in str(refusal.value)
    check_routes(config(), ())
    check_routes(with_routes(config(), ROUTES), {1, 2})


def test_labels_are_no_numbers() -> None:
    assert all(map(is_label, ["a", "A1", "_", "v1.2-rc_3", "a" * 64]))
    assert not any(map(is_label, ["", "1", "1a", "-", "-1", "a b", "a/b", "é", "a\n", "a" * 65]))


def test_a_file_keeps_them_with_what_was_before(tmp_path: Path) -> None:
    assert read_kept(tmp_path) is None
    before = VersionRoutes(labels={"stable": 1})
    for kept in (Kept(ROUTES, before), Kept(NO_ROUTES, ROUTES), Kept(ROUTES)):
        keep(tmp_path, kept)
        assert read_kept(tmp_path) == kept
    assert [file.name for file in tmp_path.iterdir()] == [KEPT]


def test_as_much_as_can_be_stated_can_be_kept(tmp_path: Path) -> None:
    labels = {f"{number:02}".rjust(64, "x"): 10**18 + number for number in range(64)}
    routes = read_routes(
        json.dumps({"labels": labels, "weights": dict.fromkeys(labels, 0.1 + 0.2), "sticky": "s" * 64})
    )
    keep(tmp_path, Kept(routes, routes))
    assert read_kept(tmp_path) == Kept(routes, routes)
    stated = with_routes(config(), routes)
    assert routes_of(stated) == routes


@pytest.mark.parametrize("text", ["", "[]", '{"weights": 5}', '{"before": {"labels": 1}}', "\udcff"])
def test_a_file_that_makes_no_sense_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / KEPT).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigInvalid, match=f"^file '{KEPT}'"):
        read_kept(tmp_path)


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="cannot be written, so that nothing changes"):
        keep(tmp_path / "missing", Kept(ROUTES))
