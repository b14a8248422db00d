"""What an engine leaves in its process, and in a forked child of it."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

import kushi_native
import pytest

from runners import ConfigInvalid, Engine
from tests import models
from tests.forks import forked
from tests.serving import thread_names
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
