"""
The steps of a load in which backends differ; `fitting` and `pipeline` have the others, and call these in the order of
this page. Where `kushi.isolate` says so, another process calls them.

Every error about the configuration is a `KushiError`, mostly ConfigInvalid or Unsupported. In front of it the pipeline
puts the file that it is about, other than for `open`: what opens a file names it by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..repository.layout import model_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ..repository.layout import ModelSource
    from ..repository.messages import ModelConfig
    from ..repository.tensors import TensorInfo
    from .native import NativeModel

__all__ = ["Backend", "Bound", "Opened", "Placed", "Prepared"]


class Backend(ABC):
    """A framework that is ready to open models. One is made for each load, with the settings of --backend-config"""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """settings: checked, those of all backends among them"""
        self.settings = settings

    def gpus(self) -> Sequence[int]:
        """The numbers of the GPUs that instances can be on"""
        return ()

    def why_no_gpu(self) -> str:
        """What is missing, where `gpus` has none"""
        return ""

    def places_itself(self) -> bool:
        """Whether a model may choose by itself where it computes (KIND_MODEL)"""
        return False

    @abstractmethod
    def prepare(self, model: Placed) -> Prepared:
        """Reads and checks what the configuration says about how the model runs, before its file is looked for"""

    def locate(self, directory: Path, name: str) -> Path:
        """Where the model lies that the configuration calls `name`, in the directory of its version"""
        return model_file(directory, name)


@dataclass(frozen=True)
class Placed:
    """A version of a model whose instances have their places"""

    source: ModelSource
    version: int
    config: ModelConfig
    """Not complete yet: what is stated of inputs and outputs may be less than the model has"""
    places: Sequence[int | None]
    """That of each instance: the number of a GPU, or None for the CPU, and where the model chooses by itself"""


@dataclass(frozen=True)
class Prepared:
    """What is to be opened"""

    open: Callable[[Path], Opened]
    threads: int = 0
    """That the configuration gives each instance; 0 where it leaves that open"""


class Opened(ABC):
    """A model whose file is open"""

    def complete(self, config: ModelConfig, default_max_batch_size: int) -> ModelConfig:  # noqa: ARG002 - others use it
        """
        What config.pbtxt leaves open, filled in: `repository.complete.complete` takes it from tensors, a model may say
        it by itself. Not called where auto-completion is disabled
        """
        return config

    @abstractmethod
    def bind(self, config: ModelConfig) -> Bound:
        """The model with the configuration by which it serves, checked as far as the pipeline cannot do it"""


@dataclass(frozen=True)
class Bound:
    """A model that fits its configuration, as far as its backend can tell"""

    sessions: Callable[[int], Sequence[NativeModel]]
    """Those of the instances, with so many threads each: one for all instances, or one for each"""
    threads: Callable[[], int] = lambda: 1
    """How many threads an instance has; the model may be tried for it, and fail"""
    inputs: Sequence[TensorInfo] | None = None
    """What the file declares, by the names of the configuration, which is held against it; None: it does not say"""
    outputs: Sequence[TensorInfo] | None = None
    may_be_silent: bool = False
    """Whether it may have no outputs"""
    inline: bool = False
    """Whether a model of one thread may run on an io thread: never where Python or an accelerator executes it"""
