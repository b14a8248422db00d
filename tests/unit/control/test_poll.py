"""What polling makes of a repository that changes: look by look, without waiting for its clock"""

import shutil
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from runners import Engine, EngineOptions, ModelOptions, ModelUnavailable
from tests import models
from tests.held import hold_file
from tests.unit.control.polled import ALL, Polled, answer, polled, write_twice, write_version
from tests.unit.controlled import index, plus, rows
from tests.waiting import eventually


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
