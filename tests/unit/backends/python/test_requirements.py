"""Environments of requirements files: when two are one, and how they are made"""

import os
import subprocess
import sys
from concurrent.futures import Future
from contextvars import copy_context
from pathlib import Path

import pytest

from runners.backends.python import requirements as module
from runners.backends.python.command import output_of, run
from runners.backends.python.requirements import environment_of
from runners.errors import ConfigInvalid, ModelUnavailable
from runners.wanted import work_for
from tests.integration.python_models.environments import environment, requirements, write_wheel
from tests.processes import lives
from tests.waiting import eventually

OURS = Path(sys.executable)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def imports(place: Path, package: str) -> bool:
    done = subprocess.run([place / "bin" / "python", "-c", f"import {package}"], check=False, capture_output=True)
    return done.returncode == 0


def test_without_uv_pip_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_uv", lambda: None)
    place = environment_of(requirements(tmp_path), OURS)
    assert imports(place, "extra")
    assert imports(place, "numpy")


def test_without_uv_the_words_of_pip_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_uv", lambda: None)
    with pytest.raises(ConfigInvalid, match=r"(?s)python ended with exit code 1:.*nothing-like-this"):
        environment_of(requirements(tmp_path, "nothing-like-this"), OURS)


def test_one_content_is_one_environment(tmp_path: Path) -> None:
    first = environment_of(requirements(tmp_path / "a"), OURS)
    assert environment_of(requirements(tmp_path / "b"), OURS) == first
    assert environment_of(requirements(tmp_path / "a", "# changed"), OURS) != first


def test_the_interpreter_of_an_environment_counts_as_that_below_it(tmp_path: Path) -> None:
    other = environment(tmp_path / "other") / "bin" / "python"
    file = requirements(tmp_path)
    assert environment_of(file, other) == environment_of(file, OURS)


def test_a_file_that_is_included_counts(tmp_path: Path) -> None:
    file = requirements(tmp_path, "-r more.txt", "-c limits.txt")
    (tmp_path / "more.txt").write_text("extra\n-r requirements.txt\n")
    (tmp_path / "limits.txt").write_text("extra==1\n")
    first = environment_of(file, OURS)
    (tmp_path / "limits.txt").write_text("extra>=1\n")
    assert environment_of(file, OURS) != first


def test_an_interpreter_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="the interpreter '/bin/false' cannot be used: "):
        environment_of(requirements(tmp_path), Path("/bin/false"))


