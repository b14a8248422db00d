"""
The import law of the crates, read from `cargo metadata`: python -m tests.crate_law

bindings → {server, client, engine-*, arrays, onnx-file}, server → {door-*, net, otlp}, otlp → {trace, tls}, door-* →
{net, verbs, oip, dataplane} and never one another, verbs → {oip, dataplane}, dataplane → {trace, gpu}, {oip, trace} →
core, net → {core, tls} and no protocol, {door-*, client, dataplane, engine-worker} → shm, client → {oip, tls},
engine-python → arrays, engine-generative → text, engine-onnx → {onnx-file, text}, testkit → core, gpu, onnx-file and
text → nothing. A layer may skip one below it; tests of any crate may use testkit and shm.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

NATIVE = Path(__file__).resolve().parents[1] / "native"

Edge = tuple[str, str, str | None]
"""From, to, and the kind of the dependency: None, "dev" or "build" """


def layer(crate: str) -> str:
    kind = crate.split("-", maxsplit=1)[0]
    return kind if kind in ("door", "engine") and crate not in ALLOWED else crate


def places(crate: str) -> frozenset[str]:
    """The names by which the law may speak of a crate"""
    return frozenset({crate, crate.split("-", maxsplit=1)[0]})


ALLOWED: Mapping[str, frozenset[str]] = {
    "bindings": frozenset({"server", "client", "engine", "arrays", "onnx-file", "dataplane", "core"}),
    "server": frozenset({"door", "net", "verbs", "oip", "otlp", "dataplane", "core"}),
    "door": frozenset({"net", "verbs", "oip", "dataplane", "shm", "core"}),
    "verbs": frozenset({"oip", "dataplane", "core"}),
    "net": frozenset({"core", "tls"}),
    "dataplane": frozenset({"trace", "core", "shm", "gpu"}),
    "client": frozenset({"core", "shm", "oip", "tls"}),
    "engine": frozenset({"core"}),
    "engine-generative": frozenset({"text", "core"}),
    "engine-onnx": frozenset({"onnx-file", "text", "core"}),
    "engine-python": frozenset({"arrays", "core"}),
    "engine-worker": frozenset({"shm", "core"}),
    "arrays": frozenset({"core"}),
    "oip": frozenset({"shm", "core"}),
    "otlp": frozenset({"trace", "core", "tls"}),
    "trace": frozenset({"core"}),
    "testkit": frozenset({"core"}),
    "core": frozenset(),
    "onnx-file": frozenset(),
    "text": frozenset(),
    "gpu": frozenset(),
    "shm": frozenset(),
    "tls": frozenset({"core"}),
}

FOR_TESTS = frozenset({"testkit", "shm"})


def violations(edges: Iterable[Edge]) -> Iterator[str]:
    for source, target, kind in edges:
        if source == target or (kind == "dev" and target in FOR_TESTS):
            continue
        if layer(source) not in ALLOWED:
            yield f"crate '{source}' has no place in the import law"
        elif not places(target) & ALLOWED[layer(source)]:
            yield f"{source} → {target}{f' ({kind})' if kind else ''} is against the import law"


def edges(metadata: Mapping[str, Any]) -> Iterator[Edge]:
    """The dependencies between workspace members, each crate named as its directory"""
    directories = {package["name"]: Path(package["manifest_path"]).parent.name for package in metadata["packages"]}
    for package in metadata["packages"]:
        for dependency in package["dependencies"]:
            if dependency["name"] in directories:
                yield directories[package["name"]], directories[dependency["name"]], dependency["kind"]


def cargo_metadata() -> Mapping[str, Any]:
    command = ["cargo", "metadata", "--format-version=1", "--no-deps", "--locked", "--offline"]
    plain: Mapping[str, Any] = json.loads(subprocess.run(command, cwd=NATIVE, check=True, capture_output=True).stdout)
    return plain


if __name__ == "__main__":
    sys.exit("\n".join(violations(edges(cargo_metadata()))) or 0)
