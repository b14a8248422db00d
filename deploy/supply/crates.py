"""The crates of others that are linked into kushi_native"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "Crate", "linked"]

ROOT = Path(__file__).resolve().parents[2]
_TARGET = "x86_64-unknown-linux-gnu"


@dataclass(frozen=True, order=True)
class Crate:
    """One version of one crate"""

    name: str
    version: str
    licence: str
    folder: Path


def linked() -> list[Crate]:
    """Without what only compiles it or tests it, such as macros"""
    # lines such as `tokio v1.54.1` and `serde v1.0.229 (*)`
    edges = ("--package=kushi-bindings", "--edges=normal,no-proc-macro")
    tree = _cargo("tree", f"--target={_TARGET}", *edges, "--prefix=none")
    found = {tuple(line.split()[:2]) for line in tree.splitlines()}
    metadata: dict[str, Any] = json.loads(_cargo("metadata", "--format-version=1", f"--filter-platform={_TARGET}"))
    return sorted(
        Crate(one["name"], one["version"], one["license"] or "none", Path(one["manifest_path"]).parent)
        for one in metadata["packages"]
        if one["source"] and (one["name"], f"v{one['version']}") in found
    )


def _cargo(*arguments: str) -> str:
    command = ("cargo", *arguments, "--locked")
    return subprocess.run(command, cwd=ROOT / "native", check=True, capture_output=True, text=True).stdout
