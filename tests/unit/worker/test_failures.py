"""How what a model raises is told to its client"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.worker.instance import BEGIN, Instance, texts

if TYPE_CHECKING:
    from tests.unit.worker.answering import AnsweringServer


def test_an_exception_without_a_text_says_so(server: AnsweringServer) -> None:
    def execute(_: Any) -> None:
        raise NotImplementedError

    assert str(texts(Instance(execute).run())[0]).startswith(f"{BEGIN}NotImplementedError: <EMPTY MESSAGE>\n\nAt:\n")


class Mute(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise KeyError("no name")


class Unnamed(Exception, metaclass=Nameless):
    pass


class Placeless(Exception):
    @property
    def __traceback__(self) -> object:  # type: ignore[override]
        raise KeyError


class Own(BaseException):
    """As some libraries stop what runs"""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("half a pair: \ud800"), "ValueError: half a pair: ?"),
        (Mute(), "Mute: <its text raises KeyError>"),
        (Own("stop"), "Own: stop"),
        (Unnamed("stop"), "Unnamed: stop"),
        (Placeless("stop"), "Placeless: stop"),
        (KeyboardInterrupt(), "KeyboardInterrupt: <EMPTY MESSAGE>"),
    ],
)
def test_whatever_is_raised_fails_its_requests_alone(server: AnsweringServer, error: BaseException, text: str) -> None:
    def execute(_: Any) -> None:
        raise error

    instance = Instance(execute)
    for _ in range(2):
        assert str(texts(instance.run())[0]).startswith(f"{BEGIN}{text}\n\nAt:\n")


def test_the_cause_of_an_exception_may_have_no_text(server: AnsweringServer) -> None:
    def execute(_: Any) -> None:
        raise ValueError("no") from Mute()

    assert str(texts(Instance(execute).run())[0]).startswith(f"{BEGIN}ValueError: no\n\nAt:\n")
