"""Shared memory where clients may not use any."""

from __future__ import annotations

from typing import Final

from tests.contract.cases.case import Case, Code, Http, document
from tests.contract.cases.outputs import asking

SHARED_MEMORY_DISABLED: Final = (
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
)

SHARED_MEMORY_CASES: Final = [
    *(
        Case(
            f"{order} where clients may not use shared memory: {place}",
            Http(b"{", path=f"/v2/{place}/{order}"),
            Code.UNIMPLEMENTED,
            SHARED_MEMORY_DISABLED,
        )
        for order in ("register", "unregister")
        for place in (
            "systemsharedmemory",
            "systemsharedmemory/region/r",
            "cudasharedmemory",
            "cudasharedmemory/region/r",
        )
    ),
    Case(
        "an output in shared memory where clients may not use any",
        asking(shared_memory_region="region", shared_memory_byte_size=64),
        Code.NOT_FOUND,
        "Unable to find shared memory region: 'region'",
    ),
    Case(
        "an input in shared memory where clients may not use any",
        document({"parameters": {"shared_memory_region": "region", "shared_memory_byte_size": 64}}, drop="data"),
        Code.NOT_FOUND,
        "Unable to find shared memory region: 'region'",
    ),
]
