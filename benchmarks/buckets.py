"""Models in a bucket: how long fetching takes beside obstore alone, and a start with what was fetched before.

    .venv-buckets/bin/python -m benchmarks.buckets [--quick] [--repeats N] [--save]

A server of this machine shows a folder as a bucket of S3 (`benchmarks/s3_files.py`). A model of 1 GB is fetched into an
empty cache, and by obstore alone into a file, as one stream and in ranges of 8 MiB, eight at a time. Then an engine is
opened in a new process over the bucket, whose files are all in the cache, and over the folder itself: with the large
model, and with 300 small ones. All files are in the memory of the system, so that no disk is measured.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import obstore
from obstore.store import S3Store

from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Check, Outcome, Table, progress, run_part
from runners.buckets.repositories import Repositories
from tests import models

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["PART", "measure"]

PART: Final = "buckets"
LARGE: Final = 1_000_000_000
SMALL_MODELS: Final = 300
RANGE: Final = 8 * 1024 * 1024
AT_A_TIME: Final = 8
CHUNK: Final = 10 * 1024 * 1024
KEYS: Final = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
START: Final = """
import sys, time
from runners import Engine, EngineOptions
from runners.settings import BucketOptions
begun = time.monotonic()
options = EngineOptions(buckets=BucketOptions(directory=sys.argv[2]))
with Engine(sys.argv[1], options=options):
    print(time.monotonic() - begun)
"""


def measure(options: Options) -> Outcome:
    plan = options.plan(Plan(0, 5), Plan(0, 1))
    os.environ.update(KEYS)
    folders = {"large": _large(), "small": _small()}
    seconds: dict[str, list[float]] = {}
    with _server(folders["large"]) as large, _server(folders["small"]) as small:
        for repeat in range(plan.repeats):
            progress(PART, f"repeat {repeat + 1} of {plan.repeats}")
            ways = {
                "obstore, one stream": lambda: _stream(large),
                "obstore, ranges": lambda: _ranges(large),
                "fetched": lambda: _fetch(large),
            }
            for way in [*ways][:: 1 if repeat % 2 == 0 else -1]:
                seconds.setdefault(way, []).append(ways[way]())
            for name, port in (("large", large), ("small", small)):
                # the first one fetches what is not there yet
                _start(_url(port), name)
                seconds.setdefault(f"start, {name}, bucket", []).append(_start(_url(port), name))
                seconds.setdefault(f"start, {name}, folder", []).append(_start(str(folders[name]), name))
    median = {way: statistics.median(times) for way, times in seconds.items()}
    alone = min(median["obstore, one stream"], median["obstore, ranges"])
    starts = {name: median[f"start, {name}, bucket"] / median[f"start, {name}, folder"] for name in folders}
    return Outcome(
        PART,
        "Models in a bucket",
        f"a model of {LARGE / 1e9:g} GB, and {SMALL_MODELS} small ones; median of {plan.repeats} repeats",
        Table(("", "seconds"), tuple((way, f"{value:.2f}") for way, value in median.items())),
        (
            Check("fetching ÷ obstore alone, its faster way", median["fetched"] / alone, "at most", 1.15),
            Check("start with the large model, cache ÷ folder", starts["large"], "at most", 1.2),
            Check(f"start with {SMALL_MODELS} models, cache ÷ folder", starts["small"], "at most", 1.2),
        ),
        figures={"seconds": seconds},
    )


def _url(port: int) -> str:
    return f"s3://127.0.0.1:{port}/bucket"


def _store(port: int) -> S3Store:
    return S3Store("bucket", endpoint=f"http://127.0.0.1:{port}", client_options={"allow_http": True})


def _stream(port: int) -> float:
    out = BUILD / "bucket.out"
    begun = time.monotonic()
    with out.open("wb") as file:
        for chunk in obstore.get(_store(port), "large/1/model.onnx").stream(min_chunk_size=CHUNK):
            file.write(chunk)
    seconds = time.monotonic() - begun
    out.unlink()
    return seconds


def _ranges(port: int) -> float:
    out = BUILD / "bucket.out"
    store = _store(port)
    begun = time.monotonic()
    size = (BUILD / "bucket/large/large/1/model.onnx").stat().st_size
    with out.open("wb") as file:

        def read(start: int) -> None:
            part: Any = obstore.get_range(store, "large/1/model.onnx", start=start, end=min(start + RANGE, size))
            os.pwrite(file.fileno(), part, start)

        with ThreadPoolExecutor(AT_A_TIME) as pool:
            list(pool.map(read, range(0, size, RANGE)))
    seconds = time.monotonic() - begun
    out.unlink()
    return seconds


def _fetch(port: int) -> float:
    cache = BUILD / "bucket.cache"
    shutil.rmtree(cache, ignore_errors=True)
    begun = time.monotonic()
    repositories = Repositories([_url(port)], str(cache), 10 * LARGE)
    repositories.begin()
    (path,) = repositories.paths
    bucket = repositories.bucket_at(path)
    assert bucket is not None
    bucket.fetch("large")
    seconds = time.monotonic() - begun
    repositories.close()
    shutil.rmtree(cache)
    return seconds


def _start(repository: str, name: str) -> float:
    words = [sys.executable, "-c", START, repository, str(BUILD / f"bucket.cache.{name}")]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def _large() -> Path:
    folder = BUILD / "bucket" / "large"
    if not folder.exists():
        progress(PART, "makes a model of 1 GB")
        models.write(folder, "large", models.large(LARGE))
    return folder


def _small() -> Path:
    folder = BUILD / "bucket" / "small"
    if not folder.exists():
        for number in range(SMALL_MODELS):
            models.write(folder, f"model_{number}", models.plus_constant(number))
    return folder


@contextmanager
def _server(folder: Path) -> Iterator[int]:
    words = [sys.executable, "-m", "benchmarks.s3_files", str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
