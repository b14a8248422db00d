"""A repository in a container of Azure, as far as a server says that only speaks as Azure does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from azure.storage.blob import ContainerClient

from runners import ConfigInvalid, Engine
from tests import models
from tests.buckets.azure import ACCOUNT, CONTAINER, KEY, Azure
from tests.buckets.stores import credentials
from tests.buckets.test_s3 import POLL, answer, options
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

URL = f"as://{ACCOUNT}/{CONTAINER}/repository"


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Azure]:
    with Azure() as server:
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", server.endpoint)
        monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
        yield server


def put(azure: Azure, name: str, constant: int, version: int = 1) -> None:
    azure.put(f"repository/{name}/{version}/model.onnx", models.plus_constant(constant).SerializeToString())


def test_the_server_is_one_that_microsofts_client_takes(azure: Azure) -> None:
    client = ContainerClient(azure.endpoint, CONTAINER, credential={"account_name": ACCOUNT, "account_key": KEY})
    for number in range(8):
        client.upload_blob(f"repository/m{number}/1/model.onnx", bytes([number]) * 100)
    assert [blob.name for blob in client.list_blobs("repository/m")] == sorted(azure.blobs)
    assert client.download_blob("repository/m3/1/model.onnx", offset=10, length=5).readall() == b"\3" * 5
    client.delete_blob("repository/m3/1/model.onnx")
    assert "repository/m3/1/model.onnx" not in azure.blobs


@pytest.mark.parametrize("url", [URL, f"az://{CONTAINER}/repository"])
def test_models_of_a_container_are_served(azure: Azure, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
    for number in range(8):
        put(azure, f"m{number}", number)
    with Engine(url, options=options()) as engine:
        assert [answer(engine, f"m{number}") for number in range(8)] == [*range(8)]


def test_a_container_is_polled(azure: Azure) -> None:
    put(azure, "m", 1)
    with Engine(URL, options=options(POLL)) as engine:
        put(azure, "m", 2)
        eventually(lambda: answer(engine) == 2, "what has changed serves")


def test_keys_come_from_tritons_file(azure: Azure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(azure, "m", 1)
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    document = {"as": {"": {"account_str": ACCOUNT, "account_key": KEY}}}
    monkeypatch.setenv("TRITON_CLOUD_CREDENTIAL_PATH", credentials(tmp_path / "credentials.json", document))
    with Engine(f"az://{CONTAINER}/repository", options=options()) as engine:
        assert answer(engine) == 1


def test_a_way_to_authenticate_that_is_none_is_refused(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    put(azure, "m", 1)
    monkeypatch.setenv("AZURE_STORAGE_AUTH_TYPE", "password")
    with pytest.raises(ConfigInvalid, match="AZURE_STORAGE_AUTH_TYPE is 'password', expected managed_identity"):
        Engine(URL, options=options())
