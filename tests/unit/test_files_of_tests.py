"""The files of tests are run to their end, whichever process dies on the way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.run.files import Files

# of three files one has one test, one has two, one three
TESTS = [f"tests/test_{file}.py::test_{number}" for file in range(9) for number in range(1 + file % 3)]


class Process:
    """One that runs tests as those of pytest-xdist do: the last that it knows of waits for the next, or for the end"""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.known: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.known += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    def take(self) -> int | None:
        return self.known.pop(0) if len(self.known) > (not self.shutting_down) else None


def scheduling(*processes: Process) -> Files:
    options = SimpleNamespace(loadscopereorder=True)
    config: Any = SimpleNamespace(getvalue=lambda _: ["popen"] * len(processes), option=options)
    made = Files(config)
    for process in processes:
        join(made, process)
    made.schedule()
    return made


def join(files: Files, process: Any) -> None:  # noqa: ANN401 - in the place of a WorkerController
    files.add_node(process)
    files.add_node_collection(process, TESTS)


def run_one(files: Files, process: Any, ran: list[str]) -> bool:  # noqa: ANN401 - as above
    index = process.take()
    if index is None:
        return False
    ran.append(TESTS[index])
    files.mark_test_complete(process, index)
    return True


@pytest.mark.parametrize("before", range(20))
@pytest.mark.parametrize("replaced", ["at once", "late", "never"])
def test_all_tests_but_the_one_at_which_a_process_dies_run_once(before: int, replaced: str) -> None:
    first, second = Process("first"), Process("second")
    files, ran = scheduling(first, second), list[str]()
    for _ in range(before):
        run_one(files, first, ran)
    dying: Any = first
    died_at = files.remove_node(dying)
    third: Any = Process("third")
    others = [second, third]
    if replaced == "at once":
        join(files, third)
        files.schedule()
    elif replaced == "late":
        # it looks for its tests while the other one goes on, and may come to its end
        files.add_node(third)
        while run_one(files, second, ran):
            pass
        if second.shutting_down:
            ended: Any = second
            files.remove_node(ended)
        files.add_node_collection(third, TESTS)
        files.schedule()
    else:
        others.remove(third)
    going = True
    while going:
        going = sum(run_one(files, other, ran) for other in others) > 0
    assert all(other.shutting_down for other in others)
    assert died_at not in ran
    assert sorted([*ran, *filter(None, [died_at])]) == TESTS


def test_one_that_dies_before_anything_is_shared_out_leaves_it_to_the_others() -> None:
    options = SimpleNamespace(loadscopereorder=True)
    config: Any = SimpleNamespace(getvalue=lambda _: ["popen"] * 2, option=options)
    files, ran = Files(config), list[str]()
    first: Any = Process("first")
    second: Any = Process("second")
    files.add_node(first)
    join(files, second)
    assert files.remove_node(first) is None
    third: Any = Process("third")
    join(files, third)
    files.schedule()
    while run_one(files, second, ran) or run_one(files, third, ran):
        pass
    assert sorted(ran) == TESTS