@pytest.mark.parametrize("white", ["\n", " ", "\t", "-r\n"])
def test_a_text_of_white_space_is_read_at_once(tmp_path: Path, white: str) -> None:
    file = tmp_path / "requirements.txt"
    # what looked at each line from each line took minutes
    file.write_text(white * ((1 << 20) // len(white)))
    assert [len(content) for content in module._contents(file)] == [len(file.read_bytes())]


def test_a_file_that_is_too_large_or_a_pipe_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    with file.open("wb") as sparse:
        sparse.truncate(9 << 30)
    with pytest.raises(ConfigInvalid, match="has more than 1048576 bytes"):
        environment_of(file, OURS)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ConfigInvalid, match="is a pipe, expected a regular file"):
        environment_of(file, OURS)


def test_packages_that_lie_beside_a_file_belong_to_it(tmp_path: Path) -> None:
    files = {}
    for name, value in (("one", 1), ("two", 2)):
        folder = tmp_path / name
        files[name] = requirements(folder, "./own-1-py3-none-any.whl")
        write_wheel(folder, "own", {"own.py": f"VALUE = {value}\n"})
    first = environment_of(files["one"], OURS)
    second = environment_of(files["two"], OURS)
    assert first != second
    assert environment_of(files["one"], OURS) == first
    for place, told in ((first, b"1"), (second, b"2")):
        done = subprocess.run(
            [place / "bin" / "python", "-c", "import own; print(own.VALUE)"], check=True, capture_output=True
        )
        assert done.stdout.strip() == told
    # another package of the same name is another content
    write_wheel(tmp_path / "one", "own", {"own.py": "VALUE = 30\n"})
    assert environment_of(files["one"], OURS) != first


@pytest.mark.parametrize("line", ["--find-links own", "-f own", "-e own", "--editable=own", ".", "-e ."])
def test_directories_that_options_name_belong_to_a_file(tmp_path: Path, line: str) -> None:
    file = requirements(tmp_path, line)
    folder = tmp_path / "own"
    folder.mkdir()
    before = list(module._contents(file))
    write_wheel(folder, "own", {"own.py": "VALUE = 1\n"})
    assert list(module._contents(file)) != before


def test_a_load_that_was_given_up_looks_at_no_further_word(tmp_path: Path) -> None:
    class GivenUp(Future[None]):
        looks = 0

        def cancelled(self) -> bool:
            self.looks += 1
            return self.looks > 10

    step = GivenUp()

    def read() -> None:
        work_for(step)
        content = b"".join(b"-f stock%d\n" % number for number in range(1000))
        with pytest.raises(ModelUnavailable, match="the load was given up"):
            list(module._local(tmp_path, content))

    copy_context().run(read)
    assert step.looks == 11


def test_a_program_ends_with_the_server(tmp_path: Path) -> None:
    program = tmp_path / "python"
    # says who it is, and goes on until it is ended
    program.write_text("#!/bin/sh\necho $$ > pid.new; mv pid.new pid; exec sleep 1000\n")
    program.chmod(0o755)
    making = (
        "import pathlib, sys; from runners.backends.python.command import run; "
        "run([sys.argv[1]], pathlib.Path(sys.argv[2]), 'it')"
    )
    with subprocess.Popen([sys.executable, "-c", making, program, tmp_path]) as server:
        eventually((tmp_path / "pid").exists, "the program runs")
        server.kill()
    child = (tmp_path / "pid").read_text().strip()
    eventually(lambda: not lives(int(child)), "it has ended")


def test_what_a_program_leaves_behind_is_not_waited_for_and_ends(tmp_path: Path) -> None:
    """It holds what the program has printed to, and prints itself"""
    pid = tmp_path / "pid"
    script = f"(while true; do echo more; sleep 0.001; done) & echo $! >{pid}; echo made; exit 0"
    assert "made" in run(["sh", "-c", script], tmp_path, "it").split()
    left = int(pid.read_text())
    eventually(lambda: not lives(left), "what was left behind ends")


def test_a_program_that_prints_no_more_is_waited_for(tmp_path: Path) -> None:
    script = f"echo made; exec >/dev/null 2>&1; sleep 0.3; touch {tmp_path / 'done'}"
    assert run(["sh", "-c", script], tmp_path, "it").split() == ["made"]
    assert (tmp_path / "done").exists()


def test_libraries_of_an_environment_are_for_its_programs(tmp_path: Path) -> None:
    # the interpreter that starts them needs these, and a shell does not
    for library in ("libffi.so.6", "libffi.so.7", "libffi.so.8"):
        (tmp_path / library).write_bytes(b"no library")
    libraries = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert run(["sh", "-c", "echo $LD_LIBRARY_PATH"], tmp_path, "it", variables=libraries) == str(tmp_path)


def test_what_a_program_says_is_bounded() -> None:
    assert output_of(["sh", "-c", "echo said; echo error >&2"], 30) == b"said\n"
    with pytest.raises(OSError, match="it says more than 1048576 bytes"):
        output_of(["cat", "/dev/zero"], 30)
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        output_of(["sh", "-c", "exit 3"], 30)
    # it goes on in a group of its own, and holds the output
    with pytest.raises(subprocess.TimeoutExpired):
        output_of(["sh", "-c", "setsid sleep 20 & exit 0"], 0.5)


ASKING = """
import sys, threading, time
from pathlib import Path
from runners.backends.python.command import output_of

told = Path(sys.argv[1])
script = f"sleep 1000 & echo $! > {told}.part; mv {told}.part {told}; wait"
threading.Thread(target=output_of, args=(["sh", "-c", script], 1000), daemon=True).start()
while not told.exists():
    time.sleep(0.01)
"""


def test_what_is_asked_ends_with_the_server_though_the_thread_that_asks_is_left_alone(tmp_path: Path) -> None:
    told = tmp_path / "told"
    subprocess.run([sys.executable, "-c", ASKING, str(told)], check=True, timeout=60)
    asked = int(told.read_text())
    eventually(lambda: not lives(asked), "what it has started has ended, too")


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="it cannot be made: there is no program '/nowhere/python'"):
        run(["/nowhere/python"], tmp_path, "it")


def test_what_is_no_path_and_what_comments_say_is_no_package(tmp_path: Path) -> None:
    token = f"https://token:{'a' * 300}.{'b' * 300}@198.51.100.1/simple"
    file = requirements(tmp_path, f"--trusted-host {token}/", "# a wheel and / or ./sources", "\0/a.whl")
    (tmp_path / "sources").mkdir()
    found = list(module._contents(file))
    assert found[0] == file.read_bytes()
    assert {one.split()[0] for one in found[1:]} == {b"extra-1-py3-none-any.whl", b"linked_numpy-1-py3-none-any.whl"}
