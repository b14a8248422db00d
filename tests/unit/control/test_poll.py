"""What polling makes of a repository that changes: look by look, without waiting for its clock"""

import logging
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from runners import Engine, EngineOptions, ModelOptions, ModelUnavailable, Overloaded
from runners.control import loader, reader
from runners.control import polled as polled_files
from runners.control.poll import Poll
from runners.repository import contents
from tests import models
from tests.held import HeldFile, hold_file
from tests.unit.controlled import index, plus, rows
from tests.waiting import eventually

ALL = 'version_policy { all {} } backend: "onnxruntime"'
TWICE = """
platform: "ensemble"
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
ensemble_scheduling { step [ {
  model_name: "%s" model_version: -1
  input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" }
} ] }
"""


COUNTS = """
from pathlib import Path

class TritonPythonModel:
    def initialize(self, args):
        with Path(__file__).with_name("loads").open("a") as file:
            file.write("x")
"""


class Polled:
    """An engine whose repositories are looked at when a test says so"""

    def __init__(self, *repositories: Path, exit_on_error: bool = True) -> None:
        options = EngineOptions(
            exit_on_error=exit_on_error, models=ModelOptions(control="poll", poll_seconds=0, load_threads=2)
        )
        self.engine = Engine(*repositories, options=options)
        self.now = 0.0
        poll = self.engine._control._poll
        assert poll is not None
        self.poll: Poll = poll
        self.poll._clock = lambda: self.now
        self.poll._seconds = 1.0

    def look(self) -> None:
        """Once, and what follows from it is done"""
        self.poll.look(self.engine._control)
        eventually(lambda: not self.poll.begin_steps(self.engine._control), "all is done")

    def look_twice(self) -> None:
        """A change counts when it stands still"""
        self.look()
        self.look()

    def answer(self, model: str = "m", version: int | str = "") -> int:
        return answer(self.engine, model, version)

    def served(self) -> list[tuple[str, str]]:
        return [row[:2] for row in rows(self.engine) if row[2] == "READY"]

    def counts(self) -> dict[str, int]:
        """Requests that each version has answered"""
        stats = self.engine.statistics()["model_stats"]
        return {f"{one['name']}:{one['version']}": one["inference_stats"]["success"]["count"] for one in stats}


def answer(engine: Engine, model: str = "m", version: int | str = "") -> int:
    result = engine.infer(model, {"INPUT0": np.zeros((1, 1), np.int32)}, model_version=version)
    return int(result["OUTPUT0"][0, 0])


@contextmanager
def polled(*repositories: Path, exit_on_error: bool = True) -> Iterator[Polled]:
    one = Polled(*repositories, exit_on_error=exit_on_error)
    with one.engine:
        yield one


def write_version(repository: Path, number: int, constant: int, model: str = "m") -> Path:
    folder = repository / model / str(number)
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(models.plus_constant(constant).SerializeToString())
    return folder


def write_twice(repository: Path, name: str, step: str) -> None:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(TWICE % step)


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    caplog.set_level(logging.INFO, "runners")

    def taken() -> str:
        text = "\n".join(record.getMessage() for record in caplog.records)
        caplog.clear()
        return text

    return taken


def test_models_come_change_and_go(tmp_path: Path, messages: Callable[[], str]) -> None:
    plus(tmp_path, "stays")
    with polled(tmp_path) as one:
        plus(tmp_path, "m", (1,))
        one.look()
        assert one.served() == [("stays", "1")], "it may still be written"
        one.look()
        assert one.served() == [("m", "1"), ("stays", "1")]
        assert "'m' is new" in messages()
        file = write_version(tmp_path, 1, 5) / "model.onnx"
        one.look_twice()
        assert one.answer() == 5
        assert f"'m' has changed: '{file}'" in messages()
        shutil.rmtree(tmp_path / "m")
        one.look()
        assert one.answer() == 5, "it may be about to come back"
        one.look()
        assert one.served() == [("stays", "1")]
        eventually(lambda: index(one.engine) == [{"name": "stays", "version": "1", "state": "READY"}], "it is gone")
        assert "'m' is gone: it is unloaded" in messages()
        plus(tmp_path, "m", (2,))
        one.look_twice()
        assert one.answer() == 2


