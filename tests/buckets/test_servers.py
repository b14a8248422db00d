"""Servers, services and runners over a bucket."""

from __future__ import annotations

import signal
import subprocess
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from runners.bento import engine
from runners.triton import TritonRunner
from tests.buckets.test_s3 import put
from tests.integration.test_polling import answers, states
from tests.serving import command, environment, run_to_end
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.buckets.stores import S3, Faults
    from tests.conftest import StartServer

POLL = ("--model-control-mode=poll", "--repository-poll-secs=1")


def test_a_server_over_a_bucket(s3: S3, faults: Faults, start_server: StartServer, tmp_path: Path) -> None:
    put(s3, "m", 1)
    url = f"--model-repository={s3.url(port=faults.port)}"
    cache = f"--bucket-cache-directory={tmp_path / 'files'}"
    server = start_server(None, url, cache, *POLL)
    assert answers(server, 1)
    faults.fault = lambda _: "error"
    eventually(lambda: states(server)["m"].startswith("it is not polled: 's3://"), "the index says so")
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    assert [*(tmp_path / "files/served").iterdir()]
    again = start_server(None, url, cache)
    assert "what was listed there before counts" in again.log.text()
    assert answers(again, 1)
    assert again.stop() == 0
    assert not [*(tmp_path / "files/served").iterdir()]


def test_a_service_over_a_bucket(s3: S3) -> None:
    put(s3, "m", 1)
    with engine(s3.url()).open() as opened:
        assert opened.m.run(np.zeros((1, 1), np.int32))["OUTPUT0"].item() == 1


def test_a_runner_for_programs_of_bentoml(s3: S3) -> None:
    put(s3, "m", 1)
    runner = TritonRunner("runner", s3.url())
    assert runner.m.run(np.zeros((1, 1), np.int32))["OUTPUT0"].item() == 1


@pytest.mark.parametrize("flag", ["--bucket-cache-bytes=many", "--bucket-cache-bytes=-1"])
def test_flags_are_checked(s3: S3, flag: str) -> None:
    done = run_to_end(s3.url(), flag)
    assert done.returncode == 2
    assert "--bucket-cache-bytes: expected an integer from 0 to" in done.stdout


@pytest.mark.clock
def test_a_start_that_stalls_hears_a_signal(s3: S3, faults: Faults) -> None:
    put(s3, "m", 1)
    faults.fault = lambda _: "stall"
    words = command([s3.url(port=faults.port), "--http-port=0", "--allow-grpc=false", "--allow-metrics=false"])
    with subprocess.Popen(words, env=environment()) as process:
        eventually(lambda: bool(faults.requests), "it asks")
        begun = time.monotonic()
        process.terminate()
        process.wait(30)
        assert time.monotonic() - begun < 10
