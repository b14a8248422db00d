"""Loads, unloads and the index of the repository."""

from __future__ import annotations

from typing import Final

from tests.contract.cases.case import Case, Code, Http


def repository(path: str, body: bytes = b"", *, inside: str = "") -> Http:
    return Http(body, path=f"/v2/repository{inside}{path}")


LOAD, UNLOAD = "/models/add_sub/load", "/models/add_sub/unload"
NO_REPOSITORY_NAME: Final = "'repository_name' specification is not supported"
NOT_A_STRING: Final = "attempt to access JSON non-string as string"
NO_SUCH_PARAMETER: Final = "unexpected error on creating Triton parameter"

REPOSITORY_CASES: Final = [
    *(
        Case(f"a repository by its name: {path}", repository(path, inside="/r"), Code.UNIMPLEMENTED, NO_REPOSITORY_NAME)
        for path in ("/index", LOAD, UNLOAD)
    ),
    *(
        Case(
            f"a body that is no JSON: {path}",
            repository(path, b"{"),
            Code.INTERNAL,
            "failed to parse the request JSON buffer: Missing a name for object member. at 1",
        )
        for path in ("/index", LOAD, UNLOAD)
    ),
    *(
        Case(
            f"an index that is asked for with ready {value}",
            repository("/index", b'{"ready": %b}' % value.encode()),
            Code.INVALID_ARGUMENT,
            "Invalid value for 'ready': expected a boolean",
        )
        for value in ("1", "null", '"true"', "[true]")
    ),
    Case(
        "load parameters that are no object",
        repository(LOAD, b'{"parameters": [1]}'),
        Code.INTERNAL,
        "attempt to get members for non-object",
    ),
    Case(
        "a load parameter that is no string", repository(LOAD, b'{"parameters": {"x": 1}}'), Code.INTERNAL, NOT_A_STRING
    ),
    Case(
        "a configuration that is no string",
        repository(LOAD, b'{"parameters": {"config": {}}}'),
        Code.INTERNAL,
        NOT_A_STRING,
    ),
    Case(
        "an unknown load parameter",
        repository(LOAD, b'{"parameters": {"config": "{}", "x": "1"}}'),
        Code.INTERNAL,
        NO_SUCH_PARAMETER,
    ),
    Case(
        "dependents that are no boolean",
        repository(UNLOAD, b'{"parameters": {"unload_dependents": 1}}'),
        Code.INTERNAL,
        "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean",
    ),
]

CONTROL_DISABLED: Final = "explicit model load / unload is not allowed if polling is enabled"

DISABLED_CASES: Final = [
    Case("a load where models are not controlled", repository(LOAD), Code.UNAVAILABLE, CONTROL_DISABLED),
    Case("an unload where models are not controlled", repository(UNLOAD), Code.UNAVAILABLE, CONTROL_DISABLED),
    Case(
        "a load of an unknown model where models are not controlled",
        repository("/models/missing/load"),
        Code.UNAVAILABLE,
        CONTROL_DISABLED,
    ),
    Case(
        "a load with another configuration where models are not controlled",
        repository(LOAD, b'{"parameters": {"config": "{}"}}'),
        Code.UNAVAILABLE,
        CONTROL_DISABLED,
    ),
]

EXPLICIT_CASES: Final = [
    *REPOSITORY_CASES,
    Case(
        "a load of an unknown model",
        repository("/models/missing/load"),
        Code.INTERNAL,
        "failed to load 'missing', failed to poll from model repository",
    ),
    Case(
        "a load of a name that no directory can have",
        repository(f"/models/{'m' * 256}/load"),
        Code.INTERNAL,
        f"failed to load '{'m' * 256}', failed to poll from model repository",
    ),
    Case(
        "a load of the directory above",
        repository("/models/../load"),
        Code.INVALID_ARGUMENT,
        "invalid model name '..', model name must not contain path traversal characters",
    ),
    Case(
        "a load of a path",
        repository("/models/..%2Fmodels%2Fadd_sub/load"),
        Code.INVALID_ARGUMENT,
        "invalid model name '../models/add_sub', model name must not contain path traversal characters",
    ),
    Case(
        "a load of a blank name",
        repository("/models/%20/load"),
        Code.INVALID_ARGUMENT,
        "Model name cannot be empty. Please enter a valid name to deploy.",
    ),
    Case(
        "a load with a wrong configuration",
        repository(LOAD, b'{"parameters": {"config": "[]"}}'),
        Code.INTERNAL,
        "failed to load 'add_sub', failed to poll from model repository: Invalid config override: expected an object",
    ),
    Case(
        "a load with files alone",
        repository(LOAD, b'{"parameters": {"file:1/model.onnx": "AAAA"}}'),
        Code.INTERNAL,
        "failed to load 'add_sub', failed to poll from model repository: files take the place of the model's whole "
        "directory, so that they need a 'config'",
    ),
]
"""For a server whose models are loaded on demand."""
