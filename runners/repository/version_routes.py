"""
How requests find the versions of a model: the parameter `kushi.versions`, in JSON.

    {"labels": {"stable": 1, "canary": 2}, "weights": {"stable": 90, "canary": 10}, "sticky": "user"}

A label is a name for a version. Weights share out the requests that name no version; the value of the parameter or
header that `sticky` names says where a request goes, the same for equal values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..errors import ConfigInvalid
from ..version_labels import VERSIONS, is_label

if TYPE_CHECKING:
    from .messages import ModelConfig, ModelInput, ModelOutput

__all__ = [
    "NO_ROUTES",
    "STATED",
    "VersionRoutes",
    "check_alike",
    "check_routes",
    "is_number",
    "json_object",
    "read_routes",
    "routes_from",
    "routes_of",
    "routes_text",
    "with_routes",
]

STATED: Final = f"parameter '{VERSIONS}'"
"""How errors name what a configuration says, or a change"""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_MOST: Final = 64
_MOST_CHARACTERS: Final = 16 * 1024
_HIGHEST: Final = 2**63 - 1
_DIGITS: Final = len(str(_HIGHEST))
_HEAVIEST: Final = 1_000_000_000


@dataclass(frozen=True)
class VersionRoutes:
    """As somebody states them: weights are of labels, or of numbers written as texts"""

    labels: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    sticky: str | None = None

    @property
    def plain(self) -> dict[str, Any]:
        """What is stated, for JSON"""
        stated = {"labels": dict(self.labels), "weights": dict(self.weights), "sticky": self.sticky}
        return {name: value for name, value in stated.items() if value}

    @property
    def text(self) -> str:
        return json.dumps(self.plain)

    def version(self, name: str) -> int:
        """The number of a label, or of a number"""
        return self.labels[name] if name in self.labels else int(name)

    def shares(self) -> dict[int, float]:
        """By version"""
        shares: dict[int, float] = {}
        for name, weight in self.weights.items():
            if weight:
                shares[self.version(name)] = shares.get(self.version(name), 0) + weight
        return shares

    def native(self) -> str:
        """For the core"""
        return json.dumps({"labels": dict(self.labels), "weights": self.shares(), "sticky": self.sticky})


NO_ROUTES: Final = VersionRoutes()


def read_routes(text: str, where: str = STATED) -> VersionRoutes:
    """`where`: how an error names the text"""
    return routes_from(json_object(text, where), where)


def json_object(text: str, where: str, most: int = _MOST_CHARACTERS) -> dict[str, Any]:
    """What somebody states, in so many characters at most; `where` as above"""
    if len(text) > most:
        raise ConfigInvalid(f"{where}: more than {most} characters")
    try:
        stated = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise ConfigInvalid(f"{where}: expected JSON ({error})") from None
    if not isinstance(stated, dict):
        raise ConfigInvalid(f"{where}: expected an object, as in {_EXAMPLE}")
    return stated


_EXAMPLE: Final = '{"labels": {"stable": 1, "canary": 2}, "weights": {"stable": 90, "canary": 10}}'


def routes_from(stated: object, where: str) -> VersionRoutes:
    """The same of what was read"""
    if not isinstance(stated, dict):
        raise ConfigInvalid(f"{where}: expected an object, as in {_EXAMPLE}")
    if unknown := sorted(map(str, stated.keys() - {"labels", "weights", "sticky"})):
        raise ConfigInvalid(f"{where}: '{unknown[0]}' is not known there, expected 'labels', 'weights' or 'sticky'")
    labels = _mapping(stated.get("labels"), f"{where}, 'labels'")
    weights = _mapping(stated.get("weights"), f"{where}, 'weights'")
    _check_labels(labels, where)
    _check_weights(weights, labels, where)
    sticky = None if stated.get("sticky") in (None, "") else stated["sticky"]
    if sticky is not None and not (isinstance(sticky, str) and _NAME.fullmatch(sticky)):
        raise ConfigInvalid(
            f"{where}: 'sticky' is {sticky!r}, expected the name of a parameter or header, of letters, digits, '_', "
            "'-' and '.'"
        )
    return VersionRoutes(labels, weights, sticky)


def _check_labels(labels: Mapping[str, Any], where: str) -> None:
    for label, version in labels.items():
        if not is_label(label):
            raise ConfigInvalid(
                f"{where}: label '{label}' has to begin with a letter, and to go on with letters, digits, '_', '-' and "
                "'.', 64 at most"
            )
        if isinstance(version, bool) or not isinstance(version, int) or not 0 < version <= _HIGHEST:
            raise ConfigInvalid(f"{where}: label '{label}' names {version!r}, expected the number of a version")


def _check_weights(weights: Mapping[str, Any], labels: Mapping[str, int], where: str) -> None:
    for name, weight in weights.items():
        if name not in labels and not is_number(name):
            raise ConfigInvalid(f"{where}: a weight is for '{name}', expected one of the labels, or a version's number")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= _HEAVIEST:
            raise ConfigInvalid(
                f"{where}: the weight of '{name}' is {weight!r}, expected a number from 0 to {_HEAVIEST}"
            )
    if weights and not any(weights.values()):
        raise ConfigInvalid(f"{where}: all weights are 0")


def is_number(text: str) -> bool:
    """Whether it is one that a version may have"""
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS and 0 < int(text) <= _HIGHEST


def _mapping(stated: object, where: str) -> dict[str, Any]:
    if stated is None:
        return {}
    if not isinstance(stated, dict):
        raise ConfigInvalid(f"{where}: expected an object")
    if len(stated) > _MOST:
        raise ConfigInvalid(f"{where}: {len(stated)} entries, expected at most {_MOST}")
    return stated


def routes_of(config: ModelConfig) -> VersionRoutes | None:
    """As the configuration states them"""
    text = routes_text(config)
    return read_routes(text) if text else None


def routes_text(config: ModelConfig) -> str:
    """The same as it is written; "" where nothing is"""
    return config.parameters[VERSIONS].string_value if VERSIONS in config.parameters else ""


def with_routes(config: ModelConfig, routes: VersionRoutes) -> ModelConfig:
    """The same configuration with other ones"""
    changed = type(config)()
    changed.CopyFrom(config)
    if routes == NO_ROUTES:
        changed.parameters.pop(VERSIONS, None)
    else:
        changed.parameters[VERSIONS].string_value = routes.text
    return changed


def check_routes(config: ModelConfig, versions: Collection[int], where: str = STATED) -> None:
    """Raises where they name a version that is not served, or cannot be read; `where` as above"""
    routes = routes_of(config)
    if routes is None:
        return
    named = {f"label '{label}'": version for label, version in routes.labels.items()}
    named |= {f"the weight of '{name}'": routes.version(name) for name in routes.weights}
    for what, version in named.items():
        if version not in versions:
            there = ", ".join(map(str, sorted(versions))) or "none"
            raise ConfigInvalid(
                f"{where}: {what} is for version {version}, and the versions that are served are "
                f"{there}: version_policy says which, as version_policy: {{ all {{ }} }}"
            )


def check_alike(routes: VersionRoutes | None, configs: Mapping[int, ModelConfig]) -> None:
    """Raises where versions share requests and do not take the same ones: nobody knows which of them a request meets"""
    first, *others = sorted(routes.shares() if routes else ()) or [0]
    for other in others:
        what = _difference(configs[first], configs[other])
        if what:
            raise ConfigInvalid(
                f"{STATED}: versions {first} and {other} have weights and differ in {what}: requests can be shared out "
                "between versions alone that take and give the same"
            )


def _difference(one: ModelConfig, other: ModelConfig) -> str:
    if one.max_batch_size != other.max_batch_size:
        return "max_batch_size"
    if one.model_transaction_policy.decoupled != other.model_transaction_policy.decoupled:
        return "whether they are decoupled"
    for what, tensors, others in (("input", one.input, other.input), ("output", one.output, other.output)):
        known = {tensor.name: tensor for tensor in others}
        for tensor in tensors:
            if tensor.name not in known or _form(tensor) != _form(known[tensor.name]):
                return f"{what} '{tensor.name}'"
        if len(known) != len(tensors):
            return f"their {what}s"
    return ""


def _form(tensor: ModelInput | ModelOutput) -> tuple[object, ...]:
    return tensor.data_type, tuple(tensor.dims), getattr(tensor, "optional", False)
