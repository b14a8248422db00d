"""A listener that hears of no new clients, and what circus has for that to happen at the right moment."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from tornado.ioloop import IOLoop

from runners.bento.closing import close_without_reset, drop_new_clients, waiting_clients
from tests.bentoml_internals import Arbiter
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["127.0.0.1", "::1"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        made = socket.create_server((request.param, 0), family=family)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with made:
        yield made


def connect(listener: socket.socket, patience: float) -> socket.socket:
    client = socket.socket(listener.family)
    client.settimeout(patience)
    try:
        client.connect(listener.getsockname())
    except OSError:
        client.close()
        raise
    return client


def test_who_was_greeted_before_is_served_and_who_comes_later_is_not_heard(listener: socket.socket) -> None:
    with connect(listener, 5.0) as early:
        assert waiting_clients(listener) == 1
        assert drop_new_clients(listener)
        with pytest.raises(TimeoutError):
            connect(listener, 0.2)
        early.sendall(b"hello")
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.recv(5) == b"hello"
            accepted.sendall(b"bye")
            assert early.recv(3) == b"bye"
        assert waiting_clients(listener) == 0


def test_who_comes_meanwhile_is_refused_when_it_closes(listener: socket.socket) -> None:
    drop_new_clients(listener)
    with socket.socket(listener.family) as late:
        late.setblocking(False)
        late.connect_ex(listener.getsockname())
        listener.close()
        eventually(lambda: late.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0, "the client hears of it")


def test_where_no_filter_can_be_had_that_is_in_the_log(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # none of the kernel's
    monkeypatch.setattr("runners.bento.closing._PROGRAM", [(0xFFFF, 0, 0, 0)])
    assert not drop_new_clients(listener)
    expected = "clients that connect while the service ends may be reset: no filter, [Errno 22] Invalid argument"
    assert caplog.messages == [expected]


def test_a_unix_socket_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("door")
        listener.listen()
        assert not drop_new_clients(listener)


def test_a_supervisor_that_goes_on_hears_of_new_clients_again(
    monkeypatch: pytest.MonkeyPatch, listener: socket.socket
) -> None:
    class Busy:
        def __init__(self) -> None:
            self.sockets = {"one": listener}

    def stop(_self: Busy) -> None:
        raise ValueError("it does something else")

    monkeypatch.setattr(Arbiter, "stop", stop)
    close_without_reset()
    with pytest.raises(ValueError, match="something else"):
        Arbiter.stop(Busy())
    connect(listener, 5.0).close()


def test_the_supervisor_closes_its_listeners_before_it_tells_its_workers(
    monkeypatch: pytest.MonkeyPatch, listener: socket.socket
) -> None:
    steps = []

    class Stopped:
        def __init__(self) -> None:
            self.sockets = {"one": listener}
            self.loop = IOLoop(make_current=False)

    def stop(self: Stopped) -> None:
        with pytest.raises(TimeoutError):
            connect(listener, 0.2)
        steps.append(self)

    monkeypatch.setattr(Arbiter, "stop", stop)
    close_without_reset()
    close_without_reset()
    stopped = Stopped()
    Arbiter.stop(stopped)
    assert steps == [stopped]

    def is_closed() -> bool:
        stopped.loop.run_sync(lambda: None)
        return listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0

    eventually(is_closed, "the listener closes when nobody waits")
    stopped.loop.close()
    with pytest.raises(ConnectionRefusedError):
        connect(listener, 5.0)
