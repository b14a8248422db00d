import asyncio
import re
from pathlib import Path

import pytest

from runners import errors
from runners.errors import KINDS, ConfigInvalid, InvalidInput, KushiError, about, factories

DESIGN = {
    "invalid_input": ("InvalidInput", 400, ValueError),
    "model_not_found": ("ModelNotFound", 404, LookupError),
    "access_denied": ("AccessDenied", 403, PermissionError),
    "model_not_ready": ("ModelNotReady", 503, KushiError),
    "model_unavailable": ("ModelUnavailable", 503, KushiError),
    "overloaded": ("Overloaded", 503, KushiError),
    "deadline_exceeded": ("DeadlineExceeded", 503, TimeoutError),
    "engine_failed": ("EngineFailed", 500, KushiError),
    "connection_lost": ("ConnectionLost", 503, ConnectionError),
    "config_invalid": ("ConfigInvalid", 400, KushiError),
    "unsupported": ("Unsupported", 501, KushiError),
    "shutting_down": ("ShuttingDown", 503, KushiError),
    "internal_error": ("InternalError", 500, KushiError),
    "cancelled": ("CancelledError", 400, asyncio.CancelledError),
}


def test_the_table_has_every_kind_once() -> None:
    assert set(KINDS) == set(DESIGN)


@pytest.mark.parametrize("kind", DESIGN)
def test_a_kind_has_its_class_and_status(kind: str) -> None:
    name, status, base = DESIGN[kind]
    assert KINDS[kind].raised.__name__ == name
    assert KINDS[kind].status == status
    assert issubclass(KINDS[kind].raised, base)


def test_the_table_equals_that_of_the_native_core() -> None:
    source = (Path(__file__).parents[2] / "native/crates/core/src/base/error.rs").read_text()
    rows = re.findall(r'Self::\w+\s*=> row\("(\w+)",\s*(\d+), \d+, G::\w+,\s*(true|false),', source)
    # of several kinds of one name the first counts: the others differ in their status alone
    native = {row[0]: (row[0], int(row[1]), row[2] == "true") for row in reversed(rows)}
    assert set(native.values()) == {(kind, row.status, row.retryable) for kind, row in KINDS.items()}


def test_every_class_of_the_module_belongs_to_a_kind() -> None:
    classes = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, KushiError)}
    assert classes - {KushiError} == {row.raised for row in KINDS.values()} - {asyncio.CancelledError}


def test_the_native_core_can_make_every_exception() -> None:
    for kind, make in factories().items():
        error = make("too much", "m", "7")
        assert str(error) == "too much"
        if isinstance(error, KushiError):
            assert (error.kind, error.model, error.request_id) == (kind, "m", "7")
            assert (error.status, error.retryable) == (KINDS[kind].status, KINDS[kind].retryable)


def test_a_failure_may_have_another_status_than_its_kind() -> None:
    assert ConfigInvalid("wrong").status == 400
    with pytest.raises(ConfigInvalid) as raised, about("a.txt"):
        raise ConfigInvalid("wrong", status=500)
    assert raised.value.status == 500


def test_about_puts_the_file_in_front_and_keeps_the_class_and_the_model() -> None:
    with pytest.raises(InvalidInput, match=r"^a\.txt: wrong$") as raised, about(Path("a.txt")):
        raise InvalidInput("wrong", model="m", request_id="7")
    assert (raised.value.model, raised.value.request_id) == ("m", "7")


def test_about_leaves_other_exceptions_alone() -> None:
    with pytest.raises(ZeroDivisionError, match=r"^odd$"), about("a.txt"):
        raise ZeroDivisionError("odd")
