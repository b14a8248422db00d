"""A server under a supervisor: a pipe tells it to end, by a byte or by the supervisor's death; signals do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from tests import models
from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Output
from tests.integration.occupied import occupy
from tests.raw_http import fetch
from tests.serving import DRAINING, HTTP_LINE, ROOT, Server, command, environment
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HEADERS, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")]))
PATH = requests.path("add_sub")
WAIT_S: Final = 30.0


class Lifeline:
    """A pipe whose reading end a server inherits"""

    def __init__(self) -> None:
        self.theirs, self._ours = os.pipe()

    def say(self) -> None:
        os.write(self._ours, b"\0")

    def end(self) -> None:
        """Ends it as the death of its owner does"""
        with suppress(OSError):
            os.close(self._ours)
        self._ours = -1

    def close(self) -> None:
        self.end()
        os.close(self.theirs)


@pytest.fixture
def lifeline() -> Iterator[Lifeline]:
    lifeline = Lifeline()
    yield lifeline
    lifeline.close()


@pytest.fixture
def server(repository: Path, lifeline: Lifeline) -> Iterator[Server]:
    models.write_gated(repository)
    models.write_add_sub(repository)
    server = Server.start(repository, f"--drain-fd={lifeline.theirs}", inherited=[lifeline.theirs])
    yield server
    if server.process.poll() is None:
        server.kill()


@pytest.mark.parametrize("word", [Lifeline.say, Lifeline.end], ids=["byte", "end"])
def test_a_word_or_the_end_of_the_pipe_drains(
    server: Server, lifeline: Lifeline, word: Callable[[Lifeline], None]
) -> None:
    with occupy(server) as occupied:
        word(lifeline)
        server.log.wait_for(DRAINING, WAIT_S)
        assert not occupied.executing.has_answer()
        occupied.go_on()
        assert occupied.executing.receive().status == 200
        assert occupied.waiting.receive().status == 200
    assert server.wait() == 0
    assert "All requests are answered, exiting" in server.log.text()


def test_a_word_is_heard_once(server: Server, lifeline: Lifeline) -> None:
    with occupy(server) as occupied:
        lifeline.say()
        lifeline.say()
        lifeline.end()
        server.log.wait_for(DRAINING, WAIT_S)
        occupied.go_on()
        assert occupied.executing.receive().status == 200
        assert occupied.waiting.receive().status == 200
    assert server.wait() == 0


def test_signals_say_nothing(server: Server, lifeline: Lifeline) -> None:
    for _ in range(3):
        for number in (signal.SIGTERM, signal.SIGINT):
            server.process.send_signal(number)
    assert server.post(PATH, BODY, HEADERS).status == 200
    assert server.is_ready()
    lifeline.say()
    assert server.wait() == 0


def test_signals_do_not_end_a_server_that_drains(server: Server, lifeline: Lifeline) -> None:
    with occupy(server) as occupied:
        lifeline.say()
        server.log.wait_for(DRAINING, WAIT_S)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGINT)
        occupied.go_on()
        assert occupied.executing.receive().status == 200
        assert occupied.waiting.receive().status == 200
    assert server.wait() == 0


def test_the_exit_timeout_counts_here_too(repository: Path, lifeline: Lifeline) -> None:
    models.write_gated(repository)
    arguments = f"--drain-fd={lifeline.theirs}", "--exit-timeout-secs=1"
    server = Server.start(repository, *arguments, inherited=[lifeline.theirs])
    try:
        with occupy(server):
            lifeline.say()
            assert server.wait() != 0
    finally:
        if server.process.poll() is None:
            server.kill()


@pytest.mark.parametrize("word", [Lifeline.say, Lifeline.end], ids=["byte", "end"])
def test_a_server_that_still_loads_exits(
    repository: Path, lifeline: Lifeline, word: Callable[[Lifeline], None]
) -> None:
    for number in range(20):
        models.write_add_sub(repository, f"add_sub_{number}")
    given = [f"--model-repository={repository}", f"--drain-fd={lifeline.theirs}", "--http-port=0", "--metrics-port=0"]
    server = Server(given, [lifeline.theirs])
    try:
        word(lifeline)
        assert server.wait() == 0
        assert "Started HTTPService" not in server.log.text()
        assert "Traceback" not in server.log.text()
    finally:
        if server.process.poll() is None:
            server.kill()


def test_a_descriptor_that_is_none_is_told_of(repository: Path) -> None:
    models.write_add_sub(repository)
    server = Server([f"--model-repository={repository}", "--drain-fd=999", "--http-port=0", "--metrics-port=0"])
    try:
        assert server.wait() == 1
        assert "--drain-fd=999 cannot be read, exiting: Bad file descriptor" in server.log.text()
    finally:
        if server.process.poll() is None:
            server.kill()


PARENT: Final = """
import os, subprocess, sys, time
theirs, ours = os.pipe()
subprocess.Popen([*sys.argv[1:], f"--drain-fd={theirs}"], pass_fds=[theirs])
os.close(theirs)
time.sleep(600)
"""


def test_a_server_whose_parent_was_killed_drains_and_ends(repository: Path) -> None:
    models.write_add_sub(repository)
    given = [f"--model-repository={repository}", "--http-address=127.0.0.1", "--http-port=0", "--allow-metrics=false"]
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *command(given)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        try:
            port = int(next(match.group(1) for line in parent.stdout if (match := HTTP_LINE.search(line))))
            address = ("127.0.0.1", port)
            eventually(lambda: fetch(address, "GET", "/v2/health/ready").status == 200, "the server is ready")
            assert fetch(address, "POST", PATH, HEADERS, BODY).status == 200
        finally:
            parent.kill()
        # the pipe ends with the last process that writes to it
        assert "All requests are answered, exiting" in parent.stdout.read()
