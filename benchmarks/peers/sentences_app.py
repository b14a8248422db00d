"""sentence-transformers behind FastAPI, with a batcher by hand: python -m benchmarks.peers.sentences_app MODEL PORT"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

MOST_TEXTS = 32
LONGEST = 128


class Asked(BaseModel):
    text: str


class Batcher:
    """What is waiting when the last batch is done makes the next one; the library sorts it by length."""

    def __init__(self, path: str) -> None:
        torch.set_num_threads(1)
        self._model: Any = SentenceTransformer(path, device="cpu")
        self._model.max_seq_length = LONGEST
        self._waiting: asyncio.Queue[tuple[str, asyncio.Future[list[float]]]] = asyncio.Queue()

    async def vector(self, text: str) -> list[float]:
        answer = asyncio.get_running_loop().create_future()
        await self._waiting.put((text, answer))
        return await answer

    async def work(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < MOST_TEXTS and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            try:
                vectors = await asyncio.to_thread(self._encode, [text for text, _ in batch])
            except Exception as error:  # noqa: BLE001 - whoever asked hears of it
                for _, answer in batch:
                    answer.set_exception(error)
                continue
            for (_, answer), vector in zip(batch, vectors, strict=True):
                if not answer.done():
                    answer.set_result(vector)

    def _encode(self, texts: list[str]) -> list[list[float]]:
        made: list[list[float]] = self._model.encode(
            texts, batch_size=MOST_TEXTS, normalize_embeddings=True, show_progress_bar=False
        ).tolist()
        return made


def application(path: str) -> FastAPI:
    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        app.state.batcher = Batcher(path)
        work = asyncio.create_task(app.state.batcher.work())
        yield
        work.cancel()

    app = FastAPI(lifespan=life)

    @app.post("/embed")
    async def embed(asked: Asked) -> list[float]:
        vector: list[float] = await app.state.batcher.vector(asked.text)
        return vector

    @app.get("/readyz")
    async def ready() -> PlainTextResponse:
        return PlainTextResponse("\n")

    return app


if __name__ == "__main__":
    uvicorn.run(application(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
