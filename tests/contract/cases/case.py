"""What a row of the table is, and what many of them say."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tests.contract.requests import Infer, path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.raw_http import Headers


class Code(Enum):
    """HTTP status and gRPC code of an error."""

    INTERNAL = (500, "INTERNAL")
    NOT_FOUND = (404, "NOT_FOUND")
    INVALID_ARGUMENT = (400, "INVALID_ARGUMENT")
    UNAVAILABLE = (503, "UNAVAILABLE")
    UNIMPLEMENTED = (501, "UNIMPLEMENTED")

    @property
    def http(self) -> int:
        return self.value[0]

    @property
    def grpc(self) -> str:
        return self.value[1]


@dataclass(frozen=True)
class Http:
    """A request that only HTTP can carry, or can get wrong in this way."""

    body: bytes
    headers: Headers = ()
    path: str = path("add_sub")


@dataclass(frozen=True)
class Case:
    name: str
    request: Infer | Http
    code: Code
    text: str


UNKNOWN_ID: Final = "[request id: <id_unknown>] "
ROW: Final = struct.pack("<16i", *range(16))


def document(
    first: Mapping[str, Any] | None = None, *, drop: str = "", inputs: object = None, **members: object
) -> Http:
    """A request for ``add_sub`` in JSON with one thing different: the first input, or a member of the whole."""
    entry: dict[str, Any] = {"name": "INPUT0", "datatype": "INT32", "shape": [1, 16], "data": list(range(16))}
    second = {**entry, "name": "INPUT1"}
    entry = {**entry, **(first or {})}
    entry.pop(drop, None)
    whole: dict[str, Any] = {"inputs": [entry, second] if inputs is None else inputs, **members}
    return Http(json.dumps(whole).encode())


MISSING: Final = "attempt to access non-existing object member"

NO_SOURCE: Final = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'. But"
)

NOT_STRING: Final = "attempt to access JSON non-string as string"
NOT_ARRAY: Final = "attempt to access JSON non-array as array"
NOT_BOOLEAN: Final = "attempt to access JSON non-boolean as boolean"
NOT_SIGNED: Final = "attempt to access JSON non-signed-integer as signed-integer"
NOT_UNSIGNED: Final = "attempt to access JSON non-unsigned-integer as unsigned-integer"
NOT_NUMBER: Final = "attempt to access JSON non-number as double"
PARSE: Final = "failed to parse the request JSON buffer: "
