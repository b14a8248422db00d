import asyncio
import gc
import json
import logging
import math
import os
import shutil
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

from runners import (
    ConfigInvalid,
    Engine,
    EngineOptions,
    KushiError,
    ModelNotFound,
    ModelNotReady,
    ModelOptions,
    ModelUnavailable,
    ShuttingDown,
    Unsupported,
)
from runners.backends import Opened
from runners.backends.pipeline import Loaded, load
from runners.control import _still_waiting
from runners.repository.layout import ModelSource
from tests import hostile_models, models
from tests.held import hold_file
from tests.serving import ROOT, eventually, thread_names

EXPLICIT = EngineOptions(models=ModelOptions(control="explicit"))


def plus(repository: Path, name: str = "m", versions: tuple[int, ...] = (1,), text: str | None = None) -> None:
    models.write(repository, name, {version: models.plus_constant(version) for version in versions}, text)


def rows(engine: Engine) -> list[tuple[str, str, str, str]]:
    return [(model.name, model.version, model.state, model.reason) for model in engine.models()]


def index(engine: Engine, body: bytes = b"") -> object:
    status, kind, answer = engine._core.call("POST", "/v2/repository/index", body)
    assert (status, kind) == (200, "")
    return json.loads(answer)


def threads_named(start: str) -> list[str]:
    return [name for name in thread_names(os.getpid()).values() if name.startswith(start)]


def control_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("kushi-control-")}


def test_an_explicit_engine_loads_nothing_at_the_start_and_lists_what_there_is(tmp_path: Path) -> None:
    plus(tmp_path, "a")
    plus(tmp_path, "b")
    (tmp_path / ".hidden").mkdir()
    with Engine(tmp_path, options=EXPLICIT) as engine:
        assert rows(engine) == []
        assert index(engine) == [{"name": "a"}, {"name": "b"}]
        assert index(engine, b'{"ready": true}') == []
        assert engine._core.call("GET", "/v2/health/ready", b"")[0] == 200


def test_the_models_to_load_are_chosen_by_name_or_all_of_them(tmp_path: Path) -> None:
    plus(tmp_path, "a")
    plus(tmp_path, "b")
    for names, expected in ((("b",), ["b"]), (("*",), ["a", "b"])):
        with Engine(tmp_path, options=EngineOptions(models=ModelOptions(control="explicit", load=names))) as engine:
            assert [row[0] for row in rows(engine)] == expected


def test_a_model_to_load_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    plus(tmp_path, "a")
    options = EngineOptions(exit_on_error=False, models=ModelOptions(control="explicit", load=("a", "nowhere")))
    with Engine(tmp_path, options=options) as engine:
        assert str(engine.failures["nowhere"]) == "failed to load 'nowhere', failed to poll from model repository"
        assert isinstance(engine.failures["nowhere"], ModelNotFound)
        assert [row[:3] for row in rows(engine)] == [("a", "1", "READY")]


@pytest.mark.parametrize("names", [("*", "a"), ("a", "*")])
def test_all_models_and_some_exclude_each_other(names: tuple[str, ...]) -> None:
    with pytest.raises(
        ConfigInvalid, match=r"^Wildcard model name '\*' must be the ONLY startup model if specified at all\.$"
    ):
        EngineOptions(models=ModelOptions(control="explicit", load=names))


def test_models_to_load_need_explicit_control() -> None:
    with pytest.raises(
        ConfigInvalid, match=r"^Use of 'models\.load' requires setting 'models\.control=explicit' as well"
    ):
        EngineOptions(models=ModelOptions(load=("a",)))


@pytest.mark.parametrize("threads", [0, -1])
def test_models_need_a_thread_that_loads_them(threads: int) -> None:
    with pytest.raises(ConfigInvalid, match=f"^models.load_threads is {threads}, expected an integer from 1 to 1024$"):
        EngineOptions(models=ModelOptions(load_threads=threads))


