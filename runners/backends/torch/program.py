"""A PyTorch model in memory, whatever kind of file it came from"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .names import Signature

__all__ = ["Device", "Program"]

Device = torch.device | None
"""Where a program is; None where its file says that, as for KIND_MODEL"""


@dataclass(frozen=True)
class Program:
    """One set of weights, mostly on one device. It may be run by several threads at once, unless it is stateful"""

    signature: Signature
    run: Callable[[Sequence[Any]], Sequence[Any] | Mapping[str, Any]]
    """Takes one value for each argument; a tensor, or strings in lists"""
    defaults: tuple[Any, ...]
    """The values of arguments that are left out"""
    writes: frozenset[int]
    """The arguments that it may write to"""
    stateful: bool
    """It changes its own weights or attributes: what it answers depends on what it was asked before"""
