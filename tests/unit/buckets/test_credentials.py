"""What a bucket is opened with."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from runners.buckets.credentials import config_of, place_of, provider_of
from runners.buckets.url import BucketUrl, bucket_url
from runners.errors import ConfigInvalid

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "TRITON_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def at(text: str) -> BucketUrl:
    url = bucket_url(text)
    assert url is not None
    return url


def profiles(tmp_path: Path, credentials: str, config: str = "") -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(credentials)
    (tmp_path / ".aws/config").write_text(config)


def keys_of(text: str) -> tuple[str, str, str | None] | None:
    provider = provider_of(at(text))
    if provider is None:
        return None
    found = provider()
    return found["access_key_id"], found["secret_access_key"], found["token"]


def test_without_anything_each_store_finds_its_own() -> None:
    for text in ("s3://bucket", "gs://bucket", "az://container"):
        assert config_of(at(text)) == {}
        assert provider_of(at(text)) is None


def test_the_endpoint_is_that_of_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://other")
    endpoint = "https://minio:9000"
    assert config_of(at(f"s3://{endpoint}/bucket")) == {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}


def test_places_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ("s3://a:1/b", "s3://c:1/b", "s3://b", "s3://b/x", "gs://b", "as://a/b", "as://c/b", "az://b")
    assert len({place_of(at(text)) for text in texts}) == len(texts)
    assert place_of(at("s3://b/x/")) == place_of(at("S3://b/x"))
    before = place_of(at("s3://b"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio")
    assert place_of(at("s3://b")) != before
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "a")
    assert place_of(at("az://b")) == place_of(at("as://a/b"))


def test_keys_of_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles(
        tmp_path,
        "[default]\naws_access_key_id = a\naws_secret_access_key = b%\n[other]\naws_access_key_id = c\n"
        "aws_secret_access_key = d\naws_session_token = e\n",
        "[default]\nregion = eu-west-1\n[profile other]\nregion = us-west-2\nendpoint_url = http://minio\n",
    )
    assert keys_of("s3://bucket") == ("a", "b%", None)
    assert config_of(at("s3://bucket")) == {"region": "eu-west-1"}
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    assert config_of(at("s3://bucket")) == {}
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert keys_of("s3://bucket") == ("c", "d", "e")
    assert config_of(at("s3://bucket"))["endpoint"] == "http://minio"
    assert config_of(at("s3://host:1/bucket"))["endpoint"] == "http://host:1"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://other")
    assert config_of(at("s3://bucket")) == {}


def test_keys_of_variables_win_over_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles(tmp_path, "[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    assert keys_of("s3://bucket") is None


def test_a_profile_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "other")
    with pytest.raises(ConfigInvalid, match="the profile 'other' of AWS is in none of its files"):
        config_of(at("s3://bucket"))


def test_files_of_profiles_may_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    assert keys_of("s3://bucket") == ("a", "b", None)
    (tmp_path / "keys").write_text("aws_access_key_id = a\n")
    with pytest.raises(ConfigInvalid, match="cannot be read as a file of AWS profiles"):
        provider_of(at("s3://bucket"))


def test_a_profile_with_a_role_needs_boto3(tmp_path: Path) -> None:
    profiles(tmp_path, "", "[default]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = other\n")
    with pytest.raises(ConfigInvalid, match="states a role, a login or a command, which boto3 finds credentials by"):
        provider_of(at("s3://bucket"))


def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: object) -> None:
    (tmp_path / "credentials.json").write_text(json.dumps(document))
    monkeypatch.setenv("TRITON_CLOUD_CREDENTIAL_PATH", str(tmp_path / "credentials.json"))


def test_tritons_file_says_it_by_the_longest_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def keys(key: str) -> dict[str, str]:
        return {"key_id": key, "secret_key": f"{key} secret", "region": "eu-west-1", "session_token": "", "profile": ""}

    file(
        tmp_path,
        monkeypatch,
        {"s3": {"": keys("a"), "s3://bucket": keys("b"), "s3://bucket/long": keys("c")}, "gs": {"": "/account.json"}},
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of another key")
    for text, key in (("s3://other", "a"), ("s3://bucket", "b"), ("s3://bucket/l", "b"), ("s3://bucket/long/a", "c")):
        assert keys_of(text) == (key, f"{key} secret", None)
        assert config_of(at(text)) == {"region": "eu-west-1"}
    assert config_of(at("gs://bucket")) == {"application_credentials": "/account.json"}
    assert config_of(at("az://container")) == {}


def test_tritons_file_may_name_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file(tmp_path, monkeypatch, {"s3": {"": {"profile": "other"}}})
    profiles(tmp_path, "[other]\naws_access_key_id = c\naws_secret_access_key = d\n")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    assert keys_of("s3://bucket") == ("c", "d", None)


@pytest.mark.parametrize("content", ["", "[]", '{"s3": 1}', '{"s3": {"": 1}}'])
def test_tritons_file_that_is_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    (tmp_path / "credentials.json").write_text(content)
    monkeypatch.setenv("TRITON_CLOUD_CREDENTIAL_PATH", str(tmp_path / "credentials.json"))
    with pytest.raises(ConfigInvalid, match=r"TRITON_CLOUD_CREDENTIAL_PATH: '.*' cannot be read as credentials"):
        config_of(at("s3://bucket"))


def test_azure_is_told_as_triton_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AZURE_STORAGE_ACCOUNT": "account",
        "AZURE_STORAGE_KEY": "key",
        "AZURE_STORAGE_CLIENT_ID": "client",
        "AZURE_AUTHORITY_HOST": "https://login",
    }.items():
        monkeypatch.setenv(name, value)
    expected = {
        "account_name": "account",
        "account_key": "key",
        "client_id": "client",
        "authority_host": "https://login",
    }
    assert config_of(at("az://container")) == expected
    assert config_of(at("as://other/container")) == {**expected, "account_name": "other"}
    monkeypatch.setenv("AZURE_STORAGE_AUTH_TYPE", "managed_identity")
    del expected["account_key"]
    assert config_of(at("az://container")) == expected
    monkeypatch.setenv("AZURE_STORAGE_AUTH_TYPE", "password")
    with pytest.raises(ConfigInvalid, match="AZURE_STORAGE_AUTH_TYPE is 'password'"):
        config_of(at("az://container"))
