"""
WebSockets of a service: a method takes the messages of a client and answers with models of pydantic.

    @websocket("/events")
    async def events(self, messages: AsyncIterator[bytes]) -> AsyncIterator[Event]:
        async for data in messages:
            yield Event(...)

What always holds: whatever happens, the client hears why its WebSocket closes. Where the client goes away, the method
hears of it when it takes the next message or has the next answer, by the exception `WebSocketDisconnect`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final, TypeVar, cast

import bentoml
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from ..errors import InvalidInput, KushiError
from .error_text import error_text

__all__ = ["mount_websockets", "websocket"]

_Method = TypeVar("_Method", bound=Callable[[Any, AsyncIterator[bytes]], AsyncIterator[BaseModel]])

_NOT_ACCEPTABLE: Final = 1003
_FAILED: Final = 1011
# of the frame that closes
_MOST_REASON_BYTES: Final = 123


def websocket(path: str) -> Callable[[_Method], _Method]:
    """
    Declares that a method of a `service` of this package, an async generator, answers the WebSockets of `path`.

    It is given binary messages until an empty one, which is how a client says that it has sent all. Each answer goes
    out as JSON, in a text message. The WebSocket closes with the code 1000 at the end of the method; with 1003 after
    InvalidInput, and where a client sends text; with 1011 after any other exception. The reason is the text of a
    KushiError; other exceptions are for the log.
    """

    def declare(method: _Method) -> _Method:
        given: object = method
        if not inspect.isasyncgenfunction(given):
            raise TypeError(f"websocket() expects an async generator, got {method!r}")
        method.kushi_websocket = path  # type: ignore[attr-defined]
        return method

    return declare


def mount_websockets(service: bentoml.Service[Any]) -> None:
    """Gives the service what its class declares"""
    routes = [
        WebSocketRoute(method.kushi_websocket, _endpoint(method))
        for _, method in inspect.getmembers_static(service.inner, inspect.isasyncgenfunction)
        if hasattr(method, "kushi_websocket")
    ]
    if routes:
        service.mount_asgi_app(Starlette(routes=routes), name="websockets")


def _endpoint(method: Callable[[Any, AsyncIterator[bytes]], AsyncIterator[BaseModel]]) -> Any:  # noqa: ANN401 - of Starlette
    async def answer(socket: WebSocket) -> None:
        await socket.accept()
        answers = cast("AsyncGenerator[BaseModel]", method(bentoml.get_current_service(), _messages(socket)))
        try:
            async with aclosing(answers):
                async for each in answers:
                    await socket.send_text(each.model_dump_json())
            await socket.close()
        except WebSocketDisconnect:
            pass
        except InvalidInput as error:
            await socket.close(_NOT_ACCEPTABLE, _reason(error))
        except KushiError as error:
            await socket.close(_FAILED, _reason(error))
        except Exception:
            await socket.close(_FAILED, "the service failed")
            raise

    return answer


async def _messages(socket: WebSocket) -> AsyncIterator[bytes]:
    while data := await _received(socket):
        yield data


async def _received(socket: WebSocket) -> bytes:
    try:
        return await socket.receive_bytes()
    except KeyError:
        raise InvalidInput("expected binary messages, got text") from None


def _reason(error: KushiError) -> str:
    return error_text(error).encode()[:_MOST_REASON_BYTES].decode(errors="ignore")
