"""What the versions of a model may be called, for those who state it and for those who ask"""

import re
from typing import Final

__all__ = ["VERSIONS", "is_label"]

VERSIONS: Final = "kushi.versions"
"""The parameter of a configuration, and of a load that changes nothing else"""
_LABEL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)


def is_label(text: str) -> bool:
    """Whether it may be one, so that nobody takes it for a number; the doors say the same"""
    return _LABEL.fullmatch(text) is not None
