"""What an engine leaves in its process, and in a forked child of it."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import kushi_native
import pytest

from runners import ConfigInvalid, Engine
from tests import models
from tests.forks import forked
from tests.processes import thread_names
from tests.waiting import eventually

LEVEL = {"max_requests": 0, "default_timeout_us": 0, "allow_timeout_override": False, "timeout_action": "REJECT"}


def threads_of(model: str) -> list[str]:
    return [name for name in thread_names(os.getpid()).values() if name.startswith(f"{model}_")]


@pytest.mark.clock
def test_a_model_of_which_one_version_does_not_start_leaves_no_threads(tmp_path: Path) -> None:
    models.write_add_sub(tmp_path)
    with Engine(tmp_path) as engine:
        core = engine._own()
        path = str(tmp_path / "add_sub" / "1" / "model.onnx")
        session = kushi_native.OnnxModel(path, "{}")
        tensors = [{"name": name, "datatype": kind, "dims": (dims or [])[1:]} for name, kind, dims in session.inputs]
        good = {
            "name": "halfgood",
            "version": 1,
            "platform": "onnxruntime_onnx",
            "backend": "onnxruntime",
            "max_batch_size": 4,
            "decoupled": False,
            "inputs": [{**tensor, "reshape": None, "optional": False} for tensor in tensors],
            "outputs": [],
            "batching": None,
            "queue": {"max_bytes": 1, "levels": [LEVEL], "default_level": 1},
            "instances": 1,
            "inline": True,
            "config_json": "{}",
            "load_seconds": 0.0,
        }
        bad = {**good, "version": 2, "inputs": []}
        started = core.start("halfgood", json.dumps(good), [session])
        with pytest.raises(ConfigInvalid, match="the model needs input 'INPUT0'"):
            core.start("halfgood", json.dumps(bad), [session])
        del started
        assert threads_of("halfgood") == []
        core.publish("halfgood", [core.start("halfgood", json.dumps(good), [session])])
        eventually(lambda: len(threads_of("halfgood")) == 1, "its thread has its name")


def test_a_forked_child_drops_its_copy_of_an_engine_without_a_word(tmp_path: Path) -> None:
    models.write_add_sub(tmp_path)
    path = tmp_path / "socket"
    engine = Engine(tmp_path)
    engine.serve_http_unix(path)
    engines = [engine]
    del engine

    def child() -> str:
        engines.clear()
        gc.collect()
        return "dropped"

    assert forked(child) == "dropped"
    engine = engines.pop()
    assert path.is_socket()
    assert [model.state for model in engine.models()] == ["READY"]
    engine.close()
    assert not path.exists()


FORKING: Final = """
import ctypes, os, signal, threading, warnings
import kushi_native

warnings.simplefilter("ignore", DeprecationWarning)
library = ctypes.CDLL(None)
# this sort compares by registering handlers, without the GIL
register, count = ctypes.cast(library.on_exit, ctypes.c_void_p), ctypes.c_size_t(100_000)


def sort():
    while True:
        library.qsort(ctypes.create_string_buffer(count.value), count, ctypes.c_size_t(1), register)


threading.Thread(target=sort, daemon=True).start()
# whoever stands is ended by it
signal.alarm(60)
for _ in range(30):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
os.write(1, b"forked")
# those handlers are none
os._exit(0)
"""


def test_a_fork_does_not_wait_for_a_lock_that_another_thread_held() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, timeout=90, check=False)
    assert (done.returncode, done.stdout) == (0, b"forked"), done.stderr
