import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.doors import probe_tcp, probe_unix
from runners.errors import ConfigInvalid


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens"""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Short enough for a Unix socket, wherever the tests' folders lie"""
    monkeypatch.chdir(tmp_path)
    return "door"


def test_a_free_port_stays_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    probe_tcp("127.0.0.1", port)
    probe_tcp("127.0.0.1", port)
    socket.create_server(("127.0.0.1", port)).close()


def test_port_zero_is_always_free() -> None:
    probe_tcp("127.0.0.1", 0)


def test_a_port_in_use_is_refused_in_the_words_of_the_core(taken: int) -> None:
    with pytest.raises(
        ConfigInvalid, match=rf"^Socket '127\.0\.0\.1:{taken}' already in use: choose another port, or "
    ):
        probe_tcp("127.0.0.1", taken)


def test_a_port_is_shared_only_when_both_want_it(taken: int) -> None:
    with pytest.raises(ConfigInvalid, match="already in use"):
        probe_tcp("127.0.0.1", taken, reuse_port=True)
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as listener:
        probe_tcp("127.0.0.1", listener.getsockname()[1], reuse_port=True)
        with pytest.raises(ConfigInvalid, match="already in use"):
            probe_tcp("127.0.0.1", listener.getsockname()[1])


def test_an_address_of_another_machine_is_refused_without_numbers() -> None:
    with pytest.raises(ConfigInvalid, match=r"^cannot listen on 192\.0\.2\.1:9: [A-Za-z ]+$"):
        probe_tcp("192.0.2.1", 9)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match=r"^cannot listen on \[:9: [A-Za-z ]+$"):
        probe_tcp("[", 9)


def test_a_path_may_be_free_or_left_behind(path: str) -> None:
    probe_unix(path)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    probe_unix(path)
    assert Path(path).is_socket()


def test_a_socket_in_use_is_refused(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        with pytest.raises(ConfigInvalid, match=r"^Socket 'door' already in use: choose another path, or stop what"):
            probe_unix(path)


def test_a_socket_whose_owner_is_too_busy_to_accept_is_in_use(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
        listener.bind(path)
        listener.listen(0)
        waiting.connect(path)
        with pytest.raises(ConfigInvalid, match="already in use"):
            probe_unix(path)


def test_a_file_is_not_taken_for_a_socket_left_behind(path: str) -> None:
    Path(path).write_text("precious")
    with pytest.raises(ConfigInvalid, match=r"^cannot listen on the socket door: it exists and is not a socket$"):
        probe_unix(path)
    assert Path(path).read_text() == "precious"


def test_a_socket_needs_a_directory(path: str) -> None:
    with pytest.raises(ConfigInvalid, match=re.escape("socket nowhere/door: 'nowhere' is not a directory")):
        probe_unix(f"nowhere/{path}")


def test_a_path_that_no_socket_can_have_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="path too long"):
        probe_unix(os.path.join(".", "x" * 200))  # noqa: PTH118 - as a user writes it
