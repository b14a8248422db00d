"""The version policy: which of the versions on disk are served"""

import re
from collections.abc import Iterable

from .messages import ModelConfig

__all__ = ["missing", "served", "version_number"]

_VERSION = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_LARGEST = 2**63 - 1


def version_number(name: str) -> int | None:
    """The version that a directory of this name has; None where it has none"""
    number = int(name) if _VERSION.fullmatch(name) else _LARGEST + 1
    return number if number <= _LARGEST else None


def served(config: ModelConfig, existing: Iterable[int]) -> tuple[int, ...]:
    """The versions to load, in ascending order: the latest one where nothing is said"""
    versions = sorted(set(existing))
    policy = config.version_policy
    match policy.WhichOneof("policy_choice"):
        case "specific":
            wanted = set(policy.specific.versions)
            return tuple(v for v in versions if v in wanted)
        case "latest":
            return tuple(versions[-(policy.latest.num_versions or 1) :])
        case _:
            return tuple(versions if config.HasField("version_policy") else versions[-1:])


def missing(config: ModelConfig, existing: Iterable[int]) -> tuple[int, ...]:
    """The versions that a specific policy asks for and the disk does not have"""
    return tuple(sorted(set(config.version_policy.specific.versions) - set(existing)))
