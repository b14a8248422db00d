"""What would this guest like? Four stages: fetch, features, inference, rank"""

import asyncio

import bentoml
from bentoml.exceptions import InvalidArgument
from kushi.bento import depends, engine, service
from pydantic import BaseModel
from stages import candidates, features, ranked, table

Models = engine("model_repository", name="Models")
GUESTS, DISHES = table("guests.csv"), table("dishes.csv")


class Choice(BaseModel):
    dish: str
    score: float


@service
class Ranker:
    """Says what a guest may like."""

    models = depends(Models)

    @bentoml.api
    async def rank(self, guest: str, most: int = 4) -> list[Choice]:
        """The likeliest dishes, at most two of a kind"""
        known = await self.fetch(guest)
        dishes = candidates(known, DISHES)
        if not dishes:
            return []
        outputs = await self.models.tastes.async_run(features(known, dishes))
        scores = outputs["probabilities"][:, 1]
        return [Choice(dish=dish, score=score) for dish, score in ranked(dishes, scores, most)]

    async def fetch(self, guest: str) -> dict[str, str]:
        """Stands for a request to whatever stores guests"""
        await asyncio.sleep(0)
        if guest not in GUESTS:
            raise InvalidArgument(f"no guest is called '{guest}'; there are {', '.join(GUESTS)}")
        return GUESTS[guest]
