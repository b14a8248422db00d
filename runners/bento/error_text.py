"""What the clients of a service are told when an engine cannot be reached: not where it is"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..errors import ConnectionLost

if TYPE_CHECKING:
    from ..errors import KushiError

__all__ = ["ABSENT", "error_text"]

ABSENT: Final = "the engine is not there yet, or not any more: /readyz answers 200 when it is"


def error_text(error: KushiError) -> str:
    """The text of an error as it may leave the service"""
    return ABSENT if isinstance(error, ConnectionLost) else str(error)
