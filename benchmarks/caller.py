"""A Python program that calls a model again and again, as a process of its own: one JSON line of what it cost.

    python -m benchmarks.caller --way engine --target REPOSITORY --model mlp --concurrency 32 --seconds 4

c coroutines on uvloop (or one blocking loop), each sending its next request when its answer is there. The CPU time is
that of this process and of the server's processes together, within the window alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import processes
from benchmarks.models import MODELS, inputs

__all__ = ["WAYS", "Called", "main"]

Array = npt.NDArray[np.generic]
Call = Callable[[int], Awaitable[object]]

WAYS = ("engine", "unix", "unix-slots", "http", "tritonclient.http.aio", "tritonclient.http")


@dataclass(frozen=True)
class Called:
    """What the calls of one window cost."""

    calls: int
    cpu_us: float
    caller_cpu_us: float
    p50_us: float
    p99_us: float
    per_second: float


@dataclass
class _Window:
    """Counts what ends inside it."""

    opens: float
    closes: float
    latencies: list[float]
    caller_cpu: float = 0.0
    other_cpu: float = 0.0

    @classmethod
    def after(cls, warmup: float, seconds: float) -> _Window:
        opens = time.perf_counter() + warmup
        return cls(opens, opens + seconds, [])


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--way", choices=WAYS, required=True)
    flags.add_argument("--target", required=True, help="repository, Unix socket, or HOST:PORT")
    flags.add_argument("--model", choices=MODELS, default="mlp")
    flags.add_argument("--concurrency", type=int, default=1)
    flags.add_argument("--seconds", type=float, default=4.0)
    flags.add_argument("--warmup", type=float, default=1.0)
    flags.add_argument("--server", type=int, action="append", default=[], help="process of the server, to be counted")
    flags.add_argument("--core", type=int, help="pin this process to a core")
    flags.add_argument("--burn", action="store_true", help="one Python thread computes beside the calls")
    flags.add_argument("--serve-http", type=int, metavar="PORT", help="open the HTTP door of the engine as well")
    given = flags.parse_args()
    if given.core is not None:
        os.sched_setaffinity(0, {given.core})
    if given.burn:
        threading.Thread(target=_burn, daemon=True).start()
    found = _blocking(given) if given.way == "tritonclient.http" else _concurrent(given)
    print(json.dumps(asdict(found)), flush=True)


def _burn() -> None:
    number = 0
    while True:
        number = (number * 1103515245 + 12345) % 2147483648


def _concurrent(given: argparse.Namespace) -> Called:
    import uvloop  # noqa: PLC0415 - only the ways on an event loop need it

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(given))


async def _run(given: argparse.Namespace) -> Called:
    call, close = await _caller(given)
    window = _Window.after(given.warmup, given.seconds)

    async def work(place: int) -> None:
        clock = time.perf_counter
        while (began := clock()) < window.closes:
            await call(place)
            ended = clock()
            if began >= window.opens and ended <= window.closes:
                window.latencies.append(ended - began)

    async def watch() -> None:
        await asyncio.sleep(window.opens - time.perf_counter())
        before = _cpu_seconds(given.server)
        await asyncio.sleep(window.closes - time.perf_counter())
        after = _cpu_seconds(given.server)
        window.caller_cpu, window.other_cpu = after[0] - before[0], after[1] - before[1]

    await asyncio.gather(watch(), *(work(place) for place in range(given.concurrency)))
    await close()
    return _result(window)


def _blocking(given: argparse.Namespace) -> Called:
    from tritonclient import http  # noqa: PLC0415 - only this way needs it

    client = http.InferenceServerClient(given.target)
    prepared = _triton_inputs(http, inputs(given.model, rows=1))
    window = _Window.after(given.warmup, given.seconds)
    output = MODELS[given.model].outputs[0][0]
    before: tuple[float, float] | None = None
    while (began := time.perf_counter()) < window.closes:
        if before is None and began >= window.opens:
            before = _cpu_seconds(given.server)
        for triton_input, array in prepared:
            triton_input.set_data_from_numpy(array)
        client.infer(given.model, [one for one, _ in prepared]).as_numpy(output)
        if began >= window.opens:
            window.latencies.append(time.perf_counter() - began)
    after = _cpu_seconds(given.server)
    first = before or after
    window.caller_cpu, window.other_cpu = after[0] - first[0], after[1] - first[1]
    client.close()
    return _result(window)


def _result(window: _Window) -> Called:
    calls = max(1, len(window.latencies))
    cuts = statistics.quantiles(window.latencies, n=100) if calls > 1 else [0.0] * 99
    return Called(
        calls,
        cpu_us=(window.caller_cpu + window.other_cpu) / calls * 1e6,
        caller_cpu_us=window.caller_cpu / calls * 1e6,
        p50_us=cuts[49] * 1e6,
        p99_us=cuts[98] * 1e6,
        per_second=calls / (window.closes - window.opens),
    )


def _cpu_seconds(servers: Sequence[int]) -> tuple[float, float]:
    """Of this process, and of the servers'"""
    members = [member for server in servers for member in processes.tree(server)]
    return time.process_time(), sum(map(processes.cpu_seconds, members))


async def _caller(given: argparse.Namespace) -> tuple[Call, Callable[[], Awaitable[None]]]:
    if given.way.startswith("tritonclient"):
        return await _triton_caller(given)
    import runners  # noqa: PLC0415 - tritonclient's price shall not contain ours

    model, arrays = given.model, inputs(given.model, rows=1)
    output = MODELS[model].outputs[0][0]
    target: runners.Engine | runners.Client
    if given.way == "engine":
        target = runners.Engine(given.target)
        if given.serve_http is not None:
            target.serve_http(port=given.serve_http)
    else:
        target = runners.Client(f"{'http' if given.way == 'http' else 'unix'}://{given.target}")
    places = [arrays] * given.concurrency
    if given.way == "unix-slots" and isinstance(target, runners.Client):
        places = [_in_slots(target, arrays) for _ in range(given.concurrency)]

    async def call(place: int) -> object:
        return (await target.async_infer(model, places[place]))[output]

    async def close() -> None:
        target.close()

    return call, close


def _in_slots(client: Any, arrays: dict[str, Array]) -> dict[str, Array]:  # noqa: ANN401 - runners is imported late
    """The arrays where preprocessing would have written them."""
    built: dict[str, Array] = {}
    for name, array in arrays.items():
        built[name] = client.empty(array.shape, array.dtype)
        built[name][...] = array
    return built


async def _triton_caller(given: argparse.Namespace) -> tuple[Call, Callable[[], Awaitable[None]]]:
    from tritonclient.http import aio  # noqa: PLC0415 - only this way needs it

    client = aio.InferenceServerClient(given.target, conn_limit=given.concurrency)
    prepared = _triton_inputs(aio, inputs(given.model, rows=1))
    output = MODELS[given.model].outputs[0][0]

    async def call(_: int) -> object:
        for triton_input, array in prepared:
            triton_input.set_data_from_numpy(array)
        return (await client.infer(given.model, [one for one, _ in prepared])).as_numpy(output)

    return call, client.close


def _triton_inputs(client: Any, arrays: dict[str, Array]) -> list[tuple[Any, Array]]:  # noqa: ANN401 - untyped module
    datatypes = {"float32": "FP32", "int32": "INT32"}
    return [
        (client.InferInput(name, list(array.shape), datatypes[array.dtype.name]), array)
        for name, array in arrays.items()
    ]


if __name__ == "__main__":
    main()
