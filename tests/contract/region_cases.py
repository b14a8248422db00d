"""More of the table: requests about shared memory that cannot be served, where clients may register regions.

The region ``region`` is there, all of an object of ``CONTENT``, and its key is ``KEY``.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final

from tests.contract.cases.case import (
    MISSING,
    NO_SOURCE,
    NOT_STRING,
    NOT_UNSIGNED,
    PARSE,
    ROW,
    UNKNOWN_ID,
    Case,
    Code,
    Http,
    document,
)
from tests.contract.cases.outputs import asking
from tests.contract.requests import path, strings

__all__ = ["CONTENT", "KEY", "REGION_CASES"]

KEY: Final = f"/kushi-test-cases-{os.getpid()}"
STRINGS: Final = strings(b"ab", b"c")
STRINGS_AT: Final = 2 * len(ROW)
CONTENT: Final = (ROW + ROW + STRINGS + b"\xff" * 4).ljust(256, b"\0")
SIZE: Final = len(CONTENT)
U64_MAX: Final = 2**64 - 1


def register(body: bytes | dict[str, Any], region: str = "/region/new", memory: str = "system") -> Http:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Http(text, path=f"/v2/{memory}sharedmemory{region}/register")


def at(key: str = KEY, offset: int = 0, byte_size: int = 64, region: str = "/region/new") -> Http:
    return register({"key": key, "offset": offset, "byte_size": byte_size}, region)


NO_KEY: Final = "Shared memory register request has no 'key' field"
NO_SIZE: Final = "Shared memory register request has no 'byte_size' field"
RESERVED_PREFIX: Final = "triton_python_backend_shm_region_"
INVALID_ARGS: Final = "failed to register shared memory region 'new': invalid args"
UNKNOWN_KEYS: Final = (
    "/kushi-test-nothing-here",
    "kushi/test",
    f"{KEY}/",
    f"/../shm{KEY}",
    "..",
    "/.",
    "/etc/passwd",
    "\0",
    f"{KEY}\0",
    "k" * 256,
)

REGISTER_CASES: Final = [
    Case(
        "a registration without a body",
        register(b""),
        Code.INTERNAL,
        f"{PARSE}The document is empty. at 0",
    ),
    Case(
        "a registration that is no JSON",
        register(b"{"),
        Code.INTERNAL,
        f"{PARSE}Missing a name for object member. at 1",
    ),
    Case("a registration that is no object", register(b"[]"), Code.INVALID_ARGUMENT, NO_KEY),
    Case("a registration without a key", register({"byte_size": 64}), Code.INVALID_ARGUMENT, NO_KEY),
    Case("a key that is no string", register({"key": 5}), Code.INTERNAL, NOT_STRING),
    *(
        Case(
            f"an offset of {offset!r}",
            register({"key": KEY, "offset": offset}),
            Code.INTERNAL,
            NOT_UNSIGNED,
        )
        for offset in (-1, 1.5, "0", None, 2**64)
    ),
    Case("a registration without a size", register({"key": "/", "offset": 0}), Code.INVALID_ARGUMENT, NO_SIZE),
    Case(
        "a size that is no number", register({"key": "/", "offset": 0, "byte_size": "64"}), Code.INTERNAL, NOT_UNSIGNED
    ),
    *(
        Case(
            f"the key {key!r}",
            at(key, region="/region/region"),
            Code.INVALID_ARGUMENT,
            f"cannot register shared memory region 'region' - invalid shm key '{key}'",
        )
        for key in ("", "/", "///")
    ),
    *(
        Case(
            f"the reserved key {key!r}",
            at(key, region="/region/region"),
            Code.INVALID_ARGUMENT,
            f"cannot register shared memory region 'region' with key '{key}' as the key contains the reserved prefix "
            f"'{RESERVED_PREFIX}'",
        )
        for key in (RESERVED_PREFIX, f"/{RESERVED_PREFIX}_my_key", f"///{RESERVED_PREFIX}1")
    ),
    Case(
        "a name that is registered, whatever its key",
        at("/kushi-test-nothing-here", region="/region/region"),
        Code.INVALID_ARGUMENT,
        "shared memory region 'region' already in manager",
    ),
    *(
        Case(
            f"the unknown key {key.replace(KEY, '/key')!r:.40}",
            at(key),
            Code.INTERNAL,
            f"Unable to open shared memory region: '{key}'",
        )
        for key in UNKNOWN_KEYS
    ),
    *(
        Case(f"a region of {size} bytes from {offset} on", at(offset=offset, byte_size=size), code, text)
        for offset, size, code, text in (
            (0, SIZE + 1, Code.INVALID_ARGUMENT, INVALID_ARGS),
            (1, SIZE, Code.INVALID_ARGUMENT, INVALID_ARGS),
            (SIZE, 1, Code.INVALID_ARGUMENT, INVALID_ARGS),
            (SIZE + 1, 0, Code.INVALID_ARGUMENT, INVALID_ARGS),
            (U64_MAX, 1, Code.INVALID_ARGUMENT, INVALID_ARGS),
            (1, U64_MAX, Code.INVALID_ARGUMENT, INVALID_ARGS),
            (0, 0, Code.INVALID_ARGUMENT, f"{INVALID_ARGS[:-12]}unable to process address spaceInvalid argument"),
        )
    ),
    Case(
        "a registration of no region",
        register(b"", region=""),
        Code.INVALID_ARGUMENT,
        "'region name' is necessary to register system shared memory region",
    ),
    Case(
        "a registration of CUDA memory without a region",
        register(b"", region="", memory="cuda"),
        Code.INVALID_ARGUMENT,
        "'region name' is necessary to register cuda shared memory region",
    ),
    Case(
        "a registration of CUDA memory",
        register(b"{", memory="cuda"),
        Code.INVALID_ARGUMENT,
        "failed to register CUDA shared memory region: 'new', GPUs not supported",
    ),
]


def shared(region: object = "region", byte_size: object = 64, offset: object = 0, **others: object) -> dict[str, Any]:
    return {
        "shared_memory_region": region,
        "shared_memory_byte_size": byte_size,
        "shared_memory_offset": offset,
        **others,
    }


def given(parameters: dict[str, Any], *, keep_data: bool = False, **members: object) -> Http:
    """A request for ``add_sub`` whose first input comes by these parameters."""
    return document({"parameters": parameters}, drop="" if keep_data else "data", **members)


def text_input(offset: int, byte_size: int, shape: tuple[int, ...] = (1, 2)) -> Http:
    entry = {"name": "INPUT0", "datatype": "BYTES", "shape": shape, "parameters": shared("region", byte_size, offset)}
    return Http(json.dumps({"inputs": [entry]}).encode(), path=path("identity_bytes"))


def both(name: str, parameters: dict[str, Any], code: Code, text: str) -> list[Case]:
    """The same fault of an input and of an output."""
    return [
        Case(f"an input with {name}", given(parameters), code, text),
        Case(f"an output with {name}", asking(**parameters), code, text),
    ]


def set_twice(*fields: str) -> str:
    return f"{NO_SOURCE} set {' '.join(map(repr, fields))}"


INFER_CASES: Final = [
    *both("an unknown region", shared("other"), Code.NOT_FOUND, "Unable to find shared memory region: 'other'"),
    *both(
        "a region that is no string",
        shared(7, offset="x"),
        Code.INTERNAL,
        f"Unable to parse 'shared_memory_region': {NOT_STRING}",
    ),
    *both(
        "an offset that is no number",
        shared("other", "x", "x"),
        Code.INTERNAL,
        f"Unable to parse 'shared_memory_offset': {NOT_UNSIGNED}",
    ),
    *both(
        "a size below zero",
        shared("other", -1),
        Code.INTERNAL,
        f"Unable to parse 'shared_memory_byte_size': {NOT_UNSIGNED}",
    ),
    *both(
        "an offset behind its region",
        shared(offset=SIZE, byte_size=0),
        Code.INVALID_ARGUMENT,
        "Invalid offset for shared memory region: 'region'",
    ),
    *both(
        "an offset below zero as C counts",
        shared(offset=2**64 - 32),
        Code.INVALID_ARGUMENT,
        "Invalid offset for shared memory region: 'region'",
    ),
    *both(
        "a size beyond its region",
        shared(offset=SIZE - 63),
        Code.INVALID_ARGUMENT,
        "Invalid offset + byte size for shared memory region: 'region'",
    ),
    *both(
        "an end beyond 64 bits",
        shared(offset=32, byte_size=2**64 - 32),
        Code.INVALID_ARGUMENT,
        f"Integer overflow detected: byte_size ({2**64 - 32}) + offset (32) exceeds maximum value ({U64_MAX}) for "
        "region 'region'",
    ),
    Case(
        "an input of a size and no region",
        given({"shared_memory_byte_size": 64}),
        Code.INVALID_ARGUMENT,
        f"{NO_SOURCE} no field is set",
    ),
    Case(
        "an input with data and a region",
        given(shared("other"), keep_data=True),
        Code.INVALID_ARGUMENT,
        set_twice("data", "shared_memory_region"),
    ),
    Case(
        "an input with a binary size and a region",
        given(shared(7, binary_data_size=64)),
        Code.INVALID_ARGUMENT,
        set_twice("binary_data_size", "shared_memory_region"),
    ),
    Case(
        "an input with all three",
        given(shared(binary_data_size=64), keep_data=True),
        Code.INVALID_ARGUMENT,
        set_twice("data", "binary_data_size", "shared_memory_region"),
    ),
    Case(
        "an input with data and an offset that is no number",
        given({"shared_memory_offset": "x"}, keep_data=True),
        Code.INTERNAL,
        f"Unable to parse 'shared_memory_offset': {NOT_UNSIGNED}",
    ),
    Case(
        "an input of more bytes than its shape",
        given(shared(byte_size=128)),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input byte size mismatch for input 'INPUT0' for model 'add_sub'. Expected 64, got 128",
    ),
    Case(
        "an input in a region without a size",
        given({"shared_memory_region": "region"}),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input byte size mismatch for input 'INPUT0' for model 'add_sub'. Expected 64, got 0",
    ),
    Case(
        "an unknown region is reported before a missing input",
        document(
            inputs=[{"name": "INPUT0", "datatype": "INT32", "shape": [1, 16], "parameters": shared("other")}],
            id="seven",
        ),
        Code.NOT_FOUND,
        "Unable to find shared memory region: 'other'",
    ),
    Case(
        "an input without a shape is reported before its unknown region",
        document(inputs=[{"name": "INPUT0", "datatype": "INT32", "parameters": shared("other")}]),
        Code.INTERNAL,
        f"Unable to parse 'shape': {MISSING} 'shape'",
    ),
    Case(
        "an input without a name is reported before its unknown region",
        document(inputs=[{"shape": [1], "datatype": "INT32", "parameters": shared("other")}]),
        Code.INTERNAL,
        f"Unable to parse 'name': {MISSING} 'name'",
    ),
    Case(
        "an unknown output is reported before a wrong size in a region",
        given(shared(byte_size=1), outputs=[{"name": "OTHER"}]),
        Code.INVALID_ARGUMENT,
        "unexpected inference output 'OTHER' for model 'add_sub'",
    ),
    Case(
        "strings in a region, more than the shape says",
        text_input(STRINGS_AT, len(STRINGS), (1, 1)),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}unexpected number of string elements 2 for inference input 'INPUT0' for model 'identity_bytes', "
        "expecting 1",
    ),
    Case(
        "strings in a region, cut in a length",
        text_input(STRINGS_AT, len(STRINGS) + 3, (1, 3)),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}incomplete string length indicator for inference input 'INPUT0' for model 'identity_bytes', "
        "expecting 4 bytes but only 3 bytes available. Please make sure the string length indicator is in one buffer.",
    ),
    Case(
        "strings in a region, longer than it",
        text_input(STRINGS_AT, len(STRINGS) + 6, (1, 3)),
        Code.INVALID_ARGUMENT,
        "incomplete string data for inference input 'INPUT0', expecting string of length 4294967295 but only 2 bytes "
        "available",
    ),
    Case(
        "an output in a region and as classification",
        asking(**shared(7, classification="x", binary_data=1)),
        Code.INVALID_ARGUMENT,
        "Output can't set both 'shared_memory_region' and 'classification'",
    ),
    Case(
        "an output in a region and in binary",
        asking(**shared(7, binary_data=True)),
        Code.INVALID_ARGUMENT,
        "Output can't set both 'shared_memory_region' and 'binary_data'",
    ),
    Case(
        "an output in a region, and a wish for binary that is no boolean",
        asking(**shared(binary_data=1)),
        Code.INTERNAL,
        "Unable to set 'binary_data': attempt to access JSON non-boolean as boolean",
    ),
    Case(
        "an output with an offset that is no number, and no region",
        asking(shared_memory_offset="x", binary_data="x"),
        Code.INTERNAL,
        f"Unable to parse 'shared_memory_offset': {NOT_UNSIGNED}",
    ),
    Case(
        "an output of more bytes than it may have in a region",
        asking(**shared(byte_size=63)),
        Code.INTERNAL,
        "shared memory size specified with the request for output 'OUTPUT0' (63 bytes) should be at least 64 bytes to "
        "hold the results",
    ),
    Case(
        "an output in a region without a size",
        asking(shared_memory_region="region"),
        Code.INTERNAL,
        "shared memory size specified with the request for output 'OUTPUT0' (0 bytes) should be at least 64 bytes to "
        "hold the results",
    ),
]

REGION_CASES: Final = [*REGISTER_CASES, *INFER_CASES]
