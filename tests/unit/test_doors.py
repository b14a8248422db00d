import os
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from runners import ConfigInvalid, Engine
from runners.doors import DOORS, Tcp, Unix, exposed
from runners.settings import Doors, GrpcDoors, HttpDoors, LocalDoor, MetricsDoor, ServerSettings
from tests.serving import free_port


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
    port = free_port()
    Tcp("127.0.0.1", port).probe()
    Tcp("127.0.0.1", port).probe()
    socket.create_server(("127.0.0.1", port)).close()


def test_port_zero_is_always_free() -> None:
    Tcp("127.0.0.1", 0).probe()


def test_a_port_in_use_is_refused_in_the_words_of_the_core(taken: int) -> None:
    with pytest.raises(
        ConfigInvalid, match=rf"^Socket '127\.0\.0\.1:{taken}' already in use: choose another port, or "
    ):
        Tcp("127.0.0.1", taken).probe()


def test_a_port_is_shared_only_when_both_want_it(taken: int) -> None:
    with pytest.raises(ConfigInvalid, match="already in use"):
        Tcp("127.0.0.1", taken, reuse_port=True).probe()
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as listener:
        Tcp("127.0.0.1", listener.getsockname()[1], reuse_port=True).probe()
        with pytest.raises(ConfigInvalid, match="already in use"):
            Tcp("127.0.0.1", listener.getsockname()[1]).probe()


def test_an_address_of_another_machine_is_refused_without_numbers() -> None:
    with pytest.raises(ConfigInvalid, match=r"^cannot listen on 192\.0\.2\.1:9: [A-Za-z ]+$"):
        Tcp("192.0.2.1", 9).probe()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match=r"^cannot listen on \[:9: [A-Za-z ]+$"):
        Tcp("[", 9).probe()


def test_a_path_may_be_free_or_left_behind(path: str) -> None:
    Unix(path).probe()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    Unix(path).probe()
    assert Path(path).is_socket()


