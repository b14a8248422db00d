"""
The import law of the crates, read from `cargo metadata`: python -m tests.crate_law

bindings → {doors, client, engine-*, arrays} → core, doors → dataplane → core, {doors, client} → {shm, oip, tls},
{oip, tls} → core, engine-python → arrays, testkit → core. A layer may skip one below it; tests of any crate may use
testkit.
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
    return "engine" if crate.startswith("engine-") and crate not in ALLOWED else crate


def places(crate: str) -> frozenset[str]:
    """The names by which the law may speak of a crate"""
    return frozenset({crate, "engine"}) if crate.startswith("engine-") else frozenset({crate})


ALLOWED: Mapping[str, frozenset[str]] = {
    "bindings": frozenset({"doors", "client", "engine", "arrays", "dataplane", "core"}),
    "doors": frozenset({"dataplane", "core", "shm", "oip", "tls"}),
    "dataplane": frozenset({"core"}),
    "client": frozenset({"core", "shm", "oip", "tls"}),
    "engine": frozenset({"core"}),
    "engine-python": frozenset({"arrays", "core"}),
    "arrays": frozenset({"core"}),
    "oip": frozenset({"core"}),
    "testkit": frozenset({"core"}),
    "core": frozenset(),
    "shm": frozenset(),
    "tls": frozenset({"core"}),
}


def violations(edges: Iterable[Edge]) -> Iterator[str]:
    for source, target, kind in edges:
        if source == target or (kind == "dev" and target == "testkit"):
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
