import logging
from concurrent.futures import Future
from contextvars import copy_context
from pathlib import Path
from typing import cast

import kushi_native
import pytest

from runners.backends.onnxruntime.batch_sizes import BatchSizes
from runners.backends.onnxruntime.options import SessionOptions
from runners.backends.onnxruntime.sessions import Sessions
from runners.backends.onnxruntime.values import Provider
from runners.errors import ConfigInvalid, EngineFailed, ModelUnavailable
from runners.wanted import work_for


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


class OfRows:
    """Takes the place of an instance in sizes"""

    def __init__(self, sessions: dict[int, Opened]) -> None:
        self.sizes = sorted(sessions)


def in_sizes(
    monkeypatch: pytest.MonkeyPatch,
    places: list[int | None],
    sizes: BatchSizes,
    *,
    gpu: bool = True,
    fails: int | None = None,
) -> tuple[list[list[int]], list[int]]:
    """The sizes of each instance, none where it has a session for all, and the batches that were run beforehand"""
    rehearsed: list[int] = []

    def rehearse(_: object, rows: int) -> None:
        if rows == fails:
            raise EngineFailed("Failed to allocate memory")
        rehearsed.append(rows)

    monkeypatch.setattr(kushi_native.OnnxModel, "of_rows", OfRows)
    providers = {place: (Provider("cuda", ()),) if gpu else () for place in places}
    options = SessionOptions(0, 0, parallel=False, graph_level=99)
    sessions = Sessions(Path("m.onnx"), options, providers, own_threads=False)
    sessions.probe(places, places[0])
    made = cast("list[Opened | OfRows]", sessions.open(places, 1, sizes=lambda _: sizes, rehearse=rehearse))
    return [one.sizes if isinstance(one, OfRows) else [] for one in made], rehearsed


def test_all_instances_on_a_gpu_have_the_larger_sizes_before_one_has_a_smaller_one(
    opened: list[Opened], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        made, rehearsed = in_sizes(monkeypatch, [0, 0], BatchSizes((1, 4, 16), model="m"))
    assert (made, rehearsed) == ([[1, 4, 16], [1, 4, 16]], [16, 16, 4, 4, 1, 1])
    assert len(opened) == 6, "the session that looked at the model serves as well"
    assert "batches of 'm' run in sizes of 1, 4, 16" in caplog.text


def test_instances_on_the_cpu_share_those_of_all_sizes(opened: list[Opened], monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_sizes(monkeypatch, [None, None], BatchSizes((1, 4), stated=True), gpu=False) == ([[1, 4]], [])
    assert len(opened) == 2


def limit(monkeypatch: pytest.MonkeyPatch, opened: list[Opened], room: int) -> None:
    open_ = SessionOptions.open

    def limited(options: SessionOptions, path: Path) -> object:
        if len(opened) == room:
            raise ConfigInvalid("onnx model 'm.onnx' cannot be loaded: out of memory")
        return open_(options, path)

    monkeypatch.setattr(SessionOptions, "open", limited)


def test_sizes_that_find_no_memory_are_left_out(
    opened: list[Opened], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limit(monkeypatch, opened, 3)
    made, rehearsed = in_sizes(monkeypatch, [0, 0], BatchSizes((1, 4, 16), model="m"))
    assert (made, rehearsed) == ([[4, 16], [16]], [16, 16, 4])
    assert (
        "batches of 'm' have no size of 4 or less: onnx model 'm.onnx' cannot be loaded: out of memory" in caplog.text
    )


def test_sizes_that_are_stated_and_find_no_memory_fail_the_load(
    opened: list[Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, opened, 2)
    with pytest.raises(ConfigInvalid, match="out of memory"):
        in_sizes(monkeypatch, [0], BatchSizes((1, 4, 16), stated=True))


def test_a_size_in_which_nothing_runs_is_left_out(
    opened: list[Opened], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert in_sizes(monkeypatch, [0], BatchSizes((1, 4, 16), model="m"), fails=4) == ([[16]], [16])
    assert "batches of 'm' have no size of 4 or less: Failed to allocate memory" in caplog.text
    assert len(opened) == 2


def test_a_model_whose_largest_batch_fails_takes_batches_of_any_size(
    opened: list[Opened], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert in_sizes(monkeypatch, [0, 0], BatchSizes((1, 16), model="m"), fails=16) == ([[], []], [])
    assert "run in whatever size they have, since one of 16 fails: Failed to allocate memory" in caplog.text
    assert len(opened) == 2


def test_stated_sizes_stay_where_a_batch_of_zeros_fails(
    opened: list[Opened], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert in_sizes(monkeypatch, [0], BatchSizes((1, 16), stated=True, model="m"), fails=16) == ([[1, 16]], [1])
    assert "a batch of 'm' of 16 rows of zeros fails" in caplog.text
    assert len(opened) == 2


def test_a_load_that_was_given_up_opens_no_further_session(
    opened: list[Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> None:
        step: Future[None] = Future()
        work_for(step)
        open_ = SessionOptions.open

        def second_is_the_last(options: SessionOptions, path: Path) -> object:
            if len(opened) == 1:
                step.cancel()
            return open_(options, path)

        monkeypatch.setattr(SessionOptions, "open", second_is_the_last)
        with pytest.raises(ModelUnavailable, match="the load was given up"):
            in_sizes(monkeypatch, [0], BatchSizes((1, 4, 16)))

    copy_context().run(load)
    assert len(opened) == 2
