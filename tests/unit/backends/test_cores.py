import logging
import os
import threading

import pytest

from runners.backends.cores import cores_for_all, cores_of_process, running_on, warn_of_threads
from runners.repository.messages import ModelConfig
from runners.repository.normalize import fill_instance_groups
from runners.threads import usable_cores
from tests.unit.text import ONNX, config

FIRST = min(os.sched_getaffinity(0))


def model(cores: str = "") -> ModelConfig:
    stated = f'parameters {{ key: "kushi.cores" value {{ string_value: "{cores}" }} }}' if cores else ""
    return fill_instance_groups(config(f"{ONNX} instance_group {{ kind: KIND_CPU count: 2 }} {stated}"))


def test_threads_that_are_started_inside_stay_on_the_cores() -> None:
    before = os.sched_getaffinity(0)
    release, seen = threading.Event(), []

    def look() -> None:
        release.wait()
        seen.append(os.sched_getaffinity(0))

    with running_on((FIRST,)):
        inside = threading.Thread(target=look)
        inside.start()
        assert os.sched_getaffinity(0) == {FIRST}
    assert os.sched_getaffinity(0) == before
    release.set()
    inside.join()
    assert seen == [{FIRST}]


def test_without_cores_a_thread_stays_where_it_is() -> None:
    before = os.sched_getaffinity(0)
    with running_on(()):
        assert os.sched_getaffinity(0) == before


def test_a_thread_that_is_on_fewer_cores_does_not_count_for_the_process() -> None:
    seen = []

    def look() -> None:
        with running_on((FIRST,)):
            seen.append(cores_of_process())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [os.sched_getaffinity(os.getpid())]


def test_one_core_is_all_that_the_instances_have_together() -> None:
    assert cores_for_all(model(str(FIRST))) == 1
    assert cores_for_all(model()) == usable_cores()


@pytest.mark.parametrize(
    ("cores", "threads", "text"),
    [
        (f"{FIRST}", 3, "gives each instance 3 threads, and the parameter 'kushi.cores' leaves it 1 core(s)"),
        ("", 1000, f"gives each instance 1000 threads, and the process leaves it {usable_cores()} core(s)"),
        (f"{FIRST}", 1, ""),
        ("", 0, ""),
    ],
)
def test_more_threads_than_cores_are_a_warning_where_the_configuration_states_them(
    caplog: pytest.LogCaptureFixture, cores: str, threads: int, text: str
) -> None:
    with caplog.at_level(logging.WARNING, "runners"):
        warn_of_threads(model(cores), threads)
    assert text in caplog.text
    assert bool(caplog.records) == bool(text)
