"""The settings as objects of a program: what is wrong is named by its path"""

import inspect
import math
from typing import Any

import pytest

from runners import (
    ConfigInvalid,
    EngineOptions,
    HttpOptions,
    LogOptions,
    MetricsOptions,
    ModelOptions,
    Restriction,
    ServerTls,
    Unsupported,
)
from runners.settings import SETTINGS


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"io_threads": 2**70}, f"io_threads is {2**70}, expected an integer from 1 to 1024"),
        ({"io_threads": 1.5}, "io_threads is 1.5, expected an integer from 1 to 1024"),
        ({"io_threads": True}, "io_threads is True, expected an integer from 1 to 1024"),
        ({"exit_on_error": "false"}, "exit_on_error is 'false', expected True or False"),
        ({"exit_on_error": 0}, "exit_on_error is 0, expected True or False"),
        ({"exit_on_error": None}, "exit_on_error is None, expected True or False"),
        ({"server_name": ""}, "server_name is '', expected a non-empty str"),
        ({"http": HttpOptions(max_headers=3)}, "http.max_headers is 3, expected an integer from 8 to 1024"),
        ({"http": HttpOptions(max_chunks=-1)}, "http.max_chunks is -1, expected an integer from 1 to 2147483647"),
        (
            {"http": HttpOptions(head_timeout_seconds=0.5)},  # type: ignore[arg-type] # the point
            "http.head_timeout_seconds is 0.5, expected an integer from 1 to 2147483647",
        ),
        (
            {"http": HttpOptions(tls=ServerTls("", "key.pem"))},
            "http.tls.certificate is '', expected a non-empty str",
        ),
        ({"http": {"max_headers": 100}}, "http is {'max_headers': 100}, expected HttpOptions"),
        ({"http": None}, "http is None, expected HttpOptions"),
        (
            {"metrics": MetricsOptions(interval_ms=2**70)},
            f"metrics.interval_ms is {2**70}, expected an integer from 1 to 2147483647",
        ),
        (
            {"models": ModelOptions(control="often")},  # type: ignore[arg-type] # the point
            "models.control is 'often', expected 'none', 'poll' or 'explicit'",
        ),
        (
            {"models": ModelOptions(control="poll", poll_seconds=-1)},
            "models.poll_seconds is -1, expected a number from 0 to 1000000",
        ),
        (
            {"models": ModelOptions(control="poll", reload_python=True)},
            (
                "'models.reload_python' is of no use with 'models.control=poll', which loads changed code again as "
                "well: leave it out, and set 'models.poll_seconds' as you like"
            ),
        ),
        (
            {"models": ModelOptions(control="explicit", load="digits")},  # type: ignore[arg-type] # the point
            "models.load is 'digits', expected a tuple of names, each a non-empty str",
        ),
        (
            {"models": ModelOptions(load_timeout_seconds=math.nan)},
            "models.load_timeout_seconds is nan, expected a number from 0 to 1000000",
        ),
        (
            {"models": ModelOptions(load=("a",))},
            "Use of 'models.load' requires setting 'models.control=explicit' as well.",
        ),
        ({"log": LogOptions(verbose=256)}, "log.verbose is 256, expected an integer from 0 to 255"),
        ({"backend_config": "a=b"}, """backend_config is 'a=b', expected {"BACKEND": {"KEY": "VALUE"}}"""),
    ],
)
def test_what_cannot_be_right_is_named_by_its_path(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        EngineOptions(**options)
    assert str(raised.value) == text


def test_what_may_hold_a_secret_is_not_shown() -> None:
    wrong: Any = ("health:k=hunter2",)
    with pytest.raises(ConfigInvalid, match=r"^http\.restrictions: expected a tuple of Restriction, got") as raised:
        EngineOptions(http=HttpOptions(restrictions=wrong))
    assert "hunter2" not in str(raised.value)


def test_backends_are_asked_about_their_settings() -> None:
    with pytest.raises(Unsupported, match=r"^backend config: backend 'dali' is not supported by this version"):
        EngineOptions(backend_config={"dali": {}})


def test_a_fraction_of_a_second_may_be_the_time_for_a_load() -> None:
    assert EngineOptions(models=ModelOptions(load_timeout_seconds=0.5)).models.load_timeout_seconds == 0.5


def test_the_documentation_of_options_lists_them_under_their_names() -> None:
    text = inspect.getdoc(HttpOptions) or ""
    assert "max_headers: Most headers of a request." in text
    assert "on average over body_timeout_seconds; 0: any byte does." in text
    assert "tls: see ServerTls." in text
    assert "http: see HttpOptions." in (inspect.getdoc(EngineOptions) or "")
    for one in SETTINGS.values():
        assert "{" not in one.description
        assert "}" not in one.description


def test_options_are_values() -> None:
    rules = (Restriction(("health",), "k", "v"),)
    options = EngineOptions(http=HttpOptions(restrictions=rules))
    assert options == EngineOptions(http=HttpOptions(restrictions=rules))
    assert options != EngineOptions()
    assert "v" not in repr(options).partition("Restriction(")[2].partition(")")[0].split("=")
