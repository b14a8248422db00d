"""Bodies through the relay: whoever does not read stops whoever sends, and whoever goes away is not waited for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from starlette.exceptions import HTTPException

from runners import Engine
from tests import models
from tests.unit.bento.asgi import Call, ask
from tests.unit.bento.relayed import OK, Scripted, relay_to, relaying, run

if TYPE_CHECKING:
    from pathlib import Path


def test_a_client_that_went_away_before_its_body_asks_nothing(path: Path, live: Engine) -> None:
    async def main() -> None:
        engine = Scripted([OK], close=False)
        async with relaying(path, live, engine) as relay:
            call = Call("/v2", headers=[(b"content-length", b"9")], body=[])
            call.leave()
            assert (await ask(relay, call)).status == 0
        assert not engine.connections

    run(main())


@pytest.mark.clock
def test_an_engine_that_does_not_read_stops_the_client(path: Path, live: Engine) -> None:
    async def main() -> None:
        reads = asyncio.Event()

        async def hesitant(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reads.wait()
            total = 0
            await reader.readuntil(b"\r\n\r\n")
            while total < length:
                total += len(await reader.read(1 << 20))
            writer.write(OK)
            writer.close()

        piece, count = bytes(1 << 16), 500
        length = len(piece) * count
        server = await asyncio.start_unix_server(hesitant, path)
        taken = 0
        call = Call("/v2", headers=[(b"content-length", b"%d" % length)], body=[piece] * count)
        receive = call.receive

        async def counted() -> object:
            nonlocal taken
            taken += 1
            return await receive()

        asking = asyncio.create_task(relay_to(path, live)(call.scope, counted, call.send))  # type: ignore[arg-type] # of a wider type
        before = -1
        while taken != before:
            before = taken
            await asyncio.sleep(0.1)
        assert taken < count / 2
        reads.set()
        await asking
        assert (call.answer.status, call.answer.body) == (200, b"ok")
        server.close()

    run(main())


@pytest.mark.clock
def test_a_client_that_does_not_read_stops_the_engine(path: Path, live: Engine) -> None:
    async def main() -> None:
        length, sent = 32 << 20, 0

        async def generous(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % length)
            while sent < length:
                writer.write(bytes(1 << 16))
                sent += 1 << 16
                await writer.drain()
            writer.close()

        server = await asyncio.start_unix_server(generous, path)
        call, reads = Call("/v2", method="GET"), asyncio.Event()
        send = call.send

        async def hesitant(message: dict[str, object]) -> None:
            await reads.wait()
            await send(message)

        asking = asyncio.create_task(relay_to(path, live)(call.scope, call.receive, hesitant))  # type: ignore[arg-type] # of a narrower type
        before = -1
        while sent != before or not sent:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < length / 2
        reads.set()
        await asking
        assert len(call.answer.body) == length
        server.close()

    run(main())


def test_a_body_that_is_found_to_be_wrong_on_its_way_is_refused_at_once(path: Path, live: Engine) -> None:
    async def main() -> None:
        engine = Scripted([b""], close=False)
        async with relaying(path, live, engine) as relay:
            call = Call("/v2", body=[b"abc"])

            async def faulty() -> object:
                if not engine.heads:
                    return {"type": "http.request", "body": b"abc", "more_body": True}
                raise HTTPException(400, "the request is no HTTP/1.1")

            with pytest.raises(HTTPException, match="no HTTP"):
                await relay(call.scope, faulty, call.send)  # type: ignore[arg-type] # of a wider type
            await engine.gone.wait()

    run(main())


@pytest.mark.clock
def test_a_client_that_goes_away_is_not_waited_for(path: Path, live: Engine) -> None:
    async def main() -> None:
        engine = Scripted([b""], close=False)
        async with relaying(path, live, engine) as relay:
            call = Call("/v2")
            asking = asyncio.create_task(ask(relay, call))
            while not engine.heads:
                await asyncio.sleep(0.01)
            assert not asking.done()
            call.leave()
            await engine.gone.wait()
            await asking
            assert call.answer.status == 0

    run(main())


@pytest.mark.clock
def test_an_engine_that_stands_still_makes_a_503(path: Path, tmp_path: Path) -> None:
    async def main() -> None:
        models.write_add_sub(tmp_path / "models")
        engine = Engine(tmp_path / "models")
        async with relaying(path, engine, Scripted([b""], close=False)) as relay:
            asking = asyncio.create_task(ask(relay, Call("/v2")))
            await asyncio.sleep(0.2)
            assert not asking.done()
            await asyncio.to_thread(engine.close)
            assert (await asking).status == 503

    run(main())
