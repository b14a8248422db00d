"""From texts to vectors: those of texts that mean the same point into the same direction"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
from tokenizers import Encoding, Tokenizer

LONGEST = 256
"""Tokens of a text; the rest of it is not looked at"""
STEP = 16
"""Texts are filled up to a multiple of so many tokens: those of one length can share a batch"""


class Embedder:
    def __init__(self, run: Callable[..., Awaitable[dict[str, np.ndarray]]], tokenizer: Path) -> None:
        if not tokenizer.exists():
            raise FileNotFoundError(f"{tokenizer}: run `python -m kushi.pretrained` first")
        self._run = run
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(LONGEST)
        self._tokenizer.enable_padding(pad_to_multiple_of=STEP)

    async def vectors(self, texts: list[str]) -> np.ndarray:
        """float32 [texts, 384], each of length 1"""
        # one by one: a text is filled up by itself, and shares its batch with those of other clients
        return np.stack(await asyncio.gather(*(self._vector(self._tokenizer.encode(text)) for text in texts)))

    async def _vector(self, text: Encoding) -> np.ndarray:
        mask = np.array([text.attention_mask])
        outputs = await self._run(
            input_ids=np.array([text.ids]), attention_mask=mask, token_type_ids=np.array([text.type_ids])
        )
        total = mask[0] @ outputs["last_hidden_state"][0]
        return (total / np.linalg.norm(total)).astype(np.float32)