@pytest.mark.parametrize("options", [EngineOptions(), EXPLICIT])
def test_models_are_loaded_and_unloaded_in_process_whatever_the_mode(tmp_path: Path, options: EngineOptions) -> None:
    with Engine(tmp_path, options=options) as engine:
        plus(tmp_path)
        engine.load_model("m")
        assert rows(engine) == [("m", "1", "READY", "")]
        engine.unload_model("m")
        eventually(lambda: rows(engine) == [("m", "1", "UNAVAILABLE", "unloaded")], "the model is unloaded")
        asyncio.run(engine.async_load_model("m"))
        assert rows(engine) == [("m", "1", "READY", "")]
        asyncio.run(engine.async_unload_model("m"))
        eventually(lambda: rows(engine) == [("m", "1", "UNAVAILABLE", "unloaded")], "the model is unloaded again")


def test_a_model_that_no_repository_has_cannot_be_loaded(tmp_path: Path) -> None:
    with Engine(tmp_path) as engine:
        with pytest.raises(ModelNotFound) as raised:
            engine.load_model("m")
        assert str(raised.value) == "failed to load 'm', failed to poll from model repository"
        assert (raised.value.model, raised.value.status) == ("m", 500)
        assert rows(engine) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (" ", "Model name cannot be empty. Please enter a valid name to deploy."),
        ("..", "invalid model name '..', model name must not contain path traversal characters"),
        ("a/b", "invalid model name 'a/b', model name must not contain path traversal characters"),
    ],
)
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with Engine(tmp_path) as engine, pytest.raises(ConfigInvalid) as raised:
        engine.load_model(name)
    assert (str(raised.value), raised.value.status) == (message, 400)


@pytest.mark.parametrize("name", [".hidden", "."])
def test_what_a_scan_skips_is_not_found_by_name_either(tmp_path: Path, name: str) -> None:
    plus(tmp_path, ".hidden")
    with Engine(tmp_path) as engine, pytest.raises(ModelNotFound):
        engine.load_model(name)


def test_a_name_that_no_directory_can_have_leaves_nothing_behind(tmp_path: Path) -> None:
    with Engine(tmp_path, options=EXPLICIT) as engine:
        with pytest.raises(ModelNotFound) as raised:
            engine.load_model("m" * 300)
        assert str(raised.value).endswith("m', failed to poll from model repository")
        assert (rows(engine), engine.failures) == ([], {})
        assert engine.is_server_ready()


def test_what_failed_can_be_loaded_again_one_by_one(tmp_path: Path) -> None:
    for name in "ab":
        plus(tmp_path, name, text="max_batch_sise: 3")
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        for name in engine.failures:
            (tmp_path / name / "config.pbtxt").unlink()
            engine.load_model(name)
        assert engine.failures == {}


def test_unloading_what_is_not_loaded_does_nothing(tmp_path: Path) -> None:
    with Engine(tmp_path) as engine:
        engine.unload_model("m")
        assert rows(engine) == []


def test_a_configuration_that_cannot_be_read_fails_the_load_and_says_why(tmp_path: Path) -> None:
    plus(tmp_path, text="max_batch_sise: 3")
    with Engine(tmp_path, options=EXPLICIT) as engine:
        with pytest.raises(ConfigInvalid) as raised:
            engine.load_model("m")
        assert str(raised.value).startswith("failed to load 'm', failed to poll from model repository: ")
        assert "m/config.pbtxt:1:1: " in str(raised.value)
        assert raised.value.status == 500
        assert list(engine.failures) == ["m"]
        (tmp_path / "m/config.pbtxt").unlink()
        engine.load_model("m")
        assert engine.failures == {}
        assert rows(engine) == [("m", "1", "READY", "")]


def test_a_failed_load_has_a_clause_for_each_failed_version(tmp_path: Path) -> None:
    whole = models.plus_constant(1).SerializeToString()
    models.write(tmp_path, "m", {1: whole, 2: b"broken", 3: whole[:-9]}, "version_policy { all { } }")
    with Engine(tmp_path, options=EXPLICIT) as engine:
        with pytest.raises(ModelUnavailable) as raised:
            engine.load_model("m")
        text = str(raised.value)
        assert text.startswith("load failed for model 'm': version 2 is at UNAVAILABLE state: ")
        assert ";version 3 is at UNAVAILABLE state: " in text
        assert text.endswith(";\n")
        assert (raised.value.status, raised.value.retryable) == (400, False)
        assert [(row[1], row[2]) for row in rows(engine)] == [
            ("1", "UNAVAILABLE"),
            ("2", "UNAVAILABLE"),
            ("3", "UNAVAILABLE"),
        ]
        assert rows(engine)[0][3] == "unloaded"


