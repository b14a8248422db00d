"""What both servers say over gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from tests.serving import GRPC_LINE

if TYPE_CHECKING:
    from tests.peer.pair import Pair
    from tests.raw_http import Address


def is_ready(address: Address, model: str, version: str) -> bool | str:
    """Where there is no answer, the error"""
    with InferenceServerClient(f"{address[0]}:{address[1]}") as client:
        try:
            ready: bool = client.is_model_ready(model, version)
        except InferenceServerException as error:
            return f"{error.status()} {error.message()}"
        return ready


def both(pair: Pair, model: str, version: str) -> tuple[bool | str, bool | str]:
    assert pair.server is not None
    kushi = ("127.0.0.1", int(pair.server.log.wait_for(GRPC_LINE, 30).group(1)))
    return is_ready(pair.peer.grpc, model, version), is_ready(kushi, model, version)


@pytest.mark.parametrize(
    ("model", "version", "ready"),
    [
        ("optional", "", True),
        ("optional", "1", True),
        ("optional", "7", False),
        ("nowhere", "", False),
        ("nowhere", "1", False),
        # it has failed to load
        ("no_syntax", "", False),
        ("no_syntax", "1", False),
    ],
)
def test_a_model_that_is_not_there_is_not_ready(pair: Pair, model: str, version: str, ready: bool) -> None:
    assert both(pair, model, version) == (ready, ready)


def test_a_version_that_is_no_number_is_an_error(pair: Pair) -> None:
    triton, kushi = both(pair, "optional", "x")
    assert triton == kushi
    assert "StatusCode.INVALID_ARGUMENT" in str(triton)