def test_a_folder_that_is_replaced_between_two_looks_is_a_change(tmp_path: Path) -> None:
    plus(tmp_path, "m", (1,))
    with polled(tmp_path) as one:
        shutil.rmtree(tmp_path / "m")
        one.look()
        plus(tmp_path, "m", (2,))
        one.look()
        assert one.answer() == 1
        one.look()
        assert one.answer() == 2


def test_versions_come_and_go_and_leave_the_others_alone(tmp_path: Path, messages: Callable[[], str]) -> None:
    plus(tmp_path, "m", (1, 2), ALL)
    with polled(tmp_path) as one:
        assert [one.answer(version=1), one.answer(version=2)] == [1, 2]
        write_version(tmp_path, 7, 7)
        messages()
        one.look_twice()
        assert one.answer() == 7
        assert one.counts() == {"m:1": 1, "m:2": 1, "m:7": 1}
        shutil.rmtree(tmp_path / "m" / "1")
        one.look_twice()
        assert one.counts() == {"m:2": 1, "m:7": 1}
        eventually(lambda: ("m", "1", "UNAVAILABLE", "unloaded") in rows(one.engine), "it is gone")
        assert [line for line in messages().splitlines() if line.startswith("loading: ")] == ["loading: m:7"]


def test_a_version_that_changes_is_loaded_again_and_no_other(tmp_path: Path, messages: Callable[[], str]) -> None:
    plus(tmp_path, "m", (1, 2), ALL)
    with polled(tmp_path) as one:
        one.answer(version=1)
        write_version(tmp_path, 2, 9)
        messages()
        one.look_twice()
        assert [one.answer(version=2), one.counts()] == [9, {"m:1": 1, "m:2": 1}]
        assert [line for line in messages().splitlines() if line.startswith("loading: ")] == ["loading: m:2"]


@pytest.mark.parametrize("file", ["labels.txt", "1/notes.txt"])
def test_what_all_versions_may_read_loads_all_of_them(tmp_path: Path, file: str) -> None:
    plus(tmp_path, "m", (1, 2), ALL)
    (tmp_path / "m" / file).write_text("a")
    with polled(tmp_path) as one:
        for version in (1, 2):
            one.answer(version=version)
        (tmp_path / "m" / file).write_text("b")
        one.look_twice()
        assert one.counts() == {"m:1": 0, "m:2": 1 if "/" in file else 0}


def test_a_policy_that_changes_leaves_alone_what_serves_before_and_after(tmp_path: Path) -> None:
    plus(tmp_path, "m", (1, 2, 3), ALL)
    config = tmp_path / "m" / "config.pbtxt"
    with polled(tmp_path) as one:
        one.answer(version=2)
        config.write_text(config.read_text().replace("all {}", "specific { versions: [ 2 ] }"))
        one.look_twice()
        assert (one.served(), one.counts()) == ([("m", "2")], {"m:2": 1})
        config.write_text(config.read_text().replace("[ 2 ]", "[ 2, 3 ]"))
        one.look_twice()
        assert (one.served(), one.counts()) == ([("m", "2"), ("m", "3")], {"m:2": 1, "m:3": 0})


def test_a_version_that_nobody_serves_loads_nothing(tmp_path: Path, messages: Callable[[], str]) -> None:
    plus(tmp_path, "m", (1, 2))
    with polled(tmp_path) as one:
        one.answer()
        shutil.rmtree(tmp_path / "m" / "1")
        one.look_twice()
        write_version(tmp_path, 1, 4)
        messages()
        one.look_twice()
        assert one.counts() == {"m:2": 1}
        assert "loading: " not in messages()
        one.look_twice()
        assert messages() == ""


def test_files_that_are_touched_load_nothing(tmp_path: Path, messages: Callable[[], str]) -> None:
    plus(tmp_path, "m")
    file = tmp_path / "m" / "1" / "model.onnx"
    with polled(tmp_path) as one:
        one.look()
        messages()
        file.touch()
        one.look_twice()
        shutil.copytree(tmp_path / "m", tmp_path / ".m")
        shutil.rmtree(tmp_path / "m")
        (tmp_path / ".m").rename(tmp_path / "m")
        one.look_twice()
        assert messages() == ""
        write_version(tmp_path, 1, 3)
        one.look_twice()
        assert one.answer() == 3


