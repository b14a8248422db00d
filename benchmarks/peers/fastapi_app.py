"""The API with FastAPI and a batcher by hand: what is waiting when the last batch is done makes the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from benchmarks.peers.session import open_session

Array = npt.NDArray[np.float32]
MOST_ROWS = 32


class Batcher:
    def __init__(self) -> None:
        self._session = open_session()
        self._waiting: asyncio.Queue[tuple[Array, asyncio.Future[Array]]] = asyncio.Queue()

    async def predict(self, row: Array) -> Array:
        answer = asyncio.get_running_loop().create_future()
        await self._waiting.put((row, answer))
        return await answer

    async def work(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < MOST_ROWS and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            rows = np.stack([row for row, _ in batch])
            results = await asyncio.to_thread(self._session.run, None, {"INPUT": rows})
            for (_, answer), result in zip(batch, results[0], strict=True):
                if not answer.done():
                    answer.set_result(result)


class Row(BaseModel):
    x: list[float] = Field(min_length=128, max_length=128)


@asynccontextmanager
async def life(app: FastAPI) -> AsyncIterator[None]:
    app.state.batcher = Batcher()
    work = asyncio.create_task(app.state.batcher.work())
    yield
    work.cancel()


app = FastAPI(lifespan=life)


@app.post("/predict")
async def predict(row: Row) -> list[float]:
    result: Any = await app.state.batcher.predict(np.asarray(row.x, np.float32))
    return list(result.tolist())


@app.get("/readyz")
async def ready() -> PlainTextResponse:
    return PlainTextResponse("\n")
