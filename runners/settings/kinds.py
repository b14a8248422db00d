"""
The kinds of values that settings take: how the text of a flag or a variable is read, and what is right in an object of
a program. Texts are Triton's; objects are plain Python values.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, cast

from ..errors import ConfigInvalid, about, not_shown
from ..integers import integer
from ..repository.backend_config import check_backend_config, describe_settings, parse_backend_config
from ..repository.discovery import add_directory
from ..restrictions import RESTRICTION, Restriction, parse_restriction

__all__ = [
    "BackendDirectory",
    "BackendSettings",
    "Choice",
    "Integer",
    "Kind",
    "Level",
    "Port",
    "Restrictions",
    "Seconds",
    "Several",
    "Switch",
    "Text",
]


class Kind(ABC):
    """What a setting takes"""

    placeholder: str
    """What stands for the value in help"""
    expected: str
    """How an error says what a flag takes"""

    @property
    def note(self) -> str:
        """What the help says about how the value is stated, behind what it is for"""
        return ""

    @property
    def expected_object(self) -> str:
        """How an error says what an object takes"""
        return self.expected

    @abstractmethod
    def parse(self, text: str) -> object:
        """The value that `text` states, None where it states none"""

    @abstractmethod
    def accepts(self, value: object) -> bool:
        """Whether `value` is one of the kind"""

    def read(self, given: object, source: str) -> object:
        """What a flag or a variable states: a text, or a plain value where a program states flags"""
        value = self.parse(given) if isinstance(given, str) else given
        if not self.accepts(value):
            raise self.wrong(given, source)
        return value

    def check(self, value: object, path: str) -> None:
        """Raises where an object at `path` has a wrong value"""
        if not self.accepts(value):
            raise ConfigInvalid(f"{path} is {value!r}, expected {self.expected_object}")

    def wrong(self, given: object, source: str) -> ConfigInvalid:
        """The error for what a flag or a variable states"""
        return ConfigInvalid(f"{source}: expected {self.expected}, got {given!r}")


class Switch(Kind):
    """Yes or no, in the words of tritonserver"""

    WORDS: ClassVar[Mapping[str, bool]] = {
        "true": True,
        "false": False,
        "on": True,
        "off": False,
        "1": True,
        "0": False,
    }
    placeholder = "true|false"
    expected = "true, false, on, off, 1 or 0"

    @property
    def expected_object(self) -> str:
        return "True or False"

    def parse(self, text: str) -> bool | None:
        return self.WORDS.get(text.lower())

    def accepts(self, value: object) -> bool:
        return isinstance(value, bool)


class Integer(Kind):
    """A whole number between two bounds, which belong to it"""

    placeholder = "N"

    def __init__(self, least: int, most: int, placeholder: str = "N") -> None:
        self.least, self.most = least, most
        self.placeholder = placeholder
        self.expected = f"an integer from {least} to {most}"

    def parse(self, text: str) -> int | None:
        return integer(text)

    def accepts(self, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most


class Level(Integer):
    """A whole number, where programs written for Triton say yes or no as well"""

    def parse(self, text: str) -> int | None:
        return {"true": 1, "false": 0}.get(text.lower(), super().parse(text))


class Port(Integer):
    """A port of TCP; 0 takes a free one"""

    def __init__(self) -> None:
        super().__init__(0, 65535)


class Seconds(Integer):
    """A number of seconds, which in an object may be any number"""

    def check(self, value: object, path: str) -> None:
        # no comparison with a NaN is true
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.least <= value <= self.most:
            raise ConfigInvalid(f"{path} is {value!r}, expected a number from {self.least} to {self.most}")


class Text(Kind):
    """A text that is not empty"""

    def __init__(self, placeholder: str) -> None:
        self.placeholder = placeholder
        self.expected = f"a non-empty {placeholder}"

    @property
    def expected_object(self) -> str:
        return "a non-empty str"

    def parse(self, text: str) -> str:
        return text

    def accepts(self, value: object) -> bool:
        return isinstance(value, str) and value != ""


class BackendDirectory(Text):
    """A directory of backends. This process has them from then on, so that what is said to them can be checked"""

    def __init__(self) -> None:
        super().__init__("DIR")

    def read(self, given: object, source: str) -> object:
        value = super().read(given, source)
        self.check(value, source)
        return value

    def check(self, value: object, path: str) -> None:
        super().check(value, path)
        with about(path):
            add_directory(Path(str(value)).absolute())


class Choice(Kind):
    """One of some words"""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.placeholder = "{" + ",".join(words) + "}"
        *first, last = map(repr, words)
        self.expected = f"{', '.join(first)} or {last}" if first else last

    def parse(self, text: str) -> str:
        return text

    def accepts(self, value: object) -> bool:
        return value in self.words


class Several(Kind):
    """Any number of texts: the flag is given once for each, the variable for all"""

    separator = ","
    separators = "commas"

    def __init__(self, placeholder: str) -> None:
        self.placeholder = placeholder
        self.expected = f"a non-empty {placeholder}"

    @property
    def note(self) -> str:
        return f" May be repeated; the variable takes several, separated by {self.separators}."

    @property
    def expected_object(self) -> str:
        return f"a tuple of {self.placeholder.lower()}s, each a non-empty str"

    def parse(self, text: str) -> tuple[str, ...]:
        return tuple(filter(None, map(str.strip, text.split(self.separator))))

    def accepts(self, value: object) -> bool:
        return isinstance(value, list | tuple) and all(isinstance(one, str) and one for one in value)

    def read(self, given: object, source: str) -> object:
        return self.texts(given, source)

    def texts(self, given: object, source: str) -> tuple[str, ...]:
        """What is given, as one text or as several"""
        return tuple(cast("Iterable[str]", super().read(given, source)))

    def wrong(self, given: object, source: str) -> ConfigInvalid:
        """Names the first wrong one of several"""
        several = given if isinstance(given, list | tuple) else [given]
        return super().wrong(next(one for one in several if not self.accepts([one])), source)


class Restrictions(Several):
    """Which routes ask for a token; it is a secret, so that no message shows a value"""

    separator = ";"
    separators = "semicolons"

    def __init__(self) -> None:
        super().__init__(RESTRICTION)

    @property
    def note(self) -> str:
        return super().note.replace("the variable", "the variable, which other users of the host cannot see,")

    def read(self, given: object, source: str) -> tuple[Restriction, ...]:
        return tuple(parse_restriction(text, source) for text in self.texts(given, source))

    def check(self, value: object, path: str) -> None:
        if not isinstance(value, list | tuple) or not all(isinstance(one, Restriction) for one in value):
            raise not_shown(path, "a tuple of Restriction")

    def wrong(self, given: object, source: str) -> ConfigInvalid:  # noqa: ARG002 - not shown
        return not_shown(source, self.placeholder)


class BackendSettings(Several):
    """What is said to backends: BACKEND,KEY=VALUE in a flag, {"BACKEND": {"KEY": "VALUE"}} in an object"""

    separator = ";"
    separators = "semicolons"

    def __init__(self) -> None:
        super().__init__("BACKEND,KEY=VALUE")

    @property
    def note(self) -> str:
        # asked for when somebody reads it: importing the package reads nothing that backends say of themselves
        return f" There are {describe_settings()}.{super().note}"

    def read(self, given: object, source: str) -> object:
        config = parse_backend_config(self.texts(given, source), source)
        check_backend_config(config)
        return config

    def check(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping) or not all(isinstance(one, Mapping) for one in value.values()):
            raise ConfigInvalid(f'{path} is {value!r}, expected {{"BACKEND": {{"KEY": "VALUE"}}}}')
        check_backend_config(value)