def test_a_change_that_fails_keeps_what_serves_until_it_is_mended(tmp_path: Path) -> None:
    plus(tmp_path, "m", (1, 2), ALL)
    with polled(tmp_path) as one:
        one.answer(version=1)
        (write_version(tmp_path, 2, 9) / "model.onnx").write_bytes(b"broken")
        one.look_twice()
        assert [one.answer(), one.answer(version=1)] == [2, 1]
        assert "m" in one.engine.failures
        write_version(tmp_path, 2, 9)
        one.look_twice()
        assert not one.engine.failures
        assert [one.answer(), one.counts()] == [9, {"m:1": 2, "m:2": 1}]


def test_going_back_to_what_serves_ends_the_failure(tmp_path: Path) -> None:
    plus(tmp_path, "m", (1,), ALL)
    with polled(tmp_path) as one:
        (write_version(tmp_path, 2, 2) / "model.onnx").write_bytes(b"broken")
        one.look_twice()
        assert "m" in one.engine.failures
        shutil.rmtree(tmp_path / "m" / "2")
        one.look_twice()
        assert not one.engine.failures
        assert one.served() == [("m", "1")]


def test_a_load_that_failed_is_tried_again_after_longer_and_longer_waits(tmp_path: Path) -> None:
    plus(tmp_path, "m")
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(b"broken")
    with polled(tmp_path, exit_on_error=False) as one:
        tries = []
        for _ in range(200):
            failure = one.engine.failures["m"]
            one.look()
            if one.engine.failures["m"] is not failure:
                tries.append(one.now)
            one.now += 1
        assert tries == [2.0, 7.0, 16.0, 33.0, 66.0, 127.0, 188.0]


def test_a_configuration_that_is_wrong_is_read_again_when_it_changes(tmp_path: Path) -> None:
    plus(tmp_path, "m", (1,), ALL)
    config = tmp_path / "m" / "config.pbtxt"
    right = config.read_text()
    config.write_text("nonsense {")
    with polled(tmp_path, exit_on_error=False) as one:
        failure = one.engine.failures["m"]
        for _ in range(20):
            one.now += 100
            one.look()
        assert one.engine.failures["m"] is failure
        config.write_text(right)
        one.look_twice()
        assert one.served() == [("m", "1")]


def test_what_is_being_written_is_not_read(tmp_path: Path, messages: Callable[[], str]) -> None:
    plus(tmp_path, "m")
    new = models.plus_constant(5).SerializeToString()
    with polled(tmp_path) as one:
        plus(tmp_path, "n")
        paths = [tmp_path / name / "1" / "model.onnx" for name in ("m", "n")]
        with paths[0].open("wb") as m, paths[1].open("wb") as n:
            for part in (new[:10], new[10:50], new[50:]):
                for file in (m, n):
                    file.write(part)
                    file.flush()
                for _ in range(4):
                    one.look()
                assert (one.served(), one.answer()) == ([("m", "1")], 1)
        said = messages()
        assert [said.count(f"'{path}' is being written") for path in paths] == [1, 1]
        assert "failed" not in said
        one.look()
        assert [one.answer("m"), one.answer("n")] == [5, 5]


def test_what_is_being_written_at_the_start_is_loaded_later(tmp_path: Path) -> None:
    for name in ("m", "n"):
        plus(tmp_path, name)
    file = tmp_path / "m" / "1" / "model.onnx"
    whole = file.read_bytes()
    with file.open("wb") as half:
        half.write(whole[:20])
        half.flush()
        with polled(tmp_path) as one:
            assert rows(one.engine) == [("n", "1", "READY", "")]
            half.write(whole[20:])
            half.close()
            one.look_twice()
            assert one.served() == [("m", "1"), ("n", "1")]


def test_an_ensemble_follows_its_models(tmp_path: Path) -> None:
    plus(tmp_path, "m")
    write_twice(tmp_path, "e", "m")
    with polled(tmp_path) as one:
        write_version(tmp_path, 1, 6)
        one.look_twice()
        assert one.answer("e") == 6
        (tmp_path / "m").rename(tmp_path / ".m")
        one.look_twice()
        assert one.served() == []
        (tmp_path / ".m").rename(tmp_path / "m")
        one.look_twice()
        assert one.answer("e") == 6


