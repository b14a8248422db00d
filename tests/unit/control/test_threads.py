"""The threads that load models: orders side by side, loads that fail or never end, and how an engine ends."""

import asyncio
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kushi_native import Order

from runners import (
    Client,
    Engine,
    EngineOptions,
    KushiError,
    ModelNotReady,
    ModelOptions,
    ModelUnavailable,
    ShuttingDown,
)
from runners.backends import Opened
from runners.backends.pipeline import Loaded, load
from runners.control.controller import Controller
from runners.control.on_threads import _still_waiting
from runners.repository.layout import ModelSource
from tests import hostile_models, models
from tests.held import hold_file
from tests.lifetimes import Made
from tests.processes import thread_names
from tests.serving import ROOT
from tests.unit.controlled import EXPLICIT, index, plus, rows
from tests.waiting import eventually, settles


def threads_named(start: str) -> list[str]:
    return [name for name in thread_names(os.getpid()).values() if name.startswith(start)]


def control_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("kushi-control-")}


def test_a_model_changes_one_order_at_a_time_and_others_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plus(tmp_path)
    plus(tmp_path, "other")
    entered, leave = threading.Event(), threading.Event()
    with Engine(tmp_path, options=EXPLICIT) as engine:
        load = engine._control._loader.load

        def hold(*arguments: object) -> object:
            if not entered.is_set():
                entered.set()
                assert leave.wait(30)
            return load(*arguments)  # type: ignore[arg-type] # passed on as they come

        monkeypatch.setattr(engine._control._loader, "load", hold)
        loading = threading.Thread(target=engine.load_model, args=["m"])
        loading.start()
        try:
            assert entered.wait(30)
            text = "a related model 'm' to a load/unload request is currently loading or unloading"
            with pytest.raises(ModelNotReady) as raised:
                engine._control.load("m", waits=False)
            assert (str(raised.value), raised.value.status, raised.value.retryable) == (text, 500, True)
            second = threading.Thread(target=engine.load_model, args=["m"])
            second.start()
            engine.load_model("other")
            assert second.is_alive()
        finally:
            leave.set()
            loading.join()
        second.join()
        assert [row[:3] for row in rows(engine)] == [("m", "1", "READY"), ("other", "1", "READY")]


def test_reloads_lose_no_call_of_threads_and_event_loops(tmp_path: Path) -> None:
    plus(tmp_path)
    zero = np.zeros((1, 1), np.int32)
    stop = threading.Event()
    answers: list[list[int]] = [[], [], []]

    def call(mine: list[int]) -> None:
        while not stop.is_set():
            mine.append(int(engine.infer("m", zero)["OUTPUT0"][0, 0]))

    async def await_calls(mine: list[int]) -> None:
        while not stop.is_set():
            results = await asyncio.gather(*(engine.async_infer("m", zero) for _ in range(8)))
            mine.append(min(int(result["OUTPUT0"][0, 0]) for result in results))

    with Engine(tmp_path) as engine, ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(call, mine) for mine in answers[:2]]
        asking.append(pool.submit(asyncio.run, await_calls(answers[2])))
        try:
            for constant in range(2, 12):
                model = models.plus_constant(constant)
                (tmp_path / "m/1/model.onnx").write_bytes(model.SerializeToString())
                engine.load_model("m")
                seen = [len(mine) for mine in answers]
                eventually(
                    lambda seen=seen: (  # type: ignore[misc] # bound now
                        any(asked.done() for asked in asking)
                        or all(len(mine) > count + 1 for mine, count in zip(answers, seen, strict=True))
                    ),
                    "everybody is answered",
                )
        finally:
            stop.set()
        for asked in asking:
            asked.result()
    for mine in answers:
        assert mine == sorted(mine)
        assert mine[-1] == 11


def test_a_closed_engine_loads_nothing(tmp_path: Path) -> None:
    plus(tmp_path)
    engine = Engine(tmp_path)
    engine.close()
    with pytest.raises(ShuttingDown, match=r"^the engine is closed$"):
        engine.load_model("m")


