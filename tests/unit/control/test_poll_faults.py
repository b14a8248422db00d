"""Polling where something is away, taken back, wrong or full at the wrong moment"""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from runners import ModelUnavailable, Overloaded
from runners.control import loader, reader
from runners.control import polled as polled_files
from runners.repository import contents
from tests import models
from tests.held import HeldFile, hold_file
from tests.unit.control.polled import ALL, COUNTS, TWICE, Polled, polled, write_twice, write_version
from tests.unit.controlled import plus, rows
from tests.waiting import eventually


def test_a_repository_may_be_named_from_where_the_server_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plus(tmp_path / "models", "m", (1, 2), ALL)
    monkeypatch.chdir(tmp_path)
    with polled(Path("models")) as one:
        one.answer(version=1)
        write_version(tmp_path / "models", 2, 9)
        one.look_twice()
        assert [one.answer(), one.counts()] == [9, {"m:1": 1, "m:2": 1}]
        write_version(tmp_path / "models", 2, 8)
        one.engine.load_model("m")
        assert one.answer() == 8


def test_a_model_may_move_to_another_repository(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    plus(first, "m")
    plus(second, "stays")
    with polled(first, second) as one:
        (first / "m").rename(second / "m")
        write_version(second, 1, 6)
        one.look_twice()
        one.look()
        assert (one.answer(), one.engine.failures) == (6, {})


def test_a_folder_that_was_away_at_a_look_is_seen_to_change(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    plus(repository, "m")
    with polled(repository) as one:
        repository.rename(tmp_path / "away")
        one.look()
        (tmp_path / "away").rename(repository)
        one.look_twice()
        write_version(repository, 1, 4)
        one.look_twice()
        assert one.answer() == 4


def test_a_link_whose_target_comes_back_is_loaded(tmp_path: Path) -> None:
    repository, store = tmp_path / "models", tmp_path / "store"
    plus(store, "m")
    plus(repository, "stays")
    (repository / "m").symlink_to(store / "m")
    with polled(repository) as one:
        (store / "m").rename(store / "away")
        one.look_twice()
        assert "m" in one.engine.failures
        assert one.answer() == 1
        (store / "away").rename(store / "m")
        write_version(store, 1, 3)
        one.look_twice()
        one.look()
        assert (one.answer(), one.engine.failures) == (3, {})


def begin(one: Polled, held: HeldFile) -> None:
    """What was seen is begun, until the load asks for a file that is held"""
    control = one.engine._control

    def is_asked_for() -> bool:
        one.poll.begin_steps(control)
        return held.is_asked_for()

    eventually(is_asked_for, "the file is opened")


def test_a_change_that_is_taken_back_during_its_load_is_taken_back(tmp_path: Path) -> None:
    plus(tmp_path, "m", (1, 2), 'backend: "onnxruntime" version_policy { specific { versions: [ 1 ] } }')
    config = tmp_path / "m" / "config.pbtxt"
    old = config.read_text()
    with polled(tmp_path) as one:
        config.write_text(old.replace("[ 1 ]", "[ 2 ]"))
        control = one.engine._control
        one.poll.look(control)
        one.poll.look(control)
        with hold_file(tmp_path / "m" / "2" / "model.onnx") as held:
            begin(one, held)
            config.write_text(old)
            one.poll.look(control)
            one.poll.look(control)
        one.look()
        assert one.served() == [("m", "1")]


def test_a_load_whose_files_are_others_by_now_is_given_up_after_a_while(tmp_path: Path) -> None:
    plus(tmp_path, "m")
    with polled(tmp_path) as one:
        file = write_version(tmp_path, 1, 8) / "model.onnx"
        control = one.engine._control
        one.poll.look(control)
        one.poll.look(control)
        with hold_file(file) as held:
            begin(one, held)
            new = file.with_name(".new")
            new.write_bytes(models.plus_constant(9).SerializeToString())
            new.rename(file)
            for _ in range(3):
                one.poll.look(control)
            one.poll.begin_steps(control)
            assert one.answer() == 1
            one.now += 61
            one.poll.look(control)
            eventually(lambda: "m" in one.engine.failures, "the load is given up")
        for _ in range(20):
            one.now += 100
            one.look()
        assert (one.answer(), one.engine.failures) == (9, {})


def test_a_model_that_goes_while_it_is_loaded_is_unloaded(tmp_path: Path) -> None:
    plus(tmp_path, "stays")
    with polled(tmp_path) as one:
        plus(tmp_path, "m")
        control = one.engine._control
        one.poll.look(control)
        one.poll.look(control)
        with hold_file(tmp_path / "m" / "1" / "model.onnx") as held:
            begin(one, held)
            shutil.rmtree(tmp_path / "m")
            one.poll.look(control)
            one.poll.look(control)
            eventually(lambda: not any(row[2] == "LOADING" for row in rows(one.engine)), "the load is given up")
        one.look()
        assert one.served() == [("stays", "1")]


def test_what_could_not_be_read_for_a_moment_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plus(tmp_path, "stays")
    with polled(tmp_path) as one:
        plus(tmp_path, "m")
        with monkeypatch.context() as broken:
            broken.setattr(reader, "resolve", Mock(side_effect=OSError(24, "Too many open files")))
            one.look_twice()
        assert "Too many open files" in str(one.engine.failures["m"])
        for _ in range(3):
            one.now += 10
            one.look()
        assert (one.answer(), one.engine.failures) == (1, {})


def test_an_ensemble_that_comes_before_its_models_serves_when_they_come(tmp_path: Path) -> None:
    plus(tmp_path, "m", (1,))
    write_twice(tmp_path, "e", "m")
    with polled(tmp_path) as one:
        (tmp_path / "e" / "config.pbtxt").write_text(TWICE % "n")
        one.look_twice()
        assert one.answer("e") == 1
        assert "e" in one.engine.failures
        plus(tmp_path, "n", (5,))
        one.look_twice()
        one.look()
        assert (one.answer("e"), one.engine.failures) == (5, {})


def test_an_ensemble_of_a_model_that_is_written_waits_at_the_start(tmp_path: Path) -> None:
    plus(tmp_path, "m")
    write_twice(tmp_path, "e", "m")
    with (tmp_path / "m" / "1" / "model.onnx").open("ab"), polled(tmp_path) as one:
        assert rows(one.engine) == []
    with polled(tmp_path) as one:
        assert one.served() == [("e", "1"), ("m", "1")]


def test_what_a_program_loads_between_two_looks_stays(tmp_path: Path) -> None:
    plus(tmp_path, "m")
    with polled(tmp_path) as one:
        plus(tmp_path, "new")
        one.engine.load_model("new")
        one.poll.begin_steps(one.engine._control)
        assert one.served() == [("m", "1"), ("new", "1")]
        config = '{"backend": "onnxruntime"}'
        files = {"file:1/model.onnx": models.plus_constant(3).SerializeToString()}
        one.engine.load_model("nowhere", config=config, files=files)
        with pytest.raises(ModelUnavailable):
            one.engine.load_model("nowhere", config=config, files={"file:1/model.onnx": b"broken"})
        for _ in range(3):
            one.look()
        assert one.answer("nowhere") == 3


def test_so_many_files_are_looked_at_and_their_user_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Callable[[], str]
) -> None:
    plus(tmp_path, "m", (1, 2), ALL)
    for number in range(9):
        (tmp_path / "m" / "2" / f"a{number}").touch()
    monkeypatch.setattr(contents, "MOST", 12)
    monkeypatch.setattr(polled_files, "MOST", 12)
    with polled(tmp_path) as one:
        for _ in range(2):
            one.look()
        assert messages().count("'m': of its files and directories, 12 are looked at, and no others") == 1
        write_version(tmp_path, 1, 7)
        one.engine.load_model("m")
        assert one.answer(version=1) == 7, "nobody knows what has changed"


def test_a_thread_that_the_system_has_not_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plus(tmp_path, "m")
    with polled(tmp_path) as one:
        write_version(tmp_path, 1, 8)
        control = one.engine._control
        one.poll.look(control)
        one.poll.look(control)
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("no thread")))
            with pytest.raises(RuntimeError, match="no thread"):
                one.poll.begin_steps(control)
        one.look()
        assert one.answer() == 8


