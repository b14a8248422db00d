"""Whose wine is it? Rows of a table in, classes out: gradient-boosted trees as an ONNX model"""

import bentoml
import numpy as np
from kushi.bento import depends, engine, service
from pydantic import BaseModel

Models = engine("model_repository", name="Models")


class Wine(BaseModel):
    """What was measured of it, in the order in which the model was trained"""

    alcohol: float
    malic_acid: float
    ash: float
    alcalinity_of_ash: float
    magnesium: float
    total_phenols: float
    flavanoids: float
    nonflavanoid_phenols: float
    proanthocyanins: float
    color_intensity: float
    hue: float
    od280_od315_of_diluted_wines: float
    proline: float


class Grower(BaseModel):
    grower: int
    share: float


@service
class Wines:
    """Says which of three growers has made a wine."""

    models = depends(Models)

    @bentoml.api
    async def grower(self, wines: list[Wine]) -> list[Grower]:
        """For each wine the likeliest grower, and the model's share for it"""
        rows = np.array([list(wine.model_dump().values()) for wine in wines], np.float32)
        shares = (await self.models.wines.async_run(rows))["probabilities"]
        return [Grower(grower=int(each.argmax()), share=round(float(each.max()), 3)) for each in shares]
