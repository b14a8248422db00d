"""Which documents are about this? Text in, the nearest documents out, by what they mean"""

from pathlib import Path
from typing import Annotated

import bentoml
import numpy as np
from kushi.bento import depends, engine, service
from pydantic import BaseModel, Field

Models = engine("model_repository", name="Models")
DOCUMENTS = Path("documents.txt").read_text(encoding="utf-8").splitlines()


class Found(BaseModel):
    document: str
    likeness: float
    """1 for the same meaning, near 0 for nothing in common"""


@service
class Search:
    """Finds documents by what they mean."""

    models = depends(Models)

    def __init__(self) -> None:
        self.known: np.ndarray | None = None

    @bentoml.api
    async def search(self, text: str, most: Annotated[int, Field(ge=1)] = 3) -> list[Found]:
        """The documents that are nearest to the text, the nearest first"""
        if self.known is None:
            self.known = await self.vectors(DOCUMENTS)
        (asked,) = await self.vectors([text])
        likeness = self.known @ asked
        nearest = np.argsort(-likeness)[:most]
        return [Found(document=DOCUMENTS[each], likeness=round(float(likeness[each]), 2)) for each in nearest]

    async def vectors(self, texts: list[str]) -> np.ndarray:
        """float32 [texts, 384], each of length 1: those of texts that mean the same point into the same direction"""
        answer = await self.models.embedder.async_run(text=np.array([[text] for text in texts], object))
        return answer["embedding"]
