"""The trace of a request to a service: the engine's spans belong to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.collector import Collector
from tests.e2e.bento import Bento
from tests.e2e.pictures import encoded, picture

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
CALLER: Final = "b7ad6b7169203331"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as opened:
        yield opened


@pytest.fixture(scope="module")
def bento(collector: Collector) -> Iterator[Bento]:
    config = [
        *("mode=opentelemetry", f"opentelemetry,url={collector.url}", "opentelemetry,bsp_schedule_delay=50"),
        *("level=TIMESTAMPS", "rate=0"),
    ]
    with Bento(KUSHI_TRACE_CONFIG=";".join(config)).until_ready() as bento:
        yield bento


def test_the_engine_goes_on_with_the_trace_of_whoever_asks_the_service(bento: Bento, collector: Collector) -> None:
    with bento.client() as client:
        files = {"image": ("picture", encoded(picture(7)), "image/png")}
        for flags in ("00", "01"):
            headers = {"traceparent": f"00-{TRACE}-{CALLER}-{flags}"}
            assert client.post("/digit", files=files, headers=headers).raise_for_status().json()["digit"] == 7
    root, model, compute = collector.wait_for(3, TRACE)
    assert [one.name for one in (root, model, compute)] == ["InferRequest", "digits", "compute"]
    assert (root.parent, model.parent, compute.parent) == (CALLER, root.id, model.id)


def test_what_clients_ask_of_the_engine_through_the_service_is_traced_too(bento: Bento, collector: Collector) -> None:
    trace = f"{1:032x}"
    tensor = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.0] * 64}
    with bento.client() as client:
        headers = {"traceparent": f"00-{trace}-{CALLER}-01"}
        client.post("/v2/models/digits/infer", json={"inputs": [tensor]}, headers=headers).raise_for_status()
    root = collector.wait_for(3, trace)[0]
    assert root.name == "InferRequest"
    assert root.events[0] == "HTTP_RECV_START"
    assert root.parent == CALLER