def test_whatever_a_load_raises_the_thread_carries_out_the_next_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plus(tmp_path)
    options = EngineOptions(models=ModelOptions(control="explicit", load_threads=1))
    with Engine(tmp_path, options=options) as engine, monkeypatch.context() as broken:

        def fail(*_: object, **__: object) -> None:
            raise SystemExit("enough")

        broken.setattr("runners.control.reader.resolve", fail)
        with caplog.at_level(logging.ERROR, "runners"):
            answer = engine._core.call("RepositoryModelLoad", b'{"model_name":"m"}')
        text = "failed to load 'm', failed to poll from model repository: model 'm': SystemExit: enough"
        assert answer == (500, "internal_error", json.dumps({"error": text}, separators=(",", ":")).encode())
        assert index(engine) == [{"name": "m", "state": "UNAVAILABLE", "reason": "model 'm': SystemExit: enough"}]
        assert "model 'm' cannot be loaded" in caplog.text
        assert 'raise SystemExit("enough")' in caplog.text
        broken.undo()
        assert engine._core.call("RepositoryModelLoad", b'{"model_name":"m"}') == (200, "", b"")


def test_a_fault_of_ours_in_an_order_is_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plus(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    with Engine(tmp_path, options=EXPLICIT) as engine:
        with monkeypatch.context() as broken:
            broken.setattr(engine._control, "unload", fail)
            answer = engine._core.call("RepositoryModelUnload", b'{"model_name":"m"}')
            assert answer == (500, "internal_error", b'{"error":"RuntimeError: a fault"}')
            assert "model 'm' cannot be unloaded" in caplog.text
            broken.setattr(engine._control._loader._opening, "open", fail)
            with pytest.raises(ModelUnavailable, match=r"version 1 is at UNAVAILABLE state: .*RuntimeError: a fault"):
                engine.load_model("m")
        assert rows(engine)[0][3].endswith("RuntimeError: a fault")
        engine.load_model("m")
        assert rows(engine) == [("m", "1", "READY", "")]


@pytest.mark.clock
def test_an_engine_that_nobody_refers_to_ends_its_threads(tmp_path: Path) -> None:
    plus(tmp_path, "forgotten")
    before, others = len(threads_named("kushi-")), control_threads()
    engine = Engine(tmp_path, options=EXPLICIT)
    assert engine._core.call("RepositoryModelLoad", b'{"model_name":"forgotten"}')[0] == 200
    eventually(lambda: threads_named("forgotten_") != [], "its instances have threads")
    assert len(control_threads() - others) == 5
    with pytest.raises(KushiError):
        engine.load_model("nowhere")
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    assert gone() is None
    assert control_threads() <= others
    settles(lambda: threads_named("forgotten_") == [], "the instance threads have ended")
    settles(lambda: len(threads_named("kushi-")) <= before, "the io threads have ended")


def test_a_program_that_forgets_its_engine_ends(tmp_path: Path) -> None:
    plus(tmp_path)
    script = (
        "import sys\nfrom runners import Engine, EngineOptions, ModelOptions\n"
        "models = ModelOptions(control='explicit', load=('*',))\n"
        "engine = Engine(sys.argv[1], options=EngineOptions(models=models))\n"
        "print(engine.models()[0].state)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "READY\n"), done.stderr


def test_nothing_is_reported_once_all_models_are_loaded() -> None:
    assert list(_still_waiting({})) == []


def test_models_that_take_long_are_named_until_they_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.control.on_threads._PROGRESS_SECONDS", 0.01)
    slow, quick = Future[None](), Future[None]()
    quick.set_result(None)
    reports = _still_waiting({slow: "slow", quick: "quick"})
    assert next(reports) == ["slow"]
    threading.Thread(target=slow.set_result, args=[None]).start()
    assert set(map(tuple, reports)) <= {("slow",)}


INTERRUPTED = """
import signal, sys
from pathlib import Path
from runners import Engine
from runners.backends.onnxruntime.library import start

signal.signal(signal.SIGINT, signal.default_int_handler)
start({})
print("begins", flush=True)
try:
    Engine(sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.clock
def test_a_signal_interrupts_an_engine_that_loads_for_ever(tmp_path: Path) -> None:
    for number in range(6):
        models.write(tmp_path, f"m{number}", hostile_models.doubling(24))
    begun = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, tmp_path],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with begun:
        assert begun.stdout
        assert begun.stdout.readline() == "begins\n"
        eventually(lambda: "kushi-load" in thread_names(begun.pid).values(), "models are opened")
        begun.send_signal(signal.SIGINT)
        out, complaints = begun.communicate(timeout=60)
    assert (begun.returncode, out) == (0, "interrupted\n"), complaints


COMES_BACK_LATE = """
import os, sys, threading, time
import kushi_native


class AtTheVeryEnd:
    def __del__(self, open=os.open, close=os.close, sleep=time.sleep, path=sys.argv[1], how=os.O_WRONLY):
        # whoever reads comes back from native code now, and the interpreter is going
        close(open(path, how))
        print("let go", flush=True)
        sleep(0.3)


kept = AtTheVeryEnd()
threading.Thread(target=kushi_native.onnx_external_files, args=(sys.argv[1],), daemon=True).start()
"""


def test_a_thread_that_comes_back_when_the_interpreter_goes_ends_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = subprocess.run(
        [sys.executable, "-c", COMES_BACK_LATE, tmp_path / "pipe"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "let go\n"), done.stderr


def test_an_engine_goes_on_whatever_a_backend_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plus(tmp_path, "a")
    plus(tmp_path, "b")

    def fail(source: ModelSource, *arguments: Any, **options: Any) -> Loaded:  # noqa: ANN401 - passed on as they come
        if source.name == "a":
            raise RecursionError("too deep")
        return load(source, *arguments, **options)

    monkeypatch.setattr("runners.backends.pipeline.load", fail)
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        text = f"{tmp_path}/a: RecursionError: too deep"
        assert rows(engine) == [("a", "1", "UNAVAILABLE", text), ("b", "1", "READY", "")]
        assert {name: str(error) for name, error in engine.failures.items()} == {"a": text}


def test_a_model_that_does_not_fit_its_configuration_is_not_kept_open(tmp_path: Path) -> None:
    wrong = 'input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 }'
    right = 'output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }'
    plus(tmp_path, text=f"max_batch_size: 4 {wrong} {right}")
    opened = Made(Opened)  # type: ignore[type-abstract] # one that is not called
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        assert "expects datatype TYPE_FP32 for input 'INPUT0'" in str(engine.failures["m"])
        assert not opened.alive()


def test_a_load_that_takes_too_long_at_the_start_fails_and_the_others_are_served(tmp_path: Path) -> None:
    plus(tmp_path, "a")
    plus(tmp_path, "b")
    options = EngineOptions(models=ModelOptions(load_timeout_seconds=5, load_threads=1), exit_on_error=False)
    with hold_file(tmp_path / "a/1/model.onnx"), Engine(tmp_path, options=options) as engine:
        text = "not loaded after 5 s (--model-load-timeout-secs): it is given up"
        assert rows(engine) == [("a", "1", "UNAVAILABLE", text), ("b", "1", "READY", "")]
        assert isinstance(engine.failures["a"], ModelUnavailable)
        engine.unload_model("a")
        assert rows(engine)[0] == ("a", "1", "UNAVAILABLE", "unloaded")


def test_an_engine_that_is_closed_gives_up_the_load_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.control.threads._PATIENCE_SECONDS", 0.1)
    plus(tmp_path)
    engine = Engine(tmp_path, options=EXPLICIT)
    with hold_file(tmp_path / "m/1/model.onnx") as held, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(engine._core.call, "RepositoryModelLoad", b'{"model_name":"m"}')
        held.wait_until_asked_for()
        engine.close()
        status, kind, body = answer.result()
        assert (status, kind, body) == (503, "shutting_down", b'{"error":"the load is given up: the engine is closed"}')


def test_an_order_whose_end_cannot_be_told_costs_no_thread(tmp_path: Path) -> None:
    """As where the log of the process is closed: the control says so by an exception"""
    plus(tmp_path, "plus")
    with (
        Engine(tmp_path, options=EXPLICIT) as engine,
        Client(f"http://127.0.0.1:{engine.serve_http(port=0)}") as client,
    ):
        carry_out = type(engine._control).carry_out

        def fails(control: Controller, order: Order) -> None:
            if order.model == "other":
                raise ValueError("I/O operation on closed file")
            carry_out(control, order)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(engine._control), "carry_out", fails)
            before = control_threads()
            for _ in range(2 * len(before)):
                with pytest.raises(KushiError, match="ValueError: I/O operation on closed file"):
                    client.load_model("other")
            assert control_threads() == before
            client.load_model("plus")
