"""
Where settings come from: flags, and environment variables for what no flag states. Every value is read by the kind of
its setting; what is wrong is named as it was stated, all of it at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, TypeVar, cast

from ..elsewhere import ENGINE_VARIABLES
from ..environment import variables
from ..errors import ConfigInvalid, KushiError, Unsupported
from .absent import ABSENT, INSTEAD
from .definition import Group, Inner, Setting, settings_in
from .server import ServerSettings

__all__ = ["SETTINGS", "check_flags", "flag_of", "given_in_environment", "nearest", "read_server", "read_settings"]

_PREFIX = "KUSHI_"
_G = TypeVar("_G", bound=Group)

SETTINGS: Mapping[str, Setting] = MappingProxyType({one.name: one for one in settings_in(ServerSettings)})
"""All settings by the names of their flags, as identifiers"""


def read_settings(flags: Mapping[str, object]) -> ServerSettings:
    """The settings from `flags`, where they are given, and the environment"""
    return _Stated(_given(flags), _variables()).make(ServerSettings)


def read_server(flags: Mapping[str, object]) -> ServerSettings:
    """The same for a server of its own, which needs models and a door"""
    stated = _Stated(_given(flags), _variables())
    settings = stated.make(ServerSettings)
    settings.check_serving(stated.called)
    return settings


def check_flags(flags: Mapping[str, object]) -> None:
    """Raises for flags, with underscores, that do not exist or have wrong values; the environment is not read"""
    for name in flags:
        if flag_of(name) in ABSENT:
            instead = f": {INSTEAD[flag_of(name)]}" if flag_of(name) in INSTEAD else ""
            raise Unsupported(f"'{name}' is a flag of tritonserver that this version does not support yet{instead}")
        if name not in SETTINGS:
            raise ConfigInvalid(f"unknown flag '{name}'{nearest(name, SETTINGS)}")
    _Stated(flags, {})


def given_in_environment(*names: str) -> bool:
    """Whether a variable sets one of these settings"""
    return any(SETTINGS[name].variable in variables(_PREFIX) for name in names)


def flag_of(name: str) -> str:
    """The flag whose name as an identifier is `name`"""
    return name.replace("_", "-")


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Which of the `known` names may have been meant, to follow the word that there is no such name"""
    near = get_close_matches(name, sorted(known), n=1)
    return f", did you mean {prefix}{near[0]}?" if near else ", see 'kushi serve --help'"


def _given(flags: Mapping[str, object]) -> dict[str, object]:
    """Those that a command line has"""
    return {name: value for name, value in flags.items() if value is not None}


def _variables() -> dict[str, str]:
    """Those of settings by their names; unknown ones are refused"""
    known = {one.variable for one in SETTINGS.values()} | {*ENGINE_VARIABLES}
    found = variables(_PREFIX)
    for variable in sorted(found):
        if variable.upper() not in known:
            raise ConfigInvalid(f"unknown environment variable {variable}{nearest(variable.upper(), known)}")
    return {variable.upper(): value for variable, value in found.items()}


class _Stated:
    """What flags and variables state, by the paths of the settings"""

    def __init__(self, flags: Mapping[str, object], found: Mapping[str, str]) -> None:
        self._values: dict[str, Any] = {}
        self._called = {one.path: f"--{one.flag}" for one in SETTINGS.values()}
        faults: list[KushiError] = []
        for one in SETTINGS.values():
            if one.name not in flags and one.variable in found:
                self._called[one.path] = one.variable
            elif one.name not in flags:
                continue
            given = flags[one.name] if one.name in flags else found[one.variable]
            try:
                self._values[one.path] = one.kind.read(given, self._called[one.path])
            except KushiError as error:
                faults.append(error)
        if len(faults) == 1:
            raise faults[0]
        if faults:
            raise ConfigInvalid("; ".join(map(str, faults)))

    def called(self, path: str) -> str:
        """The variable of the setting at `path` where that states it, else the flag"""
        return self._called[path]

    def make(self, made: type[_G]) -> _G:
        """A group at the top"""
        return cast("_G", self._make(made, ""))

    def _make(self, made: type[_G], at: str) -> _G | None:
        def name(member: str) -> str:
            return self.called(f"{at}{member}")

        group = made.of(dict(self._members(made, at)), name)
        if group is not None:
            group.check(name)
        return group

    def _members(self, made: type[Group], at: str) -> Iterator[tuple[str, Any]]:
        for name, member in made.members():
            path = f"{at}{name}"
            if isinstance(member, Inner):
                yield name, self._make(member.group, f"{path}.")
            elif path in self._values:
                yield name, self._values[path]