def test_a_model_that_writes_into_its_folder_is_not_loaded_without_end(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.py").write_text(COUNTS)
    with polled(tmp_path) as one:
        for _ in range(60):
            one.look()
            one.now += 1
        assert len((tmp_path / "m" / "1" / "loads").read_text()) < 9


def test_an_end_while_a_step_begins_is_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plus(tmp_path, "m")
    with polled(tmp_path) as one:
        write_version(tmp_path, 1, 8)
        control = one.engine._control
        one.poll.look(control)
        one.poll.look(control)
        start, begins, goes_on = threading.Thread.start, threading.Event(), threading.Event()

        def slow(thread: threading.Thread) -> None:
            if thread.name == "kushi-poll-step":
                begins.set()
                goes_on.wait(30)
            start(thread)

        with monkeypatch.context() as slowly:
            slowly.setattr(threading.Thread, "start", slow)
            beginning = threading.Thread(target=one.poll.begin_steps, args=(control,))
            start(beginning)
            assert begins.wait(30)
            closing = threading.Thread(target=one.engine.close)
            start(closing)
            goes_on.set()
            closing.join()
            beginning.join()
    assert not [thread for thread in threading.enumerate() if thread.name == "kushi-poll-step"]


def test_a_try_that_finds_no_thread_is_not_lost(tmp_path: Path) -> None:
    plus(tmp_path, "m")
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(b"broken")
    with polled(tmp_path, exit_on_error=False) as one:
        failure, one.poll._threads = one.engine.failures["m"], 0
        for _ in range(100):
            one.look()
            one.now += 1
        assert one.engine.failures["m"] is failure
        one.poll._threads = 2
        one.look()
        assert one.engine.failures["m"] is not failure


def test_what_is_wrong_is_read_seldom_though_other_files_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plus(tmp_path, "m")
    (tmp_path / "m" / "config.pbtxt").write_text("nonsense {")
    with polled(tmp_path, exit_on_error=False) as one:
        (tmp_path / "m" / "note.txt").touch()
        one.look_twice()
        reads = Mock(side_effect=one.engine._control.read_again)
        monkeypatch.setattr(one.engine._control, "read_again", reads)
        for _ in range(20):
            one.look()
        assert not reads.called
        one.now += 100
        one.look_twice()
        assert reads.call_count == 1


def test_an_ensemble_that_failed_for_a_moment_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plus(tmp_path, "m")
    plus(tmp_path, "n", (5,))
    write_twice(tmp_path, "e", "m")
    with polled(tmp_path) as one:
        (tmp_path / "e" / "config.pbtxt").write_text(TWICE % "n")
        with monkeypatch.context() as full:
            full.setattr(loader, "staying", Mock(side_effect=Overloaded("8 loads stand")))
            one.look_twice()
        assert "8 loads stand" in str(one.engine.failures["e"])
        one.look()
        one.now += 10
        one.look_twice()
        assert (one.answer("e"), one.engine.failures) == (5, {})
