"""From sound to the moments at which somebody begins to speak and ends"""

from collections.abc import Awaitable, Callable
from typing import Literal

import numpy as np
from kushi.uploads.audio import RATE, Chunk
from pydantic import BaseModel

CHUNK = 512
"""Samples: what the model looks at in one step, besides the last CONTEXT of the chunk before"""
CONTEXT = 64
BEGINS, ENDS = 0.5, 0.35
"""Probabilities: the second is lower, so that a voice that gets quieter is not taken for many short ones"""
PAUSE = 0.1
"""Seconds of silence that end a speech"""


class Event(BaseModel):
    speech: Literal["begins", "ends"]
    seconds: float


class Listener:
    """One recording, or one stream of sound: what the model knows of it, and whether somebody speaks"""

    def __init__(self, run: Callable[..., Awaitable[dict[str, np.ndarray]]]) -> None:
        self._run = run
        self._state = np.zeros((2, 1, 128), np.float32)
        self._context = np.zeros((1, CONTEXT), np.float32)
        self._heard = 0.0
        self._speaks = False
        self._silent_since: float | None = None

    async def hear(self, chunk: Chunk) -> Event | None:
        sound = np.concatenate([self._context, chunk.samples], axis=1)
        outputs = await self._run(input=sound, sr=np.array([RATE]), state=self._state)
        self._state, self._context = outputs["stateN"], sound[:, -CONTEXT:]
        self._heard = chunk.seconds + CHUNK / RATE
        return self._event(outputs["output"].item(), chunk.seconds)

    def end(self) -> Event | None:
        """After the last chunk"""
        return Event(speech="ends", seconds=round(self._heard, 3)) if self._speaks else None

    def _event(self, probability: float, seconds: float) -> Event | None:
        if probability >= BEGINS:
            self._silent_since = None
            if not self._speaks:
                self._speaks = True
                return Event(speech="begins", seconds=round(seconds, 3))
        elif self._speaks and (self._silent_since is not None or probability < ENDS):
            if self._silent_since is None:
                self._silent_since = seconds
            if seconds - self._silent_since >= PAUSE:
                self._speaks = False
                return Event(speech="ends", seconds=round(self._silent_since, 3))
        return None


def chunks(samples: np.ndarray) -> list[Chunk]:
    """A whole recording, the last chunk filled up with silence"""
    rows = np.pad(samples, (0, -len(samples) % CHUNK)).reshape(-1, 1, CHUNK)
    return [Chunk(number * CHUNK / RATE, row) for number, row in enumerate(rows)]
