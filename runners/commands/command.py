"""What a command is"""

from argparse import ArgumentParser, HelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Command"]


@dataclass(frozen=True)
class Command:
    """One word behind `kushi`"""

    name: str
    summary: str
    """In the help of `kushi`"""
    description: str
    epilog: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[dict[str, Any], ArgumentParser], int]
    """Takes the arguments and answers the exit code; `error` of the parser ends it where they are wrong"""
    normalize: Callable[[Sequence[str]], list[str]] = list
    """The words behind the command as its parser takes them; raises KushiError for those that are wrong"""
    formatter: type[HelpFormatter] = HelpFormatter
