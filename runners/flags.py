"""The flags of `kushi serve`: one for each setting, named as tritonserver's, and a word for those that do not exist."""

from argparse import ArgumentParser
from collections.abc import Sequence

from pydantic.fields import FieldInfo

from .errors import ConfigInvalid, Unsupported
from .settings import WORDS, ServerSettings, flag_of, nearest, placeholder, variable_of
from .tritonserver import ABSENT

__all__ = ["add_flags", "normalize_flags"]

_ALIASES = {"model-store": "model-repository"}


def add_flags(parser: ArgumentParser) -> None:
    """Adds a flag for every setting; what is not given stays absent from the parsed arguments"""
    for name, field in ServerSettings.model_fields.items():
        flag = flag_of(name)
        aliases = [f"--{alias}" for alias, target in _ALIASES.items() if target == flag]
        parser.add_argument(
            f"--{flag}",
            *aliases,
            dest=name,
            action="append" if field.default == () else "store",
            default=None,
            metavar=placeholder(field),
            help=f"{field.description} {_default(field)}[{variable_of(name)}]".replace("%", "%%"),
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
        _check_known(name)
        if not given:
            value = _take_value(name, rest)
        if name not in ABSENT:
            normal.append(f"--{name}={value}")
        elif value.lower() not in ABSENT[name]:
            accepted = "".join(f", only --{name}={off} is accepted" for off in sorted(ABSENT[name])[-1:])
            raise Unsupported(f"--{name} is a flag of tritonserver that this version does not support yet{accepted}")
    return normal


def _check_known(name: str) -> None:
    flags = [*map(flag_of, ServerSettings.model_fields), *_ALIASES]
    if name not in flags and name not in ABSENT:
        raise ConfigInvalid(f"unknown flag --{name}{nearest(name, flags, '--')}")


def _take_value(name: str, rest: list[str]) -> str:
    if name in ABSENT:
        return rest.pop(0) if rest and not rest[0].startswith("--") else ""
    field = ServerSettings.model_fields[_ALIASES.get(name, name).replace("-", "_")]
    if field.annotation is bool:
        return rest.pop(0) if rest and rest[0].lower() in WORDS else "true"
    if not rest:
        raise ConfigInvalid(f"--{name}: expected a value")
    return rest.pop(0)


def _default(field: FieldInfo) -> str:
    if field.default in {None, ()}:
        return ""
    shown = str(field.default).lower() if isinstance(field.default, bool) else field.default
    return f"Default: {shown}. "
