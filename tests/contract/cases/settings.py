"""Settings of the log and of traces."""

from __future__ import annotations

from typing import Final

from tests.contract.cases.case import NOT_ARRAY, NOT_BOOLEAN, NOT_STRING, NOT_UNSIGNED, PARSE, Case, Code, Http


def setting(of: str, text: str) -> Http:
    return Http(text.encode(), path=f"/v2/{of}")


LOGGING, TRACE, MODEL_TRACE = "logging", "trace/setting", "models/add_sub/trace/setting"
U32_RANGE: Final = "[ 0, 4294967295 ]"

SETTING_CASES: Final = [
    *(
        Case(
            f"settings that are nothing: {of}",
            setting(of, ""),
            Code.INTERNAL,
            f"{PARSE}The document is empty. at 0",
        )
        for of in (LOGGING, TRACE, MODEL_TRACE)
    ),
    Case(
        "settings that are no JSON",
        setting(LOGGING, "{"),
        Code.INTERNAL,
        f"{PARSE}Missing a name for object member. at 1",
    ),
    Case(
        "another log file",
        setting(LOGGING, '{"log_file": "/tmp/log", "log_info": 1}'),
        Code.UNIMPLEMENTED,
        "log file location can not be updated through network protocol",
    ),
    *(
        Case(
            f"a log switch that is no boolean: {name}", setting(LOGGING, f'{{"{name}": 0}}'), Code.INTERNAL, NOT_BOOLEAN
        )
        for name in ("log_info", "log_warning", "log_error")
    ),
    *(
        Case(
            f"the verbose level {level}",
            setting(LOGGING, f'{{"log_verbose_level": {level}}}'),
            Code.INTERNAL,
            NOT_UNSIGNED,
        )
        for level in ("-1", '"1"', "true", "1.0")
    ),
    Case("a log format that is no string", setting(LOGGING, '{"log_format": 1}'), Code.INTERNAL, NOT_STRING),
    Case(
        "an unknown log format",
        setting(LOGGING, '{"log_info": true, "log_format": "xml"}'),
        Code.UNAVAILABLE,
        "invalid argument for --log_format, got: xml",
    ),
    Case(
        "trace settings of an unknown model",
        setting("models/missing/trace/setting", "{"),
        Code.INVALID_ARGUMENT,
        "Request for unknown model : missing",
    ),
    *(
        Case(
            f"another trace file: {value}",
            setting(TRACE, f'{{"trace_file": {value}, "trace_rate": 1}}'),
            Code.UNIMPLEMENTED,
            "trace file location can not be updated through network protocol",
        )
        for value in ('"/tmp/trace"', "null")
    ),
    Case("a trace level that is no list", setting(TRACE, '{"trace_level": "OFF"}'), Code.INTERNAL, NOT_ARRAY),
    Case("a trace level that is a list of numbers", setting(TRACE, '{"trace_level": [1]}'), Code.INTERNAL, NOT_STRING),
    Case(
        "traces that are off and more",
        setting(TRACE, '{"trace_level": ["TIMESTAMPS", "OFF"]}'),
        Code.INVALID_ARGUMENT,
        "Expect only one trace level 'OFF' is specified",
    ),
    *(
        Case(
            f"traces without a file: {level} of {of}",
            setting(of, f'{{"trace_level": ["{level}"]}}'),
            Code.INVALID_ARGUMENT,
            "Attempting to set invalid trace setting :trace file name is not given",
        )
        for level in ("TIMESTAMPS", "TENSORS")
        for of in (TRACE, MODEL_TRACE)
    ),
    *(
        Case(f"{name} that is a number", setting(TRACE, f'{{"{name}": 1}}'), Code.INTERNAL, NOT_STRING)
        for name in ("trace_rate", "trace_count", "log_frequency")
    ),
    *(
        Case(
            f"{name} that is no number",
            setting(TRACE, f'{{"trace_level": ["TENSORS"], "{name}": "often"}}'),
            Code.INVALID_ARGUMENT,
            f"Unable to parse '{name}', got: often",
        )
        for name in ("trace_rate", "trace_count", "log_frequency")
    ),
    *(
        Case(
            f"{name} beyond 32 bits",
            setting(TRACE, f'{{"{name}": "3000000000"}}'),
            Code.INVALID_ARGUMENT,
            f"Unable to parse '{name}', value is out of range {allowed}, got: 3000000000",
        )
        for name, allowed in (
            ("trace_rate", U32_RANGE),
            ("trace_count", "[ -1, 2147483647 ]"),
            ("log_frequency", U32_RANGE),
        )
    ),
    Case(
        "a negative trace count",
        setting(MODEL_TRACE, '{"trace_count": "-2"}'),
        Code.INVALID_ARGUMENT,
        "Unable to parse 'trace_count'. Expecting value >= -1, got:-2",
    ),
]
