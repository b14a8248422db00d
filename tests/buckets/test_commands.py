"""What commands make of repositories in buckets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from runners.cli import main
from tests import models
from tests.buckets.test_s3 import put

if TYPE_CHECKING:
    from pathlib import Path

    from tests.buckets.stores import S3, Faults


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main([*words]))
    return int(ended.value.code or 0)


def test_check_reads_what_is_small(s3: S3, faults: Faults, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(s3, "m", 1)
    put(s3, "wrong", 1, config="max_batch_size: 4\nnam: 1")
    s3.put("repository/large/1/model.onnx", models.large(4_000_000).SerializeToString())
    url = s3.url(port=faults.port)
    assert run("check", url) == 1
    assert capsys.readouterr().out.splitlines() == [
        "large: served, onnxruntime, version 1",
        "m: served, onnxruntime, version 1",
        f"wrong: not served: {url}/wrong/config.pbtxt:2:1: ModelConfig has no field 'nam', did you mean 'name'?",
    ]
    assert not any("large/1" in request for request in faults.requests)
    assert not [*(tmp_path / "cache/kushi/buckets/served").iterdir()]


def test_check_names_each_problem_by_url(s3: S3, capsys: pytest.CaptureFixture[str]) -> None:
    put(s3, "m", 1, config='max_batch_size: 4\nbackend: "caffe2"')
    assert run("check", "--format=json", s3.url()) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert all(problem["text"].startswith(f"{s3.url()}/m/config.pbtxt:") for problem in row["problems"])
    assert [problem["line"] for problem in row["problems"]] == [2]


def test_check_loads(s3: S3, capsys: pytest.CaptureFixture[str]) -> None:
    put(s3, "m", 1)
    assert run("check", "--load", s3.url()) == 0
    assert capsys.readouterr().out == "m: loads, onnxruntime, version 1: INPUT0 INT32 [-1, 1] → OUTPUT0 INT32 [-1, 1]\n"


def test_config_shows_that_of_a_model(s3: S3, capsys: pytest.CaptureFixture[str]) -> None:
    put(s3, "m", 1)
    assert run("config", f"{s3.url()}/m", "--format=json") == 0
    assert json.loads(capsys.readouterr().out)["backend"] == "onnxruntime"


def test_a_dry_run_names_its_models(s3: S3, capsys: pytest.CaptureFixture[str]) -> None:
    put(s3, "m", 1)
    flags = ("--http-port=0", "--allow-grpc=false", "--allow-metrics=false")
    assert run("serve", "--dry-run", s3.url(), *flags) == 0
    assert capsys.readouterr().out.splitlines()[0] == "m: served, onnxruntime, version 1"


def test_a_bucket_that_cannot_be_read_is_an_error(s3: S3, capsys: pytest.CaptureFixture[str]) -> None:
    s3.put("other/file", b"")
    assert run("check", s3.url("nothing")) == 2
    assert "not found: there is no model in it" in capsys.readouterr().err


def test_a_model_that_cannot_be_read_is_told_beside_the_others(
    s3: S3, faults: Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    put(s3, "m", 1)
    put(s3, "secret", 1, config="max_batch_size: 4")
    faults.fault = lambda request: "denied" if "secret/config" in request else ""
    assert run("check", s3.url(port=faults.port)) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == "m: served, onnxruntime, version 1"
    assert second.startswith("secret: not served: ")
    assert "'secret/config.pbtxt' cannot be read: the store refuses" in second
