"""
The examples of Triton's own Python backend, served by Kushi and asked as their clients ask.

They are laid out as their README files say, from a checkout of triton-inference-server/python_backend that you have
fetched; nothing of it is kept. One line for each example: what ran, or why not. The exit code is 1 where one failed.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from tritonclient import http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.peer.pair import generate
from tests.raw_http import fetch
from tests.serving import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from tests.peer.pair import Request

    Array = NDArray[Any]

__all__ = ["main"]

ROWS: Final = (np.array([1, 2.5, -3, 0], np.float32), np.array([4, 0.5, 3, 1e6], np.float32))
VALUES: Final = (4, 2, 0, 1)


NAME: Final = re.compile(r'^name: ".*"$', re.MULTILINE)


@dataclass(frozen=True)
class Model:
    """The files that a version of it is made of, seen from the folder of all examples"""

    code: str
    config: str = ""
    """Without one the model says by itself what it is"""


@dataclass(frozen=True)
class Example:
    """One folder, or one of the examples that it has"""

    folder: str
    models: Mapping[str, Model]
    ask: Callable[[Server], None]
    """Fails where an answer is not what the example says"""
    needs: Sequence[str] = ()
    """Packages"""


def add_sub(model: str, server: Server, **others: Array) -> None:
    first, second = ROWS
    results = infer(server, model, {"INPUT0": first, "INPUT1": second, **others}, ["OUTPUT0", "OUTPUT1"])
    np.testing.assert_allclose(results["OUTPUT0"], first + second)
    np.testing.assert_allclose(results["OUTPUT1"], first - second)


def auto_complete(server: Server) -> None:
    with http.InferenceServerClient(server.url.removeprefix("http://")) as client:
        for model, batch in (("nobatch_auto_complete", 0), ("batch_auto_complete", 4)):
            config = client.get_model_config(model)
            told = [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in config["input"]]
            assert (config["max_batch_size"], told) == (
                batch,
                [("INPUT0", "TYPE_FP32", [4]), ("INPUT1", "TYPE_FP32", [4])],
            ), config
    add_sub("nobatch_auto_complete", server)
    rows = np.array([ROWS[0]]), np.array([ROWS[1]])
    sums = infer(server, "batch_auto_complete", dict(zip(("INPUT0", "INPUT1"), rows, strict=True)), ["OUTPUT0"])
    np.testing.assert_allclose(sums["OUTPUT0"], rows[0] + rows[1])


def bls_sync(server: Server) -> None:
    for model in ("add_sub", "pytorch"):
        add_sub("bls_sync", server, MODEL_NAME=np.array([model], np.object_))
    with pytest.raises(InferenceServerException, match="'undefined_model'"):
        add_sub("bls_sync", server, MODEL_NAME=np.array(["undefined_model"], np.object_))


def squared(model: str, times: int, server: Server) -> None:
    """As often as the value the value, added up"""
    for value in VALUES:
        results = infer(server, model, {"IN": np.array([value], np.int32)}, ["SUM"])
        assert results["SUM"].tolist() == [times * value * value], (value, results)


def custom_metrics(server: Server) -> None:
    add_sub("custom_metrics", server)
    page = fetch(server.metrics_address, "GET", "/metrics").body.decode()
    name = "requests_process_latency_ns"
    for part in (f"# HELP {name} ", f"# TYPE {name} counter", f'{name}{{model="custom_metrics",version="1"}} '):
        assert part in page, part
    assert server.metrics()[f'{name}{{model="custom_metrics",version="1"}}'] > 0


def repeat(server: Server) -> None:
    inputs: dict[str, object] = {"IN": list(VALUES), "DELAY": [1, 2, 3, 4], "WAIT": 5}
    events = stream(server, generate("repeat_int32", inputs, stream=True))
    assert [(event["IDX"], event["OUT"]) for event in events] == list(enumerate(VALUES)), events


def square(server: Server) -> None:
    requests = [generate("square_int32", {"IN": value}, stream=True) for value in VALUES]
    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(partial(stream, server), requests))
    assert [[event["OUT"] for event in events] for events in answers] == [[value] * value for value in VALUES], answers


ADD_SUB: Final = Model("add_sub/model.py", "add_sub/config.pbtxt")
PYTORCH: Final = Model("pytorch/model.py", "pytorch/config.pbtxt")
SQUARE: Final = Model("decoupled/square_model.py", "decoupled/square_config.pbtxt")
STANDS_IN: Final = {"pytorch": ADD_SUB}
"""Which computes the same, and is asked by other examples where its package is missing"""


def one(folder: str, name: str, ask: Callable[[Server], None], **asked: Model) -> Example:
    """An example of a folder with several"""
    model = Model(f"{folder}/{name}_model.py", f"{folder}/{name}_config.pbtxt")
    return Example(folder, {f"{folder}_{name}": model, **asked}, ask)


EXAMPLES: Final = {
    "add_sub": Example("add_sub", {"add_sub": ADD_SUB}, partial(add_sub, "add_sub")),
    "auto_complete": Example(
        "auto_complete",
        {f"{name}_auto_complete": Model(f"auto_complete/{name}_model.py") for name in ("nobatch", "batch")},
        auto_complete,
    ),
    "bls (sync)": one("bls", "sync", bls_sync, add_sub=ADD_SUB, pytorch=PYTORCH),
    "bls (async)": one("bls", "async", partial(add_sub, "bls_async"), add_sub=ADD_SUB, pytorch=PYTORCH),
    "bls_decoupled (sync)": one(
        "bls_decoupled", "sync", partial(squared, "bls_decoupled_sync", 1), square_int32=SQUARE
    ),
    "bls_decoupled (async)": one(
        "bls_decoupled", "async", partial(squared, "bls_decoupled_async", 2), square_int32=SQUARE
    ),
    "custom_metrics": Example(
        "custom_metrics",
        {"custom_metrics": Model("custom_metrics/model.py", "custom_metrics/config.pbtxt")},
        custom_metrics,
    ),
    "decoupled (repeat)": Example(
        "decoupled",
        {"repeat_int32": Model("decoupled/repeat_model.py", "decoupled/repeat_config.pbtxt")},
        repeat,
    ),
    "decoupled (square)": Example("decoupled", {"square_int32": SQUARE}, square),
    "jax": Example("jax", {"jax": Model("jax/model.py", "jax/config.pbtxt")}, partial(add_sub, "jax"), ["jax"]),
    "pytorch": Example("pytorch", {"pytorch": PYTORCH}, partial(add_sub, "pytorch"), ["torch"]),
}
LEFT_OUT: Final = {
    "instance_kind": "downloads the weights of a ResNet50",
    "preprocessing": "needs a TensorRT engine, which is made on a GPU",
}


def infer(server: Server, model: str, inputs: Mapping[str, Array], wanted: Sequence[str]) -> dict[str, Array]:
    given = []
    for name, array in inputs.items():
        tensor = http.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        given.append(tensor)
    with http.InferenceServerClient(server.url.removeprefix("http://")) as client:
        outputs = [http.InferRequestedOutput(name) for name in wanted]
        result = client.infer(model, given, request_id="1", outputs=outputs)
    return {name: result.as_numpy(name) for name in wanted}


def stream(server: Server, request: Request) -> list[dict[str, Any]]:
    """The responses of a decoupled model; their own clients ask by gRPC, which Kushi does not have"""
    answer = fetch(server.http, request.method, request.path, request.headers, request.body)
    assert answer.status == 200, answer
    events = answer.body.decode().split("\n\n")
    return [json.loads(event.removeprefix("data: ")) for event in events if event]


def lay_out(examples: Path, repository: Path, models: Mapping[str, Model]) -> None:
    for name, model in models.items():
        version = repository / name / "1"
        version.mkdir(parents=True)
        shutil.copy(examples / model.code, version / "model.py")
        if model.config:
            text = (examples / model.config).read_text(encoding="utf-8")
            # one that stands in has another name
            (repository / name / "config.pbtxt").write_text(NAME.sub(f'name: "{name}"', text), encoding="utf-8")


def missing(python: Path, packages: Sequence[str]) -> list[str]:
    """The packages that the models' interpreter does not have"""
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    return [name for name in packages if subprocess.run([python, "-c", find, name], check=False).returncode]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.peer.examples", description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of triton-inference-server/python_backend")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="the interpreter of the models")
    given = parser.parse_args(arguments)
    examples = given.checkout / "examples"
    if not examples.is_dir():
        parser.error(f"'{given.checkout}' has no folder 'examples': expected a checkout of python_backend")
    lacks = {name: missing(given.python, example.needs) for name, example in EXAMPLES.items()}
    models: dict[str, Model] = {}
    for name, example in EXAMPLES.items():
        if not lacks[name]:
            models |= example.models
    stand_ins = {name: model for name, model in STANDS_IN.items() if lacks[name]}
    with tempfile.TemporaryDirectory() as home:
        lay_out(examples, Path(home), models | stand_ins)
        flags = ["--exit-on-error=false", "--strict-readiness=false"]
        flags.append(f"--backend-config=python,python-runtime={given.python.absolute()}")
        server = Server.start(Path(home), *flags)
        try:
            failed = [name for name, example in EXAMPLES.items() if not said(server, name, example, lacks[name])]
        finally:
            server.stop()
    for folder in sorted(path.name for path in examples.iterdir() if path.is_dir()):
        if all(example.folder != folder for example in EXAMPLES.values()):
            tell(f"{folder}: left out: {LEFT_OUT.get(folder, 'it is new, and nothing here asks it')}")
    for name in stand_ins:
        tell(f"{name}: add_sub stood in where other examples ask it")
    return 1 if failed else 0


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def said(server: Server, name: str, example: Example, lacks: Sequence[str]) -> bool:
    """Prints the line of an example; false where it failed"""
    if lacks:
        tell(f"{name}: left out: {', '.join(lacks)} is not installed")
        return True
    try:
        example.ask(server)
    except (AssertionError, InferenceServerException, KeyError) as error:
        tell(f"{name}: FAILED: {error}")
        return False
    tell(f"{name}: ran: {', '.join(example.models)}")
    return True


if __name__ == "__main__":
    sys.exit(main())
