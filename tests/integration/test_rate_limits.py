"""Models that share resources of the rate limiter."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from runners import ConfigInvalid, DeadlineExceeded, Engine, EngineOptions, RateLimitOptions
from tests import models
from tests.gates import HELD, Gate
from tests.integration.python_models import models as python_models
from tests.integration.python_models.test_models import client_of, tensor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartServer

pytestmark = pytest.mark.clock

STEPS, HOLDS = np.zeros((1, 1), np.int64), np.full((1, 1), HELD, np.int64)
ONE: Final = np.zeros(1, np.int32)
IN_PROCESS: Final = 'parameters { key: "kushi.inprocess" value { string_value: "true" } }'
LOGS: Final = """
import os
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.log = os.open("LOG", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.name = args["model_name"].encode()

    def execute(self, requests):
        os.write(self.log, b"+" + self.name + b"\\n")
        PAUSE
        answers = [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())]) for r in requests]
        os.write(self.log, b"-" + self.name + b"\\n")
        return answers
"""
SLEEP: Final = "time.sleep(0.002)"
MEETS: Final = """
        until = time.monotonic() + 60
        while os.stat("LOG").st_size < len(b"+a\\n+b\\n") and time.monotonic() < until:
            time.sleep(0.001)
"""


def limiter(count: int = 1, *, priority: int = 1, everywhere: bool = False, name: str = "r") -> str:
    scope = "global: true" if everywhere else ""
    return f'rate_limiter {{ priority: {priority} resources {{ name: "{name}" count: {count} {scope} }} }}'


def limited(**resources: int) -> EngineOptions:
    return EngineOptions(rate_limit=RateLimitOptions(mode="execution_count", resources=resources))


def write_gated(repository: Path, name: str, limits: str | None = None) -> None:
    models.write_gated(repository, name)
    file = repository / name / "config.pbtxt"
    file.write_text(file.read_text().replace("count: 1 }", f"count: 1 {limits or limiter()} }}"))


def write_logging(repository: Path, name: str, group: str, pause: str = SLEEP, more: str = "") -> None:
    text = f"""
        backend: "python" instance_group {{ {group} }} {more}
        input {{ name: "X" data_type: TYPE_INT32 dims: 1 }} output {{ name: "Y" data_type: TYPE_INT32 dims: 1 }}
    """
    source = LOGS.replace("PAUSE", pause).replace("LOG", str(repository.parent / "log"))
    python_models.write(repository, name, source, text)


def executions(repository: Path) -> list[str]:
    return (repository.parent / "log").read_text().split()


def most_at_once(repository: Path) -> int:
    return max(accumulate(1 if line[0] == "+" else -1 for line in executions(repository)))


@pytest.fixture
def holder(repository: Path) -> Iterator[tuple[Engine, Gate]]:
    """An engine of the models a and b, of which a executes, and b has to wait"""
    for name in ("a", "b"):
        write_gated(repository, name)
    options = limited()
    with Gate(repository, "a") as gate, Engine(repository, options=options) as engine, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(engine.infer, "a", HOLDS)
        gate.until_reached()
        yield engine, gate
        gate.close()
        asked.result()


@pytest.mark.parametrize("more", ["", IN_PROCESS], ids=["in processes", "in the process"])
def test_models_that_share_a_resource_never_execute_at_once(repository: Path, more: str) -> None:
    for name in ("a", "b"):
        write_logging(repository, name, f"count: 2 {limiter()}", more=more)
    with Engine(repository, options=limited()) as engine, ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(engine.infer, "ab"[number % 2], ONE) for number in range(200)]
        assert all(one.result()["Y"] == 0 for one in asked)
    assert len(executions(repository)) == 400
    assert most_at_once(repository) == 1


def test_instances_warm_up_one_after_the_other_where_they_share_a_resource(repository: Path) -> None:
    sample = (
        'name: "s" batch_size: 1 count: 4 inputs { key: "X" value { data_type: TYPE_INT32 dims: 1 zero_data: true } }'
    )
    write_logging(repository, "a", f"count: 3 {limiter()}", more=f"model_warmup {{ {sample} }}")
    with Engine(repository, options=limited()) as engine:
        engine.infer("a", ONE)
    assert len(executions(repository)) == 2 * (3 * 4 + 1)
    assert most_at_once(repository) == 1


def test_there_may_be_enough_for_some(repository: Path) -> None:
    write_logging(repository, "a", f"count: 4 {limiter(2)}")
    with Engine(repository, options=limited(r=5)) as engine, ThreadPoolExecutor(8) as threads:
        for one in [threads.submit(engine.infer, "a", ONE) for _ in range(100)]:
            one.result()
    assert most_at_once(repository) == 2


def test_without_the_limiter_resources_mean_nothing_and_the_log_says_so(
    repository: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        write_gated(repository, name)
    off = EngineOptions(rate_limit=RateLimitOptions(resources={"r": 1}))
    with Engine(repository, options=off) as engine, ThreadPoolExecutor(2) as threads:
        with Gate(repository, "a") as first, Gate(repository, "b") as second:
            asked = [threads.submit(engine.infer, name, HOLDS) for name in ("a", "b")]
            first.until_reached()
            second.until_reached()
        for one in asked:
            one.result()
    text = "field 'instance_group.rate_limiter' has no effect without --rate-limit=execution_count"
    assert f"model 'a': {text}" in capfd.readouterr().err
    assert "--rate-limit-resource of 'r' has no effect without --rate-limit=execution_count" in caplog.messages


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("everywhere", [False, True], ids=["per device", "global"])
def test_each_gpu_has_its_own_and_a_global_resource_is_one_for_all(
    repository: Path, start_server: StartServer, *, everywhere: bool
) -> None:
    pause = SLEEP if everywhere else MEETS
    for gpu, name in enumerate(("a", "b")):
        group = f"kind: KIND_GPU gpus: {gpu} {limiter(everywhere=everywhere)}"
        write_logging(repository, name, group, pause)
    server = start_server(repository, "--rate-limit=execution_count", "--rate-limit-resource=r:1")

    def ask(name: str) -> None:
        for _ in range(20):
            client_of(server).infer(name, [tensor("X", ONE)])

    with ThreadPoolExecutor(2) as threads:
        for one in [threads.submit(ask, name) for name in ("a", "b")]:
            one.result()
    assert most_at_once(repository) == (1 if everywhere else 2)


def test_the_higher_the_priority_the_fewer_turns(repository: Path) -> None:
    write_gated(repository, "first")
    for name, priority in (("a", 1), ("b", 3)):
        write_logging(repository, name, limiter(priority=priority))

    async def ask(engine: Engine, gate: Gate) -> None:
        first = asyncio.ensure_future(engine.async_infer("first", HOLDS))
        await asyncio.to_thread(gate.until_reached)
        waiting = [asyncio.ensure_future(engine.async_infer(name, ONE)) for name in ("a", "b") for _ in range(60)]
        await asyncio.sleep(0)
        gate.close()
        await asyncio.gather(first, *waiting)

    with Engine(repository, options=limited()) as engine, Gate(repository, "first") as gate:
        asyncio.run(ask(engine, gate))
    begun = [line for line in executions(repository) if line[0] == "+"]
    assert len(begun) == 120
    # while both wait; the first few come before all of them have
    assert 26 <= begun[:40].count("+a") <= 34


@pytest.mark.parametrize(
    ("limits", "resources", "text"),
    [
        (
            limiter(2),
            {"r": 1},
            (
                'Resource count for "r" is limited to 1 which will prevent scheduling of one or more model instances, '
                "the minimum required count is 2"
            ),
        ),
        (limiter(), {"other": 1}, 'Resource count for "r" is limited to 0 which will'),
        (
            limiter(everywhere=True),
            {},
            'Resource "r" is present as both global and device-specific resource in the model configuration.',
        ),
    ],
)
def test_what_can_never_be_had_is_refused(repository: Path, limits: str, resources: dict[str, int], text: str) -> None:
    write_gated(repository, "a")
    write_gated(repository, "b", limits)
    options = EngineOptions(
        exit_on_error=False, rate_limit=RateLimitOptions(mode="execution_count", resources=resources)
    )
    with Engine(repository, options=options) as engine:
        failures = list(engine.failures.values())
        assert all(isinstance(failure, ConfigInvalid) for failure in failures)
        assert any(text in str(failure) for failure in failures), failures


def test_a_deadline_and_a_cancellation_end_what_waits(holder: tuple[Engine, Gate]) -> None:
    engine, gate = holder
    with pytest.raises(DeadlineExceeded):
        engine.infer("b", STEPS, deadline=0.05)

    async def give_up() -> None:
        asked = asyncio.ensure_future(engine.async_infer("b", STEPS))
        await asyncio.sleep(0.02)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    asyncio.run(give_up())
    gate.close()
    engine.infer("b", STEPS)


def test_a_model_that_is_unloaded_or_loaded_again_gives_its_resources_back(repository: Path) -> None:
    for name in ("a", "b"):
        write_gated(repository, name)
    with Engine(repository, options=limited()) as engine, ThreadPoolExecutor(4) as threads:
        with Gate(repository, "a") as gate:
            asked = [threads.submit(engine.infer, "a", HOLDS)]
            gate.until_reached()
            asked += [threads.submit(engine.infer, "b", STEPS) for _ in range(2)]
            unloading = threads.submit(engine.unload_model, "a")
            gate.let_through()
        unloading.result()
        for one in asked:
            one.result()
        for _ in range(3):
            engine.load_model("a")
            engine.load_model("b")
            engine.infer("a", STEPS)
            engine.infer("b", STEPS)
        engine.unload_model("b")
        engine.infer("a", STEPS)


def test_decoupled_models_share_a_resource_as_well(repository: Path) -> None:
    group = f"instance_group {{ {limiter()} }}"
    for name in ("a", "b"):
        python_models.write(repository, name, python_models.COUNTING, python_models.COUNTING_CONFIG + group)

    def count(engine: Engine, name: str) -> list[int]:
        return [int(one["NUMBER"][0]) for one in engine.stream(name, np.array([3], np.int32))]

    with Engine(repository, options=limited()) as engine, ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(count, engine, "ab"[number % 2]) for number in range(40)]
        assert all(one.result() == [0, 1, 2] for one in asked)
