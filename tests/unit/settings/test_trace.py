"""The settings of traces: as tritonserver's flag states them, as flags of their own, and as objects of a program."""

from __future__ import annotations

from typing import Any

import pytest

from runners import EngineOptions, TraceOptions
from runners.errors import ConfigInvalid
from runners.settings import read_settings


def read(*config: str, **flags: object) -> TraceOptions:
    return read_settings({"trace_config": [*config], **flags}).engine.trace


def test_every_setting_may_be_stated_as_tritonserver_takes_it() -> None:
    found = read(
        *("level=timestamps", "level=TENSORS", "rate=4", "count=6", "mode=opentelemetry"),
        *("triton,file=/t", "triton,log-frequency=5", "opentelemetry,url=http://a:1/b=c"),
        *("opentelemetry,resource=service.name=x", "opentelemetry,resource=k=a=b"),
        *("opentelemetry,bsp_max_queue_size=9", "opentelemetry,bsp_schedule_delay=7"),
        "opentelemetry,bsp_max_export_batch_size=8",
    )
    assert found == TraceOptions(
        level=("TIMESTAMPS", "TENSORS"),
        rate=4,
        count=6,
        mode="opentelemetry",
        file="/t",
        log_frequency=5,
        url="http://a:1/b=c",
        resource=("service.name=x", "k=a=b"),
        max_queue_size=9,
        schedule_delay_ms=7,
        max_export_batch_size=8,
    )
    assert found.native["collector"]["resource"] == [("service.name", "x"), ("k", "a=b")]


def test_the_configuration_wins_over_flags_and_levels_add_up() -> None:
    found = read("rate=4", "level=TENSORS", trace_rate="9", trace_count="3", trace_level=["min"], trace_file="/t")
    assert (found.rate, found.count, found.levels) == (4, 3, frozenset({"TIMESTAMPS", "TENSORS"}))


def test_off_anywhere_is_off() -> None:
    found = read("level=OFF", "level=TIMESTAMPS")
    assert (found.levels, found.native["timestamps"], found.file) == (frozenset(), False, None)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("rate", "expected [MODE,]SETTING=VALUE, got 'rate'"),
        ("rate=", "expected [MODE,]SETTING=VALUE, got 'rate='"),
        ("=4", "expected [MODE,]SETTING=VALUE, got '=4'"),
        ("rate=often", "expected an integer from 0 to 2147483647, got 'often'"),
        ("count=-2", "expected an integer from -1 to 2147483647, got '-2'"),
        ("level=LOUD", "expected OFF, TIMESTAMPS or TENSORS"),
        ("mode=jaeger", "expected 'triton' or 'opentelemetry', got 'jaeger'"),
        ("jaeger,url=a", "unknown mode 'jaeger', expected 'triton' or 'opentelemetry'"),
        (",url=a", "unknown mode '', expected 'triton' or 'opentelemetry'"),
        ("triton,rate=4", "unknown setting 'rate', expected file or log-frequency"),
        ("file=/t", "unknown setting 'file', expected level or rate or count or mode"),
        ("opentelemetry,resource=nothing", "expected KEY=VALUE"),
    ],
)
def test_what_cannot_be_is_refused_with_the_flag(config: str, text: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        read(config)
    assert text in str(raised.value)
    assert "--trace-config" in str(raised.value)


def test_traces_without_a_place_are_refused() -> None:
    with pytest.raises(ConfigInvalid, match=r"--trace-level asks for traces and nothing says where they go"):
        read("level=TIMESTAMPS")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"level": ("LOUD",)}, r"trace\.level is \('LOUD',\), expected a tuple of OFF, TIMESTAMPS or TENSORS"),
        ({"resource": ("a",)}, r"trace\.resource is \('a',\), expected a tuple of texts KEY=VALUE"),
        (
            {"max_queue_size": 5, "max_export_batch_size": 6},
            r"trace\.max_export_batch_size is 6, expected no more than trace\.max_queue_size",
        ),
        ({"level": ("TENSORS",)}, r"trace\.level asks for traces and nothing says where they go"),
    ],
)
def test_an_object_with_wrong_values_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigInvalid, match=text):
        EngineOptions(trace=TraceOptions(**options))
