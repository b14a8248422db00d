"""Python models on a GPU: where their instances are, and outputs that lie there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import placed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer

pytestmark = pytest.mark.gpu


def test_an_instance_is_placed_on_a_gpu(repository: Path, start_server: StartServer) -> None:
    placed.write(repository, "m", "instance_group { kind: KIND_GPU count: 2 gpus: 0 }")
    server = start_server(repository)
    placed.wait_for_instances(server, {"m_0_0": "GPU 0", "m_0_1": "GPU 0"})


@pytest.mark.parametrize("elements", [1, 3, 300_000])
def test_an_output_on_a_gpu_is_copied_and_inputs_are_on_the_host(
    elements: int, repository: Path, start_server: StartServer
) -> None:
    placed.write(repository, "m", "instance_group { kind: KIND_GPU gpus: 0 }")
    told = placed.ask(start_server(repository), "m", elements)
    assert (told["kind"], told["input_on_cpu"], told["output_on_cpu"]) == ("GPU", True, False)


def test_where_nothing_is_said_there_is_an_instance_on_each_gpu(repository: Path, start_server: StartServer) -> None:
    placed.write(repository, "m")
    placed.wait_for_instances(start_server(repository), {"m_0": "GPU 0"})
