from pathlib import Path
from typing import cast

import kushi_native
import pytest

from runners.backends.onnxruntime.batch_sizes import BatchSizes
from runners.backends.onnxruntime.options import SessionOptions
from runners.backends.onnxruntime.sessions import Sessions
from runners.backends.onnxruntime.values import Provider
from runners.errors import ConfigInvalid


class Opened:
    """Takes the place of a session: what it was opened with"""

    def __init__(self, options: SessionOptions) -> None:
        self.options = options


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    """Every session that is opened, without one"""
    sessions: list[Opened] = []

    def open_(options: SessionOptions, _: Path) -> Opened:
        sessions.append(Opened(options))
        return sessions[-1]

    monkeypatch.setattr(SessionOptions, "open", open_)
    return sessions


def assembled(
    places: list[int | None], *, threads: int = 0, probe: int | None = None, profile: str | None = None
) -> list[tuple[int, tuple[str, ...], str | None]]:
    """Which session each instance has, on which providers, and where its profile goes"""
    options = SessionOptions(threads, 0, parallel=False, graph_level=99, profile=profile)
    providers = {gpu: () if gpu is None else (Provider("cuda", (("device_id", str(gpu)),)),) for gpu in places}
    sessions = Sessions(Path("m.onnx"), options, providers, own_threads=threads > 1)
    sessions.probe(places, probe)
    made = cast("list[Opened]", sessions.open(places, threads or 1))
    numbers = {id(session): number for number, session in enumerate(dict.fromkeys(made))}
    return [
        (
            numbers[id(session)],
            tuple(value for provider in session.options.providers for _, value in provider.options),
            session.options.profile,
        )
        for session in made
    ]


def test_instances_on_the_cpu_share_the_session_that_looked_at_the_model(opened: list[Opened]) -> None:
    assert assembled([None, None, None]) == [(0, (), None)]
    assert len(opened) == 1


def test_instances_with_threads_of_their_own_have_a_session_each(opened: list[Opened]) -> None:
    assert assembled([None, None], threads=3) == [(0, (), None), (1, (), None)]
    assert [session.options.intra_op_threads for session in opened] == [3, 3]


def test_each_instance_on_a_gpu_has_a_session_beside_the_one_of_the_cpu(opened: list[Opened]) -> None:
    made = assembled([0, 0, 1, None, None])
    assert made == [(0, ("0",), None), (1, ("0",), None), (2, ("1",), None), (3, (), None), (3, (), None)]
    assert len(opened) == 4


def test_the_session_that_looked_at_the_model_on_a_gpu_serves_there(opened: list[Opened]) -> None:
    assert assembled([0, 0], probe=0) == [(0, ("0",), None), (1, ("0",), None)]
    assert len(opened) == 2


def test_profiles_are_of_the_sessions_that_serve(opened: list[Opened]) -> None:
    assert assembled([None, 0], profile="/p/m_1") == [(0, (), "/p/m_1_0"), (1, ("0",), "/p/m_1_1")]
    assert opened[0].options.profile is None


def of_sizes(
    monkeypatch: pytest.MonkeyPatch, places: list[int | None], sizes: BatchSizes, *, gpu: bool = True
) -> tuple[list[list[int]], list[int]]:
    """The rows of the sessions of each instance, and of the batches that were run beforehand"""
    made: list[list[int]] = []
    rehearsed: list[int] = []

    def of_rows(sessions: dict[int, Opened]) -> Opened:
        made.append(sorted(sessions))
        return sessions[max(sessions)]

    monkeypatch.setattr(kushi_native.OnnxModel, "of_rows", of_rows)
    providers = {place: (Provider("cuda", ()),) if gpu else () for place in places}
    sessions = Sessions(
        Path("m.onnx"), SessionOptions(0, 0, parallel=False, graph_level=99), providers, own_threads=False
    )
    sessions.probe(places, places[0])
    sessions.open(places, 1, sizes=lambda _: sizes, rehearse=lambda _, rows: rehearsed.append(rows))
    return made, rehearsed


def test_each_instance_on_a_gpu_has_a_session_for_each_size(
    opened: list[Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, rehearsed = of_sizes(monkeypatch, [0, 0], BatchSizes((1, 4, 16)))
    assert made == [[1, 4, 16], [1, 4, 16]]
    assert rehearsed == [16, 4, 1, 16, 4, 1]
    assert len(opened) == 6, "the session that looked at the model serves as well"


def test_instances_on_the_cpu_share_those_of_all_sizes(opened: list[Opened], monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_sizes(monkeypatch, [None, None], BatchSizes((1, 4), stated=True), gpu=False) == ([[1, 4]], [])
    assert len(opened) == 2


@pytest.mark.parametrize("stated", [False, True])
def test_a_size_that_finds_no_memory_is_left_out_unless_it_was_asked_for(
    opened: list[Opened], monkeypatch: pytest.MonkeyPatch, stated: bool
) -> None:
    open_ = SessionOptions.open

    def limited(options: SessionOptions, path: Path) -> object:
        if len(opened) == 2:
            raise ConfigInvalid("onnx model 'm.onnx' cannot be loaded: out of memory")
        return open_(options, path)

    monkeypatch.setattr(SessionOptions, "open", limited)
    if stated:
        with pytest.raises(ConfigInvalid, match="out of memory"):
            of_sizes(monkeypatch, [0], BatchSizes((1, 4, 16), stated=True))
    else:
        assert of_sizes(monkeypatch, [0], BatchSizes((1, 4, 16))) == ([[4, 16]], [16, 4])
