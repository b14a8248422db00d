"""What several of these tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.regions import connect, open_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.http import InferenceServerClient as Client

    from tests.serving import Server


@pytest.fixture
def region_client(region_server: Server) -> Iterator[Client]:
    """A client that may register memory; the test leaves no region, no open object and no dead server."""
    with connect(region_server) as client:
        yield client
        client.unregister_system_shared_memory()
        assert client.get_system_shared_memory_status() == []
    assert open_objects(region_server) == 0
    assert region_server.process.poll() is None
