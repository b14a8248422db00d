"""
Client: the verbs of an Engine, towards an engine in another process or on another host.

The scheme of the url says how: `unix://PATH` is the local door of an engine on this host, with large tensors in shared
memory; `http://HOST:PORT`, `https://HOST:PORT`, `grpc://HOST:PORT` and `grpcs://HOST:PORT` are any server of the Open
Inference Protocol. A client connects when it is first asked, and again when the other side went away. It belongs to the
process that made it, and serves all threads and event loops of that process.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import kushi_native

from .calls import Calls
from .errors import InvalidInput, factories

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta
    from pathlib import Path

    from numpy.typing import DTypeLike, NDArray

    from .verbs import Answer, Verb

__all__ = ["Client", "check_url"]

_SCHEMES = ("http", "https", "grpc", "grpcs")
_EXPECTED = "unix://PATH, http://HOST:PORT, https://HOST:PORT, grpc://HOST:PORT or grpcs://HOST:PORT"


class Client(Calls):
    """
    The models of an engine that runs elsewhere.

        with Client("unix:///run/kushi.sock") as client:
            print(client.digits.run(image)["logits"])

    What an Engine answers and raises, a Client answers and raises; besides that, ConnectionLost when the other side is
    not there or went away.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        ca_cert: str | Path | None = None,
        client_cert: str | Path | None = None,
        client_key: str | Path | None = None,
        insecure: bool = False,
    ) -> None:
        """
        url: `unix://PATH` of an engine's local socket (`kushi serve --local-socket PATH`, `engine.serve_local(PATH)`),
            `http://HOST:PORT` or `https://HOST:PORT`, `grpc://HOST:PORT` or `grpcs://HOST:PORT`.
        headers: sent with every request, such as a token, over gRPC as metadata; shown nowhere.
        ca_cert: for https and grpcs, a file with the certificates of the authorities that are trusted, in PEM form;
            without it, those of the system are.
        client_cert, client_key: files of the certificate that the client shows, and its key, in PEM form.
        insecure: takes any server at the other end of TLS for the right one.
        """
        scheme, place = check_url(url)
        if (client_cert is None) != (client_key is None):
            raise InvalidInput("client_cert and client_key belong together, got one of them")
        if scheme == "unix" and headers:
            raise InvalidInput(f"headers are for http, https, grpc and grpcs, got them for {url!r}")
        if scheme not in {"https", "grpcs"} and (ca_cert or client_cert or insecure):
            raise InvalidInput(
                f"ca_cert, client_cert, client_key and insecure are for https and grpcs, got one for {url!r}"
            )
        kushi_native.register_errors(factories())
        self._url = url
        self._native: kushi_native.LocalClient | kushi_native.RemoteClient
        self._speaks_grpc = scheme in {"grpc", "grpcs"}
        self._knows_messages = False
        if scheme == "unix":
            super().__init__(kushi_native.LocalClient(place))
            return
        identity = (str(client_cert), str(client_key)) if client_cert and client_key else None
        native = kushi_native.RemoteClient(
            place,
            headers=[*(headers or {}).items()],
            ca_cert=str(ca_cert) if ca_cert else None,
            client_cert=identity,
            insecure=insecure,
        )
        super().__init__(native)

    @property
    def url(self) -> str:
        """Where the engine is"""
        return self._url

    def empty(self, shape: int | Sequence[int], dtype: DTypeLike = "float32") -> NDArray[Any]:
        if isinstance(self._native, kushi_native.LocalClient):
            return self._native.empty(shape, dtype)
        return super().empty(shape, dtype)

    def close(self) -> None:
        """Closes all connections; calls in flight fail with ConnectionLost. A second call does nothing"""
        self._native.close()

    def __repr__(self) -> str:
        return f"Client({self._url!r})"

    def _call(self, verb: Verb, deadline: float | timedelta | None = None) -> Answer:
        if not self._speaks_grpc:
            return self._native.call(verb.name, verb.arguments_json(), deadline)
        return _read(verb, self._native.call(verb.name, _message(verb), deadline))

    async def _async_call(self, verb: Verb, deadline: float | timedelta | None = None) -> Answer:
        if not self._speaks_grpc:
            return await self._native.async_call(verb.name, verb.arguments_json(), deadline)
        if not self._knows_messages:
            # for so long no event loop shall stand still
            await asyncio.to_thread(_load_messages)
            self._knows_messages = True
        return _read(verb, await self._native.async_call(verb.name, _message(verb), deadline))


def _load_messages() -> None:
    from .grpc_messages import load  # noqa: PLC0415 - who asks for inference alone needs no descriptions

    load()


def _message(verb: Verb) -> bytes:
    from .grpc_messages import question  # noqa: PLC0415 - as above

    return question(verb)


def _read(verb: Verb, answer: Answer) -> Answer:
    from .grpc_messages import reading  # noqa: PLC0415 - as above

    return reading(verb, answer)


def check_url(url: str) -> tuple[str, str]:
    """The scheme, and what the native client of it takes; raises for a url that a Client cannot speak to"""
    if not isinstance(url, str):
        raise InvalidInput(f"expected a url as text, {_EXPECTED}, got {url!r}")
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise InvalidInput(f"expected {_EXPECTED}, got {url!r}{_guess(url)}")
    scheme = scheme.lower()
    if scheme == "unix":
        return scheme, _checked_path(url, rest)
    if scheme in _SCHEMES:
        return scheme, url
    raise InvalidInput(f"unknown scheme {scheme!r}, expected {_EXPECTED}, got {url!r}")


def _guess(url: str) -> str:
    if not url:
        return ""
    scheme, colon, rest = url.partition(":")
    if not colon or scheme.lower() not in {"unix", *_SCHEMES}:
        scheme, rest = "unix" if "/" in url else "http", url
    return f", did you mean {scheme}://{rest if scheme == 'unix' else rest.lstrip('/')}?"


def _checked_path(url: str, path: str) -> str:
    if not path:
        raise InvalidInput(f"expected the path of a socket after unix://, got {url!r}")
    if "\0" in path:
        raise InvalidInput(f"expected a path without null characters after unix://, got {url!r}")
    return path
