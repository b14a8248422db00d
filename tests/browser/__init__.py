"""The page of the engine, as people use it: in a real browser."""

from __future__ import annotations

import shutil
from typing import Any

__all__ = ["launched"]


def launched(playwright: Any) -> Any:  # noqa: ANN401 - of Playwright
    """Debian's Chromium, None where there is none; as root it has no sandbox, and the pages are ours."""
    found = shutil.which("chromium")
    return found and playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
