"""What the flags and objects about the rate limiter take"""

import logging

import pytest

from runners import ConfigInvalid, EngineOptions, RateLimitOptions
from runners.settings import read_settings

EXPECTED = "NAME:COUNT[:DEVICE], a name, a count and perhaps the number of a device"


def read(**flags: object) -> RateLimitOptions:
    return read_settings(flags).engine.rate_limit


def test_it_is_off_unless_it_is_asked_for() -> None:
    assert read() == RateLimitOptions(mode="off", resources={})
    assert read(rate_limit_resource=["r:1"]).native is None
    assert read(rate_limit="execution_count").native == []


def test_resources_are_for_all_devices_or_one_and_the_lower_count_holds() -> None:
    found = read(rate_limit="execution_count", rate_limit_resource=["a:10", "b:5:0", "b:8:1", "a:4", "a:7", "b:0"])
    assert found.resources == {"a": 4, ("b", 0): 5, ("b", 1): 8, "b": 0}
    assert found.native == [
        {"name": "a", "device": None, "count": 4},
        {"name": "b", "device": 0, "count": 5},
        {"name": "b", "device": 1, "count": 8},
        {"name": "b", "device": None, "count": 0},
    ]


def test_a_variable_takes_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSHI_RATE_LIMIT_RESOURCE", "a:1,b:2:3")
    assert read().resources == {"a": 1, ("b", 3): 2}


@pytest.mark.parametrize("text", ["a", ":1", "a:", "a:x", "a:-1", "a:1:", "a:1:x", "a:1:-1", "a:1:2:3", "a:2147483648"])
def test_a_wrong_resource_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        read(rate_limit_resource=[text])
    assert str(raised.value) == f"--rate-limit-resource: expected {EXPECTED}, got '{text}'"


@pytest.mark.parametrize("resources", [["a:1"], {"": 1}, {"a": -1}, {"a": True}, {("a", -1): 1}, {("a",): 1}, {1: 1}])
def test_a_wrong_object_is_refused_with_what_is_expected(resources: object) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        EngineOptions(rate_limit=RateLimitOptions(resources=resources))  # type: ignore[arg-type] # the point
    expected = "{NAME: COUNT} or {(NAME, DEVICE): COUNT} with whole numbers from 0"
    assert str(raised.value) == f"rate_limit.resources is {resources!r}, expected {expected}"


def test_resources_without_the_limiter_are_a_warning_that_names_them(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "runners"):
        read(rate_limit_resource=["a:1", "b:2:0", "b:3:1"]).warn()
        read(rate_limit="execution_count", rate_limit_resource=["a:1"]).warn()
        read().warn()
    assert caplog.messages == ["--rate-limit-resource of 'a', 'b' has no effect without --rate-limit=execution_count"]


def test_another_mode_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="--rate-limit: expected 'off' or 'execution_count', got 'on'"):
        read(rate_limit="on")
