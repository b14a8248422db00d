"""A client of another model that asks again and again while something happens, and holds that nothing of it is felt."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.raw_http import Response
    from tests.serving import Server

__all__ = ["Bystander", "undisturbed"]

PAUSE_S: Final = 0.002
_HEADERS, _BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS))


class Bystander:
    """Asks add_sub on one connection, one request after the other"""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bystander")
        self.answered = 0
        self.wrong: list[Response | BaseException] = []

    def _run(self) -> None:
        try:
            with self._server.connect() as connection:
                # other tests want to run, too
                while not self._stop.wait(PAUSE_S) and not self.wrong:
                    response = connection.ask("POST", requests.path("add_sub"), _HEADERS, _BODY)
                    if response.status == 200 and response.json()["outputs"][0]["data"]:
                        self.answered += 1
                    else:
                        self.wrong.append(response)
        except BaseException as error:  # noqa: BLE001 - whatever it was, the test tells of it
            self.wrong.append(error)

    def is_still_answered(self) -> None:
        """Waits for some more answers"""
        until = self.answered + 20
        eventually(lambda: self.answered >= until or bool(self.wrong), "the other model answers")
        assert self.wrong == []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def undisturbed(server: Server) -> Iterator[Bystander]:
    """Holds that each request to add_sub is answered as it should be, before, during and after what the block does"""
    bystander = Bystander(server)
    bystander.start()
    try:
        bystander.is_still_answered()
        yield bystander
        bystander.is_still_answered()
    finally:
        bystander.stop()
    assert bystander.wrong == []
    assert server.process.poll() is None