def test_a_model_without_a_version_is_refused_in_the_words_of_the_protocol(tmp_path: Path) -> None:
    plus(tmp_path, text="version_policy { specific { versions: [2] } }")
    with Engine(tmp_path, options=EXPLICIT) as engine, pytest.raises(ModelUnavailable) as raised:
        engine.load_model("m")
    assert str(raised.value).startswith("load failed for model 'm': ")
    assert "at least one version must be available under the version policy of model 'm'" in str(raised.value)


def test_a_failed_reload_keeps_what_serves(tmp_path: Path) -> None:
    plus(tmp_path)
    with Engine(tmp_path) as engine:
        (tmp_path / "m/1/model.onnx").write_bytes(b"broken")
        with pytest.raises(ModelUnavailable, match="version 1 is at UNAVAILABLE state"):
            engine.load_model("m")
        assert rows(engine) == [("m", "1", "READY", "")]
        shutil.rmtree(tmp_path / "m")
        with pytest.raises(ModelNotFound):
            engine.load_model("m")
        assert rows(engine) == [("m", "1", "READY", "")]


def test_a_reload_takes_new_versions_and_drops_old_ones(tmp_path: Path) -> None:
    plus(tmp_path)
    with Engine(tmp_path) as engine:
        plus(tmp_path, versions=(2,))
        engine.load_model("m")
        expected = [("m", "1", "UNAVAILABLE", "unloaded"), ("m", "2", "READY", "")]
        eventually(lambda: rows(engine) == expected, "version 1 is gone")
        assert index(engine, b'{"ready":true}') == [{"name": "m", "version": "2", "state": "READY"}]


def test_a_name_in_two_repositories_is_refused_and_listed_as_unavailable(tmp_path: Path) -> None:
    for repository in ("one", "two"):
        plus(tmp_path / repository)
    with Engine(tmp_path / "one", tmp_path / "two", options=EXPLICIT) as engine:
        with pytest.raises(ConfigInvalid, match="is in more than one repository") as raised:
            engine.load_model("m")
        assert raised.value.status == 500
    with Engine(tmp_path / "one", tmp_path / "two", options=EXPLICIT) as engine:
        reason = "model appears in two or more repositories"
        assert index(engine) == [{"name": "m", "state": "UNAVAILABLE", "reason": reason}]


def test_a_model_file_is_a_repository_of_one_model(tmp_path: Path) -> None:
    path = tmp_path / "plus.onnx"
    path.write_bytes(models.plus_constant(1).SerializeToString())
    with Engine(path, options=EXPLICIT) as engine:
        assert index(engine) == [{"name": "plus"}]
        engine.load_model("plus")
        assert rows(engine) == [("plus", "1", "READY", "")]


def test_a_model_that_is_gone_from_the_repository_is_listed_while_it_serves(tmp_path: Path) -> None:
    plus(tmp_path)
    with Engine(tmp_path) as engine:
        shutil.rmtree(tmp_path / "m")
        assert index(engine) == [{"name": "m", "version": "1", "state": "READY"}]
        engine.unload_model("m")
        eventually(lambda: index(engine) == [], "the model is forgotten")


