"""What leaves the service says what went wrong, and not where the engine is"""

from __future__ import annotations

from runners.bento import error_text
from runners.errors import ConnectionLost, InvalidInput


def test_where_the_engine_is_stays_inside() -> None:
    assert (
        error_text(ConnectionLost("unix:///run/kushi.sock: there is no such socket"))
        == "the engine is not there yet, or not any more: /readyz answers 200 when it is"
    )
    assert error_text(InvalidInput("'x' has 3 values, expected 4")) == "'x' has 3 values, expected 4"
