"""Small requests over gRPC, of which one connection may have half a million: what they hold together is bounded."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests import models
from tests.gates import HELD, Gate
from tests.integration.grpc_doors import channel, port_of, tensor_request
from tests.integration.hostile import inflight_bytes
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartServer

pytestmark = pytest.mark.alone

BUDGET: Final = 64 << 20
STREAMS: Final = 8
REQUESTS: Final = 512
"""Of a stream: as many as may be open. All together would hold about 100 MiB"""


def asked(steps: int = 1) -> service_pb2.ModelInferRequest:
    """It holds little beside its name"""
    request = tensor_request("slow", "STEPS", "INT64", np.array([[steps]], np.int64))
    request.id = "x" * 8192
    return request


def test_small_requests_of_streams_count_together(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository, max_batch_size=1024)
    server = start_server(repository, f"--max-inflight-bytes={BUDGET}")
    request = asked()
    is_over = threading.Event()

    def requests() -> Iterator[service_pb2.ModelInferRequest]:
        for _ in range(REQUESTS):
            yield request
        is_over.wait(120)

    with channel(port_of(server), max_receive_message_length=-1) as opened:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        before = server.memory_kib()
        with Gate(repository) as gate:
            held_up = stub.ModelInfer.future(asked(HELD))
            gate.until_reached()
            calls = [stub.ModelStreamInfer(requests()) for _ in range(STREAMS)]
            eventually(lambda: inflight_bytes(server) > 0.99 * BUDGET, "they take all the room that there is")
            held = inflight_bytes(server)
            assert held <= BUDGET
            assert (server.memory_kib() - before) << 10 <= 1.5 * held
        is_over.set()
        # those for which there was no room have waited at their client
        assert [answer.error_message for call in calls for answer in call] == [""] * STREAMS * REQUESTS
        assert held_up.result().outputs
    eventually(lambda: inflight_bytes(server) == 0, "nothing waits")


def test_a_few_small_requests_have_room_where_large_ones_have_none(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository, max_batch_size=1024)
    server = start_server(repository, f"--max-inflight-bytes={BUDGET}")
    with channel(port_of(server)) as opened, channel(port_of(server)) as other:
        crowded, calm = (service_pb2_grpc.GRPCInferenceServiceStub(one) for one in (opened, other))
        with Gate(repository) as gate:
            waiting = [crowded.ModelInfer.future(asked(HELD))]
            gate.until_reached()
            waiting += [crowded.ModelInfer.future(asked()) for _ in range(1023)]
            eventually(lambda: inflight_bytes(server) > 16 << 20, "they count")
            others = [calm.ModelInfer.future(asked()) for _ in range(8)]
        assert all(answer.result().outputs for answer in waiting + others)
    eventually(lambda: inflight_bytes(server) == 0, "nothing waits")
