"""What follows from the definition of a group, shown with one that stands in two places"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from runners.settings import ServerTls
from runners.settings.definition import Group, inner, setting, settings_in
from runners.settings.kinds import Integer
from runners.settings.sources import SETTINGS


@dataclass(frozen=True, kw_only=True)
class Door(Group):
    """A door."""

    title = "door"

    depth: int = setting("door-depth", Integer(1, 9), "How deep, at most {width}.", default=2, aliases=("deep",))
    width: int = setting("door-wide", Integer(1, 9), "How wide.", default=3)


@dataclass(frozen=True, kw_only=True)
class House(Group):
    """A house."""

    title = "house"

    door: Door = field(default_factory=Door)
    street: ServerTls | None = field(default=None, metadata=inner(ServerTls, protocol="street", ports="the street"))
    garden: ServerTls | None = field(default=None, metadata=inner(ServerTls, protocol="garden", ports="the garden"))


def defined() -> Mapping[str, str]:
    return {one.flag: one.path for one in settings_in(House)}


def test_a_group_that_stands_in_two_places_has_flags_for_each() -> None:
    assert defined() == {
        "door-depth": "door.depth",
        "door-wide": "door.width",
        **{
            f"{place}-{flag}": f"{place}.{name}"
            for place in ("street", "garden")
            for flag, name in (
                ("use-ssl", "use"),
                ("use-ssl-mutual", "use_mutual"),
                ("server-cert", "certificate"),
                ("server-key", "key"),
                ("root-cert", "client_authorities"),
            )
        },
    }


def test_a_description_calls_other_settings_as_its_reader_does() -> None:
    described = {one.flag: one.description for one in settings_in(House)}
    assert described["door-depth"] == "How deep, at most --door-wide."
    assert described["garden-use-ssl"].startswith("Speak TLS on the garden; needs --garden-server-cert and ")
    assert Door.__doc__ == "A door.\n\ndepth: How deep, at most width.\nwidth: How wide."


def test_the_variable_follows_from_the_flag() -> None:
    (depth, *_) = settings_in(House)
    assert (depth.name, depth.variable, depth.shown_default) == ("door_depth", "KUSHI_DOOR_DEPTH", "2")


@pytest.mark.parametrize("part", ["name", "path"])
def test_no_two_settings_of_the_server_are_one(part: str) -> None:
    flags = [flag for one in SETTINGS.values() for flag in (one.flag, *one.aliases)]
    assert len({*flags}) == len(flags)
    assert len({getattr(one, part) for one in SETTINGS.values()}) == len(SETTINGS)
