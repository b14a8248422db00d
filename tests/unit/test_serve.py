import os
import re
import time
from pathlib import Path

import pytest

from runners import Engine
from runners.errors import ConfigInvalid
from runners.serve import _drain, _wrapped, seconds_since_exec, serve
from runners.settings import EngineOptions, LogOptions, ServerSettings, TraceOptions


def test_the_age_of_the_process_is_read_from_its_start_time(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    started = int((time.clock_gettime(time.CLOCK_BOOTTIME) - 5) * ticks)
    fields = ["S", *["0"] * 18, str(started), *["0"] * 30]
    stat = tmp_path / "stat"
    stat.write_text(f"1 (a name) with (brackets) {' '.join(fields)}")
    assert seconds_since_exec(stat) == pytest.approx(5, abs=0.5)


def test_this_process_has_an_age() -> None:
    assert 0 <= seconds_since_exec() < 24 * 3600


def test_a_long_reason_is_wrapped_and_its_path_is_not_broken() -> None:
    path = "/" + "folder-with-a-name/" * 6 + "model.onnx"
    lines = _wrapped(f"UNAVAILABLE: onnx model '{path}' cannot be loaded: {'because of this ' * 10}").split("\n")
    assert f"'{path}'" in lines
    assert max(len(line) for line in lines if path not in line) <= 80


class Draining:
    """An engine with requests in flight, of which each further look finds one less"""

    def __init__(self, left: int) -> None:
        self.left = left + 1
        self.ended = False

    def drain(self, timeout_seconds: float) -> int:
        assert 0 <= timeout_seconds <= 30
        self.left = max(0, self.left - 1)
        return self.left

    def end_runs(self) -> None:
        self.ended = True


def test_draining_waits_for_the_requests_in_flight() -> None:
    engine = Draining(3)
    assert _drain(engine.drain, engine.end_runs, 30) == 0
    assert not engine.ended


def test_draining_nothing_is_over_at_once() -> None:
    engine = Draining(0)
    assert _drain(engine.drain, engine.end_runs, 0) == 0


def test_requests_left_at_the_timeout_are_ended_and_make_the_exit_code_one(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    engine = Draining(1000)
    _drain(engine.drain, engine.end_runs, 0)
    assert codes == [1]
    assert engine.ended


def test_a_log_that_cannot_be_written_ends_the_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "missing" / "log"
    settings = ServerSettings(repositories=("models",), engine=EngineOptions(log=LogOptions(file=str(path))))
    assert serve(settings, 0) == 1
    assert f"] --log-file: cannot write to '{path}': No such file or directory\n" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing/trace.json", "No such file or directory"),
        ("folder", "Is a directory"),
        ("file/trace.json", "Not a directory"),
    ],
)
@pytest.mark.parametrize("level", [(), ("TIMESTAMPS",)])
def test_a_file_of_traces_that_cannot_be_written_ends_the_start(
    tmp_path: Path, level: tuple[str, ...], name: str, reason: str
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    options = EngineOptions(trace=TraceOptions(level=level, file=str(tmp_path / name)))
    text = f"traces cannot be written to '{tmp_path / name}' (--trace-file): {reason}"
    with pytest.raises(ConfigInvalid, match=re.escape(text)):
        Engine(tmp_path / "models", options=options)


def test_files_of_traces_with_numbers_may_stand_beside_a_folder_of_their_name(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "trace").mkdir()
    options = EngineOptions(trace=TraceOptions(file=str(tmp_path / "trace"), log_frequency=10))
    Engine(tmp_path / "models", options=options).close()
