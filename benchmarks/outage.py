"""A store that is gone for a while, under load: does a request fail?

    .venv-buckets/bin/python -m benchmarks.outage [--minutes M]

A server polls a bucket of moto's S3 every five seconds, through a way on which each request fails, stalls, breaks off
or is told to slow down, for half a minute each in turn. Four clients ask its five models all the time. This ends with 1
where a request failed, the index gives no reason, or the store is not polled again.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser
from itertools import cycle
from typing import Final

import numpy as np

from runners import Client
from tests import models
from tests.buckets.stores import ENVIRONMENT, S3, Faults
from tests.serving import Server
from tests.waiting import eventually

__all__ = ["main"]

MODELS: Final = 5
CLIENTS: Final = 4
TURN_S: Final = 30.0
PAUSE_S: Final = 0.002
"""Between two requests of a client, so that the store has a core as well"""
PATIENCE_S: Final = 60.0


class Load:
    """Clients that ask all models until they are told to end"""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ends = threading.Event()
        self.asked = [0] * CLIENTS
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._ask, args=(index,)) for index in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, index: int) -> None:
        with Client(f"http://127.0.0.1:{self._port}") as client:
            while not self._ends.wait(PAUSE_S):
                number = self.asked[index] % MODELS
                self.asked[index] += 1
                try:
                    answer = client.infer(f"m{number}", {"INPUT0": np.zeros((1, 1), np.int32)})["OUTPUT0"].item()
                except Exception as error:  # noqa: BLE001 - each is one that failed
                    self.failures.append(repr(error))
                else:
                    if answer != number:
                        self.failures.append(f"m{number} answers {answer}")


def main() -> int:
    parser = ArgumentParser(description="A store that is gone for a while, under load")
    parser.add_argument("--minutes", type=float, default=10)
    seconds = 60 * parser.parse_args().minutes
    os.environ.update(ENVIRONMENT)
    with S3() as s3, Faults(s3.port) as faults, tempfile.TemporaryDirectory() as cache:
        s3.new_bucket()
        for number in range(MODELS):
            s3.put(f"repository/m{number}/1/model.onnx", models.plus_constant(number).SerializeToString())
        flags = (f"--model-repository={s3.url(port=faults.port)}", f"--bucket-cache-directory={cache}")
        server = Server.start(None, *flags, "--model-control-mode=poll", "--repository-poll-secs=5")
        try:
            load = Load(server.http[1])
            says_why = _fail(faults, server, seconds)
            eventually(lambda: not any(_reasons(server)), "the store is polled again", PATIENCE_S)
            load.end()
        finally:
            server.kill()
    sys.stdout.write(
        f"{seconds:.0f} s without a store: {sum(load.asked)} requests, {len(load.failures)} failed; "
        f"the index says why: {'yes' if says_why else 'no'}; polled again\n"
    )
    sys.stdout.writelines(f"{failure}\n" for failure in load.failures[:10])
    return 0 if says_why and not load.failures else 1


def _fail(faults: Faults, server: Server, seconds: float) -> bool:
    """Until the time is over; whether the index says of each model, then, why it is not polled"""
    end = time.monotonic() + seconds
    for fault in cycle(("error", "stall", "cut", "slow down")):
        left = end - time.monotonic()
        if left <= 0:
            break
        sys.stdout.write(f"{left:.0f} s left: {fault}\n")
        sys.stdout.flush()
        faults.fault = lambda _, fault=fault: fault  # type: ignore[misc] # of a loop
        time.sleep(min(TURN_S, left))
    says_why = all("is not polled" in reason for reason in _reasons(server))
    faults.fault = lambda _: ""
    return says_why


def _reasons(server: Server) -> list[str]:
    return [row.get("reason", "") for row in server.post("/v2/repository/index", b"").json()]


if __name__ == "__main__":
    sys.exit(main())
