"""The log: which lines are written, and how"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from .definition import Group, setting
from .kinds import Choice, Level, Switch, Text

__all__ = ["LogOptions"]


@dataclass(frozen=True, kw_only=True)
class LogOptions(Group):
    """Which lines are written, and how, by Python and the native core alike."""

    title = "log"

    verbose: int = setting("log-verbose", Level(0, 255), "Level of verbose logging, 0 for none.", default=0)
    info: bool = setting("log-info", Switch(), "Log informational messages.", default=True)
    warning: bool = setting("log-warning", Switch(), "Log warnings.", default=True)
    error: bool = setting("log-error", Switch(), "Log errors.", default=True)
    form: Literal["default", "ISO8601"] = setting(
        "log-format", Choice("default", "ISO8601"), "Form of the log lines.", default="default"
    )
    file: str | None = setting("log-file", Text("PATH"), "File to log to (default: standard error).", default=None)

    @property
    def native(self) -> dict[str, Any]:
        """The options as the native core takes them"""
        return {**asdict(self), "file": self.file or ""}