def test_a_socket_in_use_is_refused(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        with pytest.raises(ConfigInvalid, match=r"^Socket 'door' already in use: choose another path, or stop what"):
            Unix(path).probe()


def test_a_socket_whose_owner_is_too_busy_to_accept_is_in_use(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
        listener.bind(path)
        listener.listen(0)
        waiting.connect(path)
        with pytest.raises(ConfigInvalid, match="already in use"):
            Unix(path).probe()


def test_a_file_is_not_taken_for_a_socket_left_behind(path: str) -> None:
    Path(path).write_text("precious")
    with pytest.raises(ConfigInvalid, match=r"^cannot listen on the socket door: it exists and is not a socket$"):
        Unix(path).probe()
    assert Path(path).read_text() == "precious"


def test_a_socket_needs_a_directory(path: str) -> None:
    with pytest.raises(ConfigInvalid, match=re.escape("socket nowhere/door: 'nowhere' is not a directory")):
        Unix(f"nowhere/{path}").probe()


def test_a_path_that_no_socket_can_have_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="path too long"):
        Unix(os.path.join(".", "x" * 200)).probe()  # noqa: PTH118 - as a user writes it


def places(settings: Doors) -> list[Tcp | Unix | None]:
    return [door.place(settings) for door in DOORS]


def test_the_doors_that_a_server_has_unless_it_is_told_otherwise() -> None:
    doors = ServerSettings().open_doors
    assert places(doors) == [Tcp("0.0.0.0", 8001), None, None, Tcp("0.0.0.0", 8000), None, None, Tcp("0.0.0.0", 8002)]


def test_each_door_is_where_its_settings_want_it() -> None:
    settings = Doors(
        http=HttpDoors(address="::1", port=1, reuse_port=True, socket="h"),
        grpc=GrpcDoors(enabled=True, port=4, reuse_port=True, socket="g", handover="o"),
        local=LocalDoor(socket="l"),
        metrics=MetricsDoor(port=2),
    )
    http, grpc = [Tcp("::1", 1, reuse_port=True), Unix("h")], [Tcp("0.0.0.0", 4, reuse_port=True), Unix("g")]
    assert places(settings) == [*grpc, Unix("o"), *http, Unix("l"), Tcp("::1", 2)]
    assert places(Doors(grpc=GrpcDoors(enabled=True)))[0] == Tcp("0.0.0.0", 8001)
    elsewhere = replace(settings, metrics=MetricsDoor(address="127.0.0.1", port=3, tls=True))
    assert places(elsewhere)[-1] == Tcp("127.0.0.1", 3, tls=True)
    closed = Doors(http=HttpDoors(enabled=False), metrics=MetricsDoor(enabled=False))
    assert places(closed) == [None] * len(DOORS)


def test_one_address_is_for_all_ports_that_do_not_state_their_own() -> None:
    doors = Doors(address="127.0.0.1", grpc=GrpcDoors(enabled=True))
    assert {place.address for place in places(doors) if isinstance(place, Tcp)} == {"127.0.0.1"}
    assert exposed(doors) is None
    beside = replace(doors, http=HttpDoors(address="127.0.0.2"))
    assert [place.address for place in places(beside) if isinstance(place, Tcp)] == [
        *("127.0.0.1", "127.0.0.2", "127.0.0.2"),
    ]
    assert exposed(beside) is None


@pytest.mark.parametrize(
    ("doors", "text"),
    [
        (
            Doors(http=HttpDoors(address="127.0.0.1"), grpc=GrpcDoors(enabled=True)),
            "gRPC listens on 0.0.0.0, and HTTP on 127.0.0.1 alone: --address=127.0.0.1 is for all ports",
        ),
        (
            Doors(grpc=GrpcDoors(enabled=True, address="127.0.0.1")),
            "HTTP listens on 0.0.0.0, and gRPC on 127.0.0.1 alone: --address=127.0.0.1 is for all ports",
        ),
        (Doors(http=HttpDoors(address="127.0.0.1"), grpc=GrpcDoors(enabled=False)), None),
        (Doors(http=HttpDoors(address="127.0.0.1"), grpc=GrpcDoors(enabled=True, address="0.0.0.0")), None),
        (Doors(http=HttpDoors(address="0.0.0.0"), grpc=GrpcDoors(enabled=True)), None),
        (Doors(grpc=GrpcDoors(enabled=True)), None),
    ],
)
def test_a_port_that_is_open_to_more_than_the_other_is_told(doors: Doors, text: str | None) -> None:
    assert exposed(doors) == text


def test_what_keeps_a_door_from_opening_is_told_before_and_when_it_opens(path: str, taken: int) -> None:
    settings = Doors(
        http=HttpDoors(address="127.0.0.1", port=taken, socket=path),
        grpc=GrpcDoors(enabled=True, address="127.0.0.1", port=taken, socket=path, handover=path),
        local=LocalDoor(socket=path),
        metrics=MetricsDoor(port=taken),
    )
    starts = [
        f"failed to start gRPC service at 127.0.0.1:{taken}",
        "failed to start gRPC service at door",
        "failed to start gRPC's handover at door",
        f"failed to start HTTP service at 127.0.0.1:{taken}",
        "failed to start HTTP service at door",
        "failed to start the local service at door",
        f"failed to start Metrics service at 127.0.0.1:{taken}",
    ]
    with socket.socket(socket.AF_UNIX) as listener, Engine() as engine:
        listener.bind(path)
        listener.listen()
        for door, start in zip(DOORS, starts, strict=True):
            for attempt in (partial(door.probe, settings), partial(door.open, engine, settings)):
                with pytest.raises(ConfigInvalid, match=f"^{re.escape(start)}: .*already in use"):
                    attempt()


def test_an_open_door_is_told_with_its_place(path: str) -> None:
    settings = Doors(
        http=HttpDoors(address="127.0.0.1", port=0, socket=path),
        grpc=GrpcDoors(enabled=True, address="127.0.0.1", port=0, socket=f"{path}-3", handover=f"{path}-4"),
        local=LocalDoor(socket=f"{path}-2"),
        metrics=MetricsDoor(port=0),
    )
    with Engine() as engine:
        lines = [str(door.open(engine, settings)) for door in DOORS]
    assert [re.sub(r":[1-9]\d*$", ":PORT", line) for line in lines] == [
        "Started GRPCInferenceService at 127.0.0.1:PORT",
        "Started GRPCInferenceService at unix://door-3",
        "Started GRPCInferenceService for connections of others at unix://door-4",
        "Started HTTPService at 127.0.0.1:PORT",
        "Started HTTPService at unix://door",
        "Started LocalService at unix://door-2",
        "Started Metrics Service at 127.0.0.1:PORT",
    ]


@pytest.mark.parametrize(
    ("one", "other", "collides"),
    [
        (Tcp("127.0.0.1", 8000), Tcp("127.0.0.1", 8000), True),
        (Tcp("0.0.0.0", 8000), Tcp("127.0.0.1", 8000), True),
        (Tcp("127.0.0.2", 8000), Tcp("127.0.0.1", 8000), False),
        (Tcp("127.0.0.1", 8001), Tcp("127.0.0.1", 8000), False),
        (Tcp("127.0.0.1", 0), Tcp("127.0.0.1", 0), False),
        (Tcp("localhost", 8000), Tcp("127.0.0.1", 8000), True),
        (Tcp("0.0.0.0", 8000), Tcp("::1", 8000), False),
    ],
)
def test_two_places_of_one_port_collide(one: Tcp, other: Tcp, collides: bool) -> None:
    assert one.collides(other) == other.collides(one) == collides
