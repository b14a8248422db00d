"""What a model takes and answers, as its metadata says"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

__all__ = ["Described", "Values", "described"]


@dataclass(frozen=True)
class Values:
    """An input or an output"""

    name: str
    datatype: str
    shape: tuple[int, ...]
    """With the dimension of the batch; -1 stands for any"""
    is_optional: bool = False


@dataclass(frozen=True)
class Described:
    name: str
    inputs: tuple[Values, ...]
    outputs: tuple[Values, ...]


def described(metadata: Mapping[str, Any], config: Mapping[str, Any]) -> Described:
    optional = {one["name"] for one in config.get("input", ()) if one.get("optional")}
    return Described(metadata["name"], _values(metadata["inputs"], optional), _values(metadata["outputs"]))


def _values(listed: Iterable[Mapping[str, Any]], optional: Container[str] = ()) -> tuple[Values, ...]:
    return tuple(
        Values(one["name"], one["datatype"], tuple(map(int, one["shape"])), one["name"] in optional) for one in listed
    )
