"""Texts that files and clients choose: how long they stand in answers and in the log, and how often."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.bystander import undisturbed
from tests.contract import requests
from tests.contract.requests import Infer, Tensor

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer


LONG = "x" * 1_000_000
LONG_NAMES = {
    "a_model": 'name: "{long}"',
    "a_backend": 'backend: "{long}"',
    "a_platform": 'platform: "{long}"',
    "an_input": 'backend: "onnxruntime" input [ {{ name: "{long}" data_type: TYPE_FP32 dims: [ -1 ] }} ]',
    "a_value": 'backend: "onnxruntime" parameters {{ key: "execution_mode" value {{ string_value: "{long}" }} }}',
    "a_label_file": 'output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] label_filename: "{long}" }} ]',
}


@pytest.mark.parametrize("what", LONG_NAMES)
def test_a_long_name_stands_cut_in_answers_in_the_index_and_in_the_log(
    what: str, repository: Path, start_server: StartServer
) -> None:
    models.write_add_sub(repository)
    models.write(repository, "m", models.identity("FP32"), LONG_NAMES[what].format(long=LONG))
    server = start_server(repository, "--model-control-mode=explicit", "--load-model=add_sub")
    with undisturbed(server):
        refused = server.post("/v2/repository/models/m/load", b"")
        assert refused.status in {400, 500}, refused.error[:1000]
        assert len(refused.error) < 5000
        assert len(server.post("/v2/repository/index", b"").body) < 5000
    assert server.stop() == 0
    assert max(map(len, server.log.lines)) < 5000


def test_errors_that_the_data_of_requests_brings_about_do_not_flood_the_log(
    repository: Path, start_server: StartServer
) -> None:
    models.write_add_sub(repository)
    models.write_gather(repository)
    server = start_server(repository)
    begun = time.monotonic()
    headers, body = requests.body(Infer("gather", [Tensor("INDEX", "INT64", (1, 1), values=[1 << 40])]))
    with undisturbed(server), server.connect() as connection:
        for _ in range(300):
            assert connection.ask("POST", requests.path("gather"), headers, body).status == 500
    assert server.stop() == 0
    complaints = [line for line in server.log.lines if "onnxruntime" in line]
    stretches = (time.monotonic() - begun) // 10 + 2
    assert 0 < len(complaints) <= 20 * stretches
