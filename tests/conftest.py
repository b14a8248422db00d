"""Servers for the tests: a shared one over the standard repository, and one's own where a test needs it."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tests import accelerators, models, standard
from tests.raw_http import Connection
from tests.run import order, tiers
from tests.run.files import Files
from tests.run.record import Record
from tests.run.second_look import Deaths, SecondLook, note_lateness
from tests.serving import Server
from tests.skips import pytest_terminal_summary

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

__all__ = ["StartServer", "pytest_terminal_summary"]


class StartServer(Protocol):
    """Starts a server that ends with the test."""

    def __call__(self, repository: Path | None, *arguments: str, ready: bool = True) -> Server: ...


SERVERS = pytest.StashKey[list[Server]]()


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Commands and servers send the package's log elsewhere, for as long as their process lives."""
    before = {logger: (logger.handlers[:], logger.level, logger.propagate) for logger in _loggers()}
    yield
    for logger in _loggers():
        handlers, level, propagate = before.get(logger, ([], logging.NOTSET, True))
        logger.handlers[:] = handlers
        logger.propagate = propagate
        if logger.level != level:
            logger.setLevel(level)


@pytest.fixture(autouse=True)
def signals_as_they_were() -> Iterator[None]:
    """What a test leaves of a server's handlers ends the process at a signal of another test."""
    before = _handlers()
    yield
    after = _handlers()
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == before, "the test leaves handlers of signals behind"


def _handlers() -> dict[signal.Signals, Any]:
    return {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.items()
    return [one for name, one in known if isinstance(one, logging.Logger) and name.partition(".")[0] == "runners"]


@pytest.fixture(scope="session")
def standard_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standard.standard_repository(tmp_path_factory.mktemp("standard_repository"))


@pytest.fixture(scope="session")
def standard_server(standard_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    socket = tmp_path_factory.mktemp("standard") / "http"
    server = Server.start(standard_repository, f"--http-socket={socket}")
    server.http_socket = str(socket)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def explicit_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the model add_sub, which is not loaded."""
    repository = tmp_path_factory.mktemp("explicit_repository")
    models.write_add_sub(repository)
    server = Server.start(repository, "--model-control-mode=explicit")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def region_server(standard_repository: Path) -> Iterator[Server]:
    """A server over the standard repository that lets clients register shared memory, and sees no GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        server = Server.start(standard_repository, "--allow-client-shm=true")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def server(standard_server: Server, request: pytest.FixtureRequest) -> Iterator[Server]:
    """The shared server, which must be alive before and after every test that used it."""
    request.node.stash.setdefault(SERVERS, []).append(standard_server)
    assert standard_server.process.poll() is None, "the shared server died earlier"
    yield standard_server
    assert standard_server.process.poll() is None, "this test ended the shared server"


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    with server.connect() as opened:
        yield opened


@pytest.fixture(params=["tcp", "unix"])
def either(server: Server, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A connection to the port, and in another test one to the Unix socket."""
    with Connection(server.http if request.param == "tcp" else server.http_socket) as opened:
        yield opened


@pytest.fixture
def start_server(request: pytest.FixtureRequest) -> Iterator[StartServer]:
    started: list[Server] = request.node.stash.setdefault(SERVERS, [])

    def start(repository: Path | None, *arguments: str, ready: bool = True) -> Server:
        server = Server.start(repository, *arguments, ready=ready)
        started.append(server)
        return server

    yield start
    # at once: what it still has to do is of no use any more
    for server in started:
        server.kill()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An empty repository of the test's own."""
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    for module in (accelerators, tiers, order):
        module.add_options(parser)


# before pytest's own plugins read what is decided here
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    order.choose(config)
    is_first = not hasattr(config, "workerinput")
    plugins: list[object] = [tiers.Fence(), Record.wanted(config)]
    if is_first:
        plugins += [Deaths(config), SecondLook.wanted()]
    for plugin in filter(None, plugins):
        config.pluginmanager.register(plugin)
    # A run in the background of a script, or under nohup, ignores signals, and so would the processes of the tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        # a handler is not inherited
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return tiers.is_of_other_tiers(collection_path, config) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    accelerators.mark_skipped(config, items)
    tiers.select(config, items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Files | None:  # noqa: ANN401 - as it comes
    return Files(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the end of the logs of the servers that a failed test talked to."""
    report = yield
    note_lateness(item, call, report)
    if report.failed:
        for server in item.stash.get(SERVERS, []):
            text = "\n".join(server.log.lines[-60:])
            report.sections.append((f"log of server {server.pid}", text))
    return report
