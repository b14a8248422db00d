"""Models: which are loaded, and how"""

from dataclasses import dataclass
from typing import Literal

from ..errors import ConfigInvalid
from ..integers import MAX_THREADS
from .definition import Group, Naming, setting
from .kinds import Choice, Integer, Seconds, Several, Switch, Text

__all__ = ["ALL_MODELS", "ModelOptions"]

ALL_MODELS = "*"


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Group):
    """Which models are loaded, and how."""

    title = "models"

    control: Literal["none", "poll", "explicit"] = setting(
        "model-control-mode",
        Choice("none", "poll", "explicit"),
        "How models are loaded: 'none' loads all at the start, 'poll' all, and again what changes in the repositories, "
        "'explicit' those of {load}, and others when clients ask.",
        default="none",
    )
    poll_seconds: float = setting(
        "repository-poll-secs",
        Seconds(0, 1_000_000),
        "Seconds between two looks at the repositories, where {control}=poll; 0 for none after the start.",
        default=15,
    )
    load: tuple[str, ...] = setting(
        "load-model",
        Several("NAME"),
        "Model to load at the start, where {control}=explicit; '*' alone means all.",
        default=(),
    )
    load_threads: int = setting(
        "model-load-thread-count", Integer(1, MAX_THREADS), "Models that are loaded at the same time.", default=4
    )
    load_timeout_seconds: float = setting(
        "model-load-timeout-secs",
        Seconds(0, 1_000_000),
        "Seconds after which a load of a model is given up; 0 for never.",
        default=1800,
    )
    load_retries: int = setting(
        "model-load-retry-count",
        Integer(0, 1_000_000),
        "How often the load of a version that fails is tried again at once.",
        default=0,
    )
    config_name: str | None = setting(
        "model-config-name",
        Text("NAME"),
        "Take configs/NAME.pbtxt of a model in place of its config.pbtxt, where it has one.",
        default=None,
    )
    strict_config: bool = setting(
        "disable-auto-complete-config",
        Switch(),
        "Take config.pbtxt as it is, without completing it from the model.",
        default=False,
    )
    trust: Literal["all", "none"] = setting(
        "model-trust",
        Choice("all", "none"),
        "Whose files may be opened by this process at once: 'all', or 'none': then each model on the CPU is opened and "
        "asked in a process of its own first, once for each content, and refused where it ends that process.",
        default="all",
    )
    self_test: bool = setting(
        "model-self-test",
        Switch(),
        "Hold each version against its runtime alone before it serves, with random numbers where the model takes them: "
        "one whose answers differ does not load. Not only models that ask for it by 'kushi.self_test'.",
        default=False,
    )
    load_files: Literal["data", "all", "none"] = setting(
        "model-load-files",
        Choice("data", "all", "none"),
        "What a load may bring in place of what is in the repository, where {control}=explicit: 'data', files and "
        "configurations by which nothing else runs as code (ONNX, OpenVINO); 'all'; or 'none', no files.",
        default="data",
    )
    reload_python: bool = setting(
        "reload-python",
        Switch(),
        "Load a Python model again when a .py file of it changes, for whoever writes it. What serves goes on until the "
        "new one is ready.",
        default=False,
    )

    def check(self, name: Naming) -> None:
        if self.load and self.control != "explicit":
            raise ConfigInvalid(f"Use of '{name('load')}' requires setting '{name('control')}=explicit' as well.")
        if self.config_name and ("/" in self.config_name or self.config_name in {"..", "."}):
            raise ConfigInvalid(f"'{name('config_name')}' is {self.config_name!r}, expected a name without a directory")
        if self.reload_python and self.control == "poll":
            raise ConfigInvalid(
                f"'{name('reload_python')}' is of no use with '{name('control')}=poll', which loads changed code again "
                f"as well: leave it out, and set '{name('poll_seconds')}' as you like"
            )
        if ALL_MODELS in self.load and len(self.load) > 1:
            raise ConfigInvalid(
                f"Wildcard model name '{ALL_MODELS}' must be the ONLY startup model if specified at all."
            )
