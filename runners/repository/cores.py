"""`kushi.cores`: on which cores of the machine the instances of a model run"""

import re
from collections.abc import Collection, Iterator, Sequence

from ..errors import ConfigInvalid
from ..integers import integer
from .messages import ModelConfig
from .specification import instances_of

__all__ = ["CORES", "Cores", "check_cores", "core_sets", "cores_of_instances", "cores_together", "written"]

CORES = "kushi.cores"
_MOST_CORES = 1024
"""What a set of cores can hold that the kernel takes"""
_MOST_CHARACTERS = 64 * 1024
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?", re.ASCII)
_EXPECTED = "expected cores as in '0-3,8' for all instances, or '0-3;4-7' with a set for each"

Cores = tuple[int, ...]
"""In ascending order, each once"""


def core_sets(config: ModelConfig) -> tuple[Cores, ...]:
    """The sets that the configuration states: none, one for all instances, or one for each"""
    if CORES not in config.parameters:
        return ()
    text = config.parameters[CORES].string_value
    if len(text) > _MOST_CHARACTERS:
        raise ConfigInvalid(
            f"parameter '{CORES}' of model '{config.name}' has {len(text)} characters, expected at most "
            f"{_MOST_CHARACTERS}"
        )
    return tuple(tuple(sorted({*_cores(config, part, text)})) for part in text.split(";"))


def cores_of_instances(config: ModelConfig) -> tuple[Cores, ...]:
    """The cores of each instance, after `fill_instance_groups`; nothing where the configuration states none"""
    sets, instances = core_sets(config), instances_of(config)
    if len(sets) > 1 and len(sets) != instances:
        raise ConfigInvalid(
            f"parameter '{CORES}' of model '{config.name}' has {len(sets)} sets of cores and the model {instances} "
            "instance(s), expected one set for all, or one for each"
        )
    return sets * instances if len(sets) == 1 else sets


def check_cores(config: ModelConfig, usable: Collection[int]) -> None:
    """Refuses cores that this process may not use"""
    stated = {core for cores in cores_of_instances(config) for core in cores}
    if missing := sorted(stated.difference(usable)):
        raise ConfigInvalid(
            f"parameter '{CORES}' of model '{config.name}': this process may not use the cores {written(missing)}, it "
            f"may use {written(sorted(usable))}"
        )


def cores_together(sets: Sequence[Cores], usable: int) -> int:
    """
    How many cores there are for all instances, of which each gets an equal part: no more than any of them has by
    itself, and together no more than `usable`, the quota of the process
    """
    if not sets:
        return usable
    return min(len(sets) * min(map(len, sets)), len({core for cores in sets for core in cores}), usable)


def written(cores: Sequence[int]) -> str:
    """As a configuration states them, shortened to ranges"""
    ranges: list[list[int]] = []
    for core in cores:
        if ranges and core == ranges[-1][-1] + 1:
            ranges[-1][1:] = [core]
        else:
            ranges.append([core])
    return ",".join("-".join(map(str, one)) for one in ranges)


def _cores(config: ModelConfig, part: str, text: str) -> Iterator[int]:
    for one in part.split(","):
        found = _RANGE.fullmatch(one.strip())
        first = integer(found[1], 0, _MOST_CORES - 1) if found else None
        last = integer(found[2] or found[1], 0, _MOST_CORES - 1) if found else None
        if first is None or last is None or last < first:
            raise ConfigInvalid(f"parameter '{CORES}' of model '{config.name}': {_EXPECTED}, got '{text}'")
        yield from range(first, last + 1)
