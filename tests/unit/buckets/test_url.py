"""URLs of repositories, in the forms of Triton and of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.buckets.url import BucketUrl, bucket_url
from runners.errors import ConfigInvalid


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket", BucketUrl("s3://bucket", "s3", "bucket")),
        ("s3://bucket/a/b/", BucketUrl("s3://bucket/a/b", "s3", "bucket", "a/b")),
        ("S3://bucket/a", BucketUrl("s3://bucket/a", "s3", "bucket", "a")),
        (
            "s3://localhost:9000/bucket/a",
            BucketUrl("s3://localhost:9000/bucket/a", "s3", "bucket", "a", "http://localhost:9000"),
        ),
        (
            "s3://https://minio.example:9000/bucket",
            BucketUrl("s3://https://minio.example:9000/bucket", "s3", "bucket", "", "https://minio.example:9000"),
        ),
        ("s3://http://minio/bucket", BucketUrl("s3://http://minio/bucket", "s3", "bucket", "", "http://minio")),
        ("s3://[::1]:9000/bucket", BucketUrl("s3://[::1]:9000/bucket", "s3", "bucket", "", "http://[::1]:9000")),
        ("gs://bucket/a", BucketUrl("gs://bucket/a", "gs", "bucket", "a")),
        ("gcs://bucket/a", BucketUrl("gcs://bucket/a", "gs", "bucket", "a")),
        ("as://account/container/a", BucketUrl("as://account/container/a", "as", "container", "a", "", "account")),
        (
            "as://account.blob.core.windows.net/container",
            BucketUrl("as://account.blob.core.windows.net/container", "as", "container", "", "", "account"),
        ),
        ("az://container/a", BucketUrl("az://container/a", "as", "container", "a")),
        (Path("s3://bucket/a"), BucketUrl("s3://bucket/a", "s3", "bucket", "a")),
        (Path("s3://https://h:1/b/a"), BucketUrl("s3://https://h:1/b/a", "s3", "b", "a", "https://h:1")),
    ],
)
def test_what_a_url_names(text: str | Path, expected: BucketUrl) -> None:
    assert bucket_url(text) == expected


@pytest.mark.parametrize("text", ["models", "/models", "./s3", "C:models", "model.onnx", Path("a/b")])
def test_what_is_no_url(text: str | Path) -> None:
    assert bucket_url(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s3://http://user:word@host/bucket", "a URL has no place for a user or a password"),
        ("s3://", "expected s3://BUCKET/PATH"),
        ("s3:///a", "expected s3://BUCKET/PATH or s3://https://HOST:PORT/BUCKET/PATH"),
        ("s3://https://host:1", "expected s3://BUCKET/PATH"),
        ("gs://https://host:1/bucket", "expected gs://BUCKET/PATH"),
        ("as://account", "expected as://ACCOUNT/CONTAINER/PATH"),
        ("s3://bucket/../other", "expected no empty parts"),
        ("s3://bucket/a//b", "expected no empty parts"),
        ("http://host/models", "expected a directory, or a URL that begins with s3://, gs://, gcs://, as://, az://"),
        ("hdfs://host/models", "expected a directory, or a URL"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        bucket_url(text)
    assert message in str(caught.value)
