"""
How settings are defined: each once, as a field of a group.

    @dataclass(frozen=True, kw_only=True)
    class HttpOptions(Group):
        ...

        title = "HTTP"

        max_headers: int = setting("http-max-headers", Integer(8, 1024), "Most headers of a request.", default=100)
        tls: ServerTls | None = field(default=None, metadata=inner(ServerTls, protocol="http"))

From that come the object of a program with its documentation and its checks, the flag with its help, the environment
variable, and the reference. Groups stand in groups. In a description the name of another setting of the group in braces
is what that one is called where the description is read. Other words in braces, in flags as well, are those of the
place where the group stands, so that one group may stand in two.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from inspect import cleandoc
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar, cast

from ..errors import ConfigInvalid
from .kinds import Kind

__all__ = ["Group", "Inner", "Naming", "Setting", "inner", "setting", "settings_in", "stated"]

Naming = Callable[[str], str]
"""What a setting of a group is called by whoever states it: its flag, its variable, or its path in an object"""

_MEMBER = "member"
_T = TypeVar("_T")
_NO_WORDS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Setting:
    """One setting"""

    flag: str
    """As tritonserver calls it, where it has it"""
    kind: Kind
    description: str
    default: Any = None
    """What the flag does not need to say; None and () where there is nothing to say"""
    aliases: tuple[str, ...] = ()
    """Other flags for the same"""
    path: str = ""
    """Where it stands: the names of the groups around it, and its own, joined by points"""
    title: str = ""
    """Of its section in the help"""
    is_in_object: bool = True
    """Else it is a switch, which other settings in an object imply"""

    @property
    def name(self) -> str:
        """Of its flag, as an identifier"""
        return self.flag.replace("-", "_")

    @property
    def variable(self) -> str:
        """The environment variable"""
        return f"KUSHI_{self.name.upper()}"

    @property
    def shown_default(self) -> str:
        """As a flag states it; empty where there is none"""
        if self.default in {None, ()}:
            return ""
        if isinstance(self.default, tuple):
            return ",".join(map(str, self.default))
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


@dataclass(frozen=True)
class Inner:
    """A group that stands in a group"""

    group: "type[Group]"
    words: Mapping[str, str] = field(default_factory=dict)


def stated(flag: str, kind: Kind, description: str, **more: Any) -> Mapping[str, Setting]:  # noqa: ANN401 - of Setting
    """What makes a field of a group a setting: its `metadata`"""
    return {_MEMBER: Setting(flag, kind, description, **more)}


def setting(flag: str, kind: Kind, description: str, *, default: _T, aliases: tuple[str, ...] = ()) -> _T:
    """A setting as a field of a group, with a default that does not change"""
    made: Any = field(default=default, metadata=stated(flag, kind, description, default=default, aliases=aliases))
    return cast("_T", made)


def inner(made: "type[Group]", **words: str) -> Mapping[str, Inner]:
    """What makes a field of a group a group that need not be there: its `metadata`"""
    return {_MEMBER: Inner(made, words)}


class _Names(dict[str, str]):
    """The settings of a group as an object has them"""

    def __missing__(self, name: str) -> str:
        return name


@dataclass(frozen=True)
class Group:
    """A dataclass of settings; its documentation lists them"""

    title: ClassVar[str]
    """Of its section in the help"""
    switches: ClassVar[Mapping[str, Setting]] = MappingProxyType({})
    """What flags state and an object need not: `of` sees it"""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        lines = []
        for name, value in vars(cls).items():
            match _member(value) if isinstance(value, Field) else None:
                case Setting(description=description):
                    lines.append(f"{name}: {description.format_map(_Names())}")
                case Inner(group=group):
                    lines.append(f"{name}: see {group.__name__}.")
        cls.__doc__ = "\n\n".join(filter(None, [cleandoc(cls.__doc__ or ""), "\n".join(lines)]))

    @classmethod
    def of(cls, values: Mapping[str, Any], name: Naming) -> Self | None:  # noqa: ARG003 - for those with switches
        """The group for what flags and variables state: values by the names of fields and switches"""
        return cls(**values)

    def check(self, name: Naming) -> None:
        """Raises where settings do not go together"""

    @classmethod
    def members(cls) -> Iterator[tuple[str, Setting | Inner]]:
        """What is in the group by its name, switches first"""
        yield from cls.switches.items()
        yield from ((one.name, _member(one)) for one in fields(cls))

    def check_objects(self, at: str = "") -> None:
        """Raises where an object of a program has a wrong value, here or in the groups of this one"""
        for one in fields(self):
            value, path = getattr(self, one.name), f"{at}{one.name}"
            if value is None and one.default is None:
                continue
            match _member(one):
                case Setting(kind=kind):
                    kind.check(value, path)
                case Inner(group=group) if isinstance(value, group):
                    value.check_objects(f"{path}.")
                case Inner(group=group):
                    raise ConfigInvalid(f"{path} is {value!r}, expected {group.__name__}")
        self.check(lambda name: f"{at}{name}")


def _member(one: Field[Any]) -> Setting | Inner:
    """A group that is always there is the default of its field"""
    found: Setting | Inner | None = one.metadata.get(_MEMBER)
    return found or Inner(cast("type[Group]", one.default_factory))


def settings_in(outer: type[Group], at: str = "", words: Mapping[str, str] = _NO_WORDS) -> Iterator[Setting]:
    """All settings of a group and of the groups in it, with their paths from it on"""
    members = dict(outer.members())
    flags = {name: one.flag.format_map(words) for name, one in members.items() if isinstance(one, Setting)}
    words = {**words, **{name: f"--{flag}" for name, flag in flags.items()}}
    for name, one in members.items():
        if isinstance(one, Inner):
            yield from settings_in(one.group, f"{at}{name}.", one.words)
        else:
            description = one.description.format_map(words)
            yield replace(
                one,
                flag=flags[name],
                description=description,
                path=f"{at}{name}",
                title=outer.title,
                is_in_object=name not in outer.switches,
            )
