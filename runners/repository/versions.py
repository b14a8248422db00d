"""The version policy: which of the versions on disk are served"""

from collections.abc import Iterable

from .messages import ModelConfig

__all__ = ["missing", "served"]


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