def test_an_ensemble_and_its_models_may_come_together(tmp_path: Path) -> None:
    plus(tmp_path, "other")
    with polled(tmp_path) as one:
        write_twice(tmp_path, "a", "b")
        write_twice(tmp_path, "b", "m")
        plus(tmp_path, "m", (3,))
        one.look_twice()
        assert one.answer("a") == 3
        for name in ("a", "b", "m"):
            shutil.rmtree(tmp_path / name)
        one.look_twice()
        assert one.served() == [("other", "1")]


def test_a_model_in_two_repositories_is_unloaded_until_it_is_in_one(
    tmp_path: Path, messages: Callable[[], str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    plus(first, "m", (1,))
    plus(second, "stays")
    with polled(first, second) as one:
        plus(second, "m", (2,))
        one.look_twice()
        assert one.served() == [("stays", "1")]
        both = [
            {"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
            {"name": "stays", "version": "1", "state": "READY"},
        ]
        eventually(lambda: index(one.engine) == both, "it is unloaded")
        one.look()
        assert messages().count("failed to poll model 'm': not unique across all model repositories") == 1
        shutil.rmtree(first / "m")
        one.look_twice()
        assert one.answer() == 2


def test_a_repository_that_cannot_be_read_has_not_changed(tmp_path: Path, messages: Callable[[], str]) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    plus(first, "m")
    plus(second, "n")
    with polled(first, second) as one:
        first.rename(tmp_path / "away")
        shutil.rmtree(second / "n")
        for _ in range(3):
            one.look()
        assert one.served() == [("m", "1")]
        assert messages().count(f"failed to poll model repository '{first}'") == 1
        (tmp_path / "away").rename(first)
        plus(first, "o")
        one.look_twice()
        assert one.served() == [("m", "1"), ("o", "1")]


def test_a_model_that_a_program_unloads_comes_back(tmp_path: Path) -> None:
    plus(tmp_path, "m")
    with polled(tmp_path) as one:
        one.engine.unload_model("m")
        assert one.served() == []
        one.look()
        assert one.served() == [("m", "1")]


def test_a_load_that_hangs_holds_up_no_other_one_and_no_end(tmp_path: Path) -> None:
    for name in ("m", "n"):
        plus(tmp_path, name)
    with polled(tmp_path) as one:
        for name in ("m", "n"):
            write_version(tmp_path, 1, 8, name)
        control = one.engine._control
        one.poll.look(control)
        with hold_file(tmp_path / "m" / "1" / "model.onnx"):
            one.poll.look(control)
            eventually(lambda: one.poll.begin_steps(control) and one.answer("n") == 8, "the other one is loaded")
            assert one.poll.begin_steps(control), "this one is not"
            assert one.answer("m") == 1
            write_version(tmp_path, 1, 9, "n")
            one.poll.look(control)
            one.poll.look(control)
            eventually(lambda: one.poll.begin_steps(control) and one.answer("n") == 9, "and again")
            one.engine.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "kushi-poll-step"]


def test_the_repositories_are_looked_at_until_nobody_refers_to_the_engine(tmp_path: Path) -> None:
    def polls() -> bool:
        return any(thread.name == "kushi-poll" for thread in threading.enumerate())

    def use() -> weakref.ref[Engine]:
        engine = Engine(tmp_path, options=EngineOptions(models=ModelOptions(control="poll", poll_seconds=0.01)))
        write_version(tmp_path, 1, 4)
        eventually(lambda: answer(engine) == 4, "the change is loaded")
        assert polls()
        return weakref.ref(engine)

    plus(tmp_path, "m")
    gone = use()
    eventually(lambda: gone() is None and not polls(), "the thread has ended")


def test_a_model_that_fails_at_the_start_ends_it(tmp_path: Path) -> None:
    plus(tmp_path, "m")
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(b"broken")
    with pytest.raises(ModelUnavailable, match="model 'm' failed to load"):
        Polled(tmp_path)


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
            full.setattr(loader, "kept", Mock(side_effect=Overloaded("8 loads stand")))
            one.look_twice()
        assert "8 loads stand" in str(one.engine.failures["e"])
        one.look()
        one.now += 10
        one.look_twice()
        assert (one.answer("e"), one.engine.failures) == (5, {})
