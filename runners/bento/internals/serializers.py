"""What BentoML reads bodies and writes answers with, by content type"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _bentoml_impl.serde import ALL_SERDE, MultipartSerde, Serde

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FormSerializer", "Serializer", "use_serializers"]

Serializer = Serde
"""Any of them"""
FormSerializer = MultipartSerde
"""BentoML's for forms"""


def use_serializers(kinds: Mapping[str, type[Any]]) -> None:
    """For these content types, in this process, from now on"""
    registry: Any = ALL_SERDE
    registry.update(kinds)
