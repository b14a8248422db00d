"""The shared libraries among the examples of the native workspace (``make conformance``)."""

from __future__ import annotations

from pathlib import Path

__all__ = ["built"]


def built(name: str) -> Path:
    """Where the library of an example lies once it is built."""
    return Path(__file__).resolve().parents[1] / "native" / "target" / "debug" / "examples" / f"lib{name}.so"
