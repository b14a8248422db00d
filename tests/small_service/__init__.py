"""A service with two small models that were trained here: handwritten digits of 8 × 8 pixels, and a tone in noise."""

from pathlib import Path
from typing import Final

__all__ = ["FOLDER", "IMAGES", "MODELS"]

FOLDER: Final = Path(__file__).parent
MODELS: Final = FOLDER / "model_repository"
IMAGES: Final = FOLDER / "images"
