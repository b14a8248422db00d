import threading
from collections.abc import Iterator

import pytest

from runners.control.load import MOST_LEFT, Loads
from runners.errors import ConfigInvalid, EngineFailed, InternalError, KushiError, ModelUnavailable, Overloaded
from runners.failures import failure_of
from tests.waiting import eventually


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What work that stands still waits for; opened at the end, so that its thread goes."""
    opened = threading.Event()
    yield opened
    opened.set()


def test_a_step_answers_and_fails_as_its_work_does() -> None:
    load = Loads(0).begin("m")
    assert load.run("m", lambda: 3) == 3
    own = ConfigInvalid("as it is")
    with pytest.raises(ConfigInvalid) as raised:
        load.run("m", lambda: _raise(own))
    assert raised.value is own


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (OSError(40, "Too many levels", "/a"), ConfigInvalid, "/a: Too many levels"),
        (OSError("as text"), ConfigInvalid, "m: as text"),
        (TimeoutError(110, "Connection timed out"), ConfigInvalid, "m: Connection timed out"),
        (MemoryError(), EngineFailed, "m: there is not enough memory to load it"),
        (RecursionError("too deep"), InternalError, "m: RecursionError: too deep"),
        (ValueError("embedded null byte"), InternalError, "m: ValueError: embedded null byte"),
        (SystemExit("enough"), InternalError, "m: SystemExit: enough"),
        (KeyboardInterrupt(), InternalError, "m: KeyboardInterrupt: "),
    ],
)
def test_whatever_is_raised_becomes_a_failure_of_the_load(
    error: BaseException, kind: type[KushiError], text: str
) -> None:
    with pytest.raises(kind) as raised:
        Loads(0).begin("m").run("m", lambda: _raise(error))
    assert str(raised.value) == text


def test_what_no_file_should_bring_about_is_logged_whole(caplog: pytest.LogCaptureFixture) -> None:
    try:
        _raise(ZeroDivisionError("a bug"))
    except ZeroDivisionError as error:
        failure = failure_of(error, "model 'm'")
        assert failure_of(failure, "model 'n'") is failure
    assert "model 'm' cannot be loaded" in caplog.text
    assert "ZeroDivisionError: a bug" in caplog.text
    caplog.clear()
    failure_of(OSError(2, "No such file or directory"), "m")
    assert caplog.text == ""


def test_a_load_is_given_up_after_its_time_over_all_its_steps(gate: threading.Event) -> None:
    # long enough for the first step on a machine that is busy
    loads = Loads(2)
    load = loads.begin("m")
    load.run("m", lambda: None)
    with pytest.raises(ModelUnavailable, match=r"^not loaded after 2 s \(--model-load-timeout-secs\): it is given up$"):
        load.run("m", gate.wait)
    assert loads.left == 1
    gate.set()
    eventually(lambda: loads.left == 0, "the thread has ended")


def test_who_gives_a_load_up_says_why_and_no_further_step_begins(gate: threading.Event) -> None:
    loads = Loads(0)
    load = loads.begin("m")
    begun = threading.Event()

    def stand() -> None:
        begun.set()
        gate.wait()

    def give_up() -> None:
        begun.wait()
        load.give_up(ConfigInvalid("enough"))
        load.give_up(ConfigInvalid("too late"))

    other = threading.Thread(target=give_up)
    other.start()
    for work in (stand, lambda: None):
        with pytest.raises(ConfigInvalid, match=r"^enough$"):
            load.run("m", work)
    other.join()
    assert loads.left == 1


def test_a_load_for_which_no_thread_can_be_started_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    loads = Loads(0)
    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(InternalError, match=r"^m: RuntimeError: can't start new thread$"):
        loads.begin("m").run("m", lambda: None)
    assert loads.left == 0


def test_loads_that_stand_still_are_bounded_in_number_and_others_go_on_below_it(gate: threading.Event) -> None:
    loads = Loads(0.01)
    for number in range(MOST_LEFT):
        with pytest.raises(ModelUnavailable):
            loads.begin(f"m{number}").run("m", gate.wait)
    with pytest.raises(Overloaded, match="8 loads that were given up still stand in this process"):
        loads.begin("m").run("m", lambda: None)
    gate.set()
    eventually(lambda: loads.left == 0, "the threads have ended")
    assert Loads(0).begin("m").run("m", lambda: 1) == 1


def test_a_model_whose_load_stands_still_takes_one_place_and_leaves_the_others_to_the_rest(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.control.load._USUAL_END_SECONDS", 0.1)
    loads = Loads(60)
    first = loads.begin("m")

    def stand() -> None:
        first.give_up(ConfigInvalid("enough"))
        gate.wait()

    with pytest.raises(ConfigInvalid, match=r"^enough$"):
        first.run("m", stand)
    for _ in range(2 * MOST_LEFT):
        with pytest.raises(Overloaded, match="an earlier load of this model was given up and still stands"):
            loads.begin("m").run("m", lambda: None)
    assert loads.left == 1
    assert Loads(0).begin("other").run("other", lambda: 1) == 1
    gate.set()
    eventually(lambda: loads.left == 0, "the thread has ended")
    assert loads.begin("m").run("m", lambda: 1) == 1


def test_a_load_waits_for_an_earlier_one_of_its_model_that_is_about_to_end(gate: threading.Event) -> None:
    loads = Loads(60)
    first = loads.begin("m")
    threading.Timer(0.05, lambda: first.give_up(ConfigInvalid("enough"))).start()
    with pytest.raises(ConfigInvalid):
        first.run("m", gate.wait)
    threading.Timer(0.05, gate.set).start()
    assert loads.begin("m").run("m", lambda: 1) == 1


def test_a_load_that_waits_for_an_earlier_one_can_be_given_up(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.control.load._USUAL_END_SECONDS", 3600)
    loads = Loads(0.01)
    with pytest.raises(ModelUnavailable):
        loads.begin("m").run("m", gate.wait)
    waiting = loads.begin("m")
    threading.Timer(0.05, lambda: waiting.give_up(ConfigInvalid("enough"))).start()
    with pytest.raises(ConfigInvalid, match=r"^enough$"):
        waiting.run("m", lambda: None)
