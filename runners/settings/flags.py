"""The flags of `kushi serve`: one for each setting, named as tritonserver's, and a word for those that do not exist."""

from argparse import ArgumentParser
from collections.abc import Sequence

from ..errors import ConfigInvalid, Unsupported
from .absent import ABSENT, INSTEAD
from .definition import Setting
from .kinds import Several, Switch
from .sources import SETTINGS, nearest

__all__ = ["add_flags", "normalize_flags"]

_SETTINGS = {flag: one for one in SETTINGS.values() for flag in (one.flag, *one.aliases)}


def add_flags(parser: ArgumentParser) -> None:
    """Adds a flag for every setting, in sections; what is not given stays absent from the parsed arguments"""
    titles = dict.fromkeys(one.title for one in SETTINGS.values())
    sections = {title: parser.add_argument_group(title) for title in titles}
    for one in SETTINGS.values():
        sections[one.title].add_argument(
            *(f"--{flag}" for flag in (one.flag, *one.aliases)),
            dest=one.name,
            action="append" if isinstance(one.kind, Several) else "store",
            default=None,
            metavar=one.kind.placeholder,
            help=f"{one.description}{one.kind.note} {_default(one)}[{one.variable}]".replace("%", "%%"),
        )


def normalize_flags(arguments: Sequence[str]) -> list[str]:
    """
    `arguments` with every flag as --name=value: a bare switch is true. Refuses flags that do not exist, with the
    nearest that does, and by their name those of tritonserver that this version lacks.
    """
    normal: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*normal, word, *rest]
        if word in {"-", "-h", "--help"} or not word.startswith("-"):
            normal.append(word)
            continue
        if not word.startswith("--"):
            raise ConfigInvalid(f"unknown flag {word}, see 'kushi serve --help'")
        name, given, value = word.removeprefix("--").partition("=")
        if name not in _SETTINGS and name not in ABSENT:
            raise ConfigInvalid(f"unknown flag --{name}{nearest(name, _SETTINGS, '--')}")
        if not given:
            value = _take_value(name, rest)
        if name not in ABSENT:
            normal.append(f"--{name}={value}")
        elif value.lower() not in ABSENT[name]:
            accepted = "".join(f", only --{name}={off} is accepted" for off in sorted(ABSENT[name])[-1:])
            instead = f": {INSTEAD[name]}" if name in INSTEAD else accepted
            raise Unsupported(f"--{name} is a flag of tritonserver that this version does not support yet{instead}")
    return normal


def _take_value(name: str, rest: list[str]) -> str:
    if name in ABSENT:
        return rest.pop(0) if rest and not rest[0].startswith("--") else ""
    if isinstance(_SETTINGS[name].kind, Switch):
        return rest.pop(0) if rest and rest[0].lower() in Switch.WORDS else "true"
    if not rest:
        raise ConfigInvalid(f"--{name}: expected a value")
    return rest.pop(0)


def _default(one: Setting) -> str:
    return f"Default: {one.shown_default}. " if one.shown_default else ""
