"""The models that a service names, in the versions with which its Bento was built"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import bentoml

__all__ = ["built_with"]


def built_with(service: bentoml.Service[Any]) -> dict[int, Any]:
    """By the `id` of what the service names; nothing where it was not built"""
    if service.bento is None:
        return {}
    (built,) = (found for found in service.bento.info.services if found.name == service.name)
    return {id(named): info.to_model() for named, info in zip(service.models, built.models, strict=True)}