def test_a_model_changes_one_order_at_a_time_and_others_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plus(tmp_path)
    plus(tmp_path, "other")
    entered, leave = threading.Event(), threading.Event()
    with Engine(tmp_path, options=EXPLICIT) as engine:
        announce = engine._control._load_versions

        def hold(*arguments: object) -> object:
            if not entered.is_set():
                entered.set()
                assert leave.wait(30)
            return announce(*arguments)  # type: ignore[arg-type] # passed on as they come

        monkeypatch.setattr(engine._control, "_load_versions", hold)
        loading = threading.Thread(target=engine.load_model, args=["m"])
        loading.start()
        try:
            assert entered.wait(30)
            text = "a related model 'm' to a load/unload request is currently loading or unloading"
            with pytest.raises(ModelNotReady) as raised:
                engine.load_model("m")
            assert (str(raised.value), raised.value.status, raised.value.retryable) == (text, 500, True)
            engine.load_model("other")
        finally:
            leave.set()
            loading.join()
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


def test_overrides_are_refused_by_name(tmp_path: Path) -> None:
    plus(tmp_path)
    with Engine(tmp_path, options=EXPLICIT) as engine:
        with pytest.raises(Unsupported, match=r"^load parameter 'config' is not supported by this version$"):
            engine.load_model("m", config="{}")
        with pytest.raises(Unsupported, match=r"^load parameter 'file:1/model.onnx' is not supported"):
            engine.load_model("m", files={"file:1/model.onnx": b""})


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

        broken.setattr("runners.control.resolve", fail)
        with caplog.at_level(logging.ERROR, "runners"):
            answer = engine._core.call("POST", "/v2/repository/models/m/load", b"")
        text = "failed to load 'm', failed to poll from model repository: model 'm': SystemExit: enough"
        assert answer == (500, "internal_error", json.dumps({"error": text}, separators=(",", ":")).encode())
        assert index(engine) == [{"name": "m", "state": "UNAVAILABLE", "reason": "model 'm': SystemExit: enough"}]
        assert "model 'm' cannot be loaded" in caplog.text
        assert 'raise SystemExit("enough")' in caplog.text
        broken.undo()
        assert engine._core.call("POST", "/v2/repository/models/m/load", b"") == (200, "", b"")


def test_an_engine_that_nobody_refers_to_ends_its_threads(tmp_path: Path) -> None:
    plus(tmp_path, "forgotten")
    before, others = len(threads_named("kushi-")), control_threads()
    engine = Engine(tmp_path, options=EXPLICIT)
    assert engine._core.call("POST", "/v2/repository/models/forgotten/load", b"")[0] == 200
    eventually(lambda: threads_named("forgotten_") != [], "its instances have threads")
    assert len(control_threads() - others) == 5
    with pytest.raises(KushiError):
        engine.load_model("nowhere")
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    assert gone() is None
    assert control_threads() <= others
    eventually(lambda: threads_named("forgotten_") == [], "the instance threads have ended")
    eventually(lambda: len(threads_named("kushi-")) <= before, "the io threads have ended")


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
    monkeypatch.setattr("runners.control._PROGRESS_SECONDS", 0.01)
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


def opened_models() -> set[int]:
    return {id(kept) for kept in gc.get_objects() if isinstance(kept, Opened)}


def test_a_model_that_does_not_fit_its_configuration_is_not_kept_open(tmp_path: Path) -> None:
    wrong = 'input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 }'
    right = 'output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }'
    plus(tmp_path, text=f"max_batch_size: 4 {wrong} {right}")
    # loads that tests before this one have given up
    before = opened_models()
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        assert "expects datatype TYPE_FP32 for input 'INPUT0'" in str(engine.failures["m"])
        assert opened_models() <= before


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan])
def test_the_time_for_a_load_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(
        ConfigInvalid, match=f"^models.load_timeout_seconds is {seconds}, expected a number from 0 to 1000000$"
    ):
        EngineOptions(models=ModelOptions(load_timeout_seconds=seconds))


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
    monkeypatch.setattr("runners.control._END_PATIENCE_SECONDS", 0.1)
    plus(tmp_path)
    engine = Engine(tmp_path, options=EXPLICIT)
    with hold_file(tmp_path / "m/1/model.onnx") as held, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(engine._core.call, "POST", "/v2/repository/models/m/load", b"")
        held.wait_until_asked_for()
        engine.close()
        status, kind, body = answer.result()
        assert (status, kind, body) == (503, "shutting_down", b'{"error":"the load is given up: the engine is closed"}')
