"""
The steps of a load in which backends differ; `fitting` and `pipeline` have the others, and call these in the order of
this page. Where `kushi.isolate` says so, another process calls them.

Every error about the configuration is a `KushiError`, mostly ConfigInvalid or Unsupported. In front of it the pipeline
puts the file that it is about, other than for `open`: what opens a file names it by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..errors import ConfigInvalid
from ..repository.layout import model_file
from .device_limits import NO_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ..repository.layout import ModelSource
    from ..repository.messages import ModelConfig
    from ..repository.tensors import TensorInfo
    from .native import NativeModel

__all__ = ["Backend", "Bound", "NotYet", "Opened", "Placed", "Prepared", "Work"]


class Backend(ABC):
    """A framework that is ready to open models. One is made for each load, with the settings of --backend-config"""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """settings: checked, those of all backends among them"""
        self.settings = settings
        self.limits = NO_LIMITS
        """What the server allows of its devices; it is said before the first step"""

    def gpus(self) -> Sequence[int]:
        """The numbers of the GPUs that instances can be on"""
        return ()

    def why_no_gpu(self) -> str:
        """What is missing, where `gpus` has none"""
        return ""

    def places_itself(self) -> bool:
        """Whether a model may choose by itself where it computes (KIND_MODEL)"""
        return False

    def instead_of_kind_model(self) -> str:
        """What to use where it may not"""
        return "the kinds of this backend are KIND_CPU and KIND_GPU, with 'gpus' for some of them"

    @abstractmethod
    def prepare(self, model: Placed) -> Prepared:
        """Reads and checks what the configuration says about how the model runs, before its file is looked for"""

    def locate(self, directory: Path, name: str) -> Path:
        """Where the model lies that the configuration calls `name`, in the directory of its version"""
        return model_file(directory, name)

    def weights_beside(self, path: Path) -> Sequence[str]:  # noqa: ARG002 - for backends whose runtime does so
        """The names of files from which its runtime would take weights where they lie beside the model"""
        return ()


@dataclass(frozen=True)
class Placed:
    """A version of a model whose instances have their places"""

    source: ModelSource
    version: int
    config: ModelConfig
    """Not complete yet: what is stated of inputs and outputs may be less than the model has"""
    places: Sequence[int | None]
    """That of each instance: the number of a GPU, or None for the CPU, and where the model chooses by itself"""
    by_themselves: Sequence[bool] = ()
    """Whether each instance chooses by itself (KIND_MODEL); empty where none does"""
    instance: int | None = None
    """In a process that has one instance, as `kushi.isolate` wants: its number among all of the configuration"""

    def chooses(self, instance: int) -> bool:
        """Whether this instance chooses by itself where it computes"""
        return bool(self.by_themselves) and self.by_themselves[instance]


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
    short_needs_one_thread: bool = False
    """Whether a short batch keeps the other threads out of it, so that it may run there whatever their number is"""


class Work(Protocol):
    """What takes so long that another form of the model serves meanwhile"""

    key: str
    """Of two works with one key, one is enough"""

    def run(self) -> None:
        """On a thread of its own; the model is loaded again behind it, unless it raises"""

    def cancel(self) -> None:
        """From any thread: `run` returns soon"""


class NotYet(ConfigInvalid):
    """Raised by `open`: what is to serve has to be made first. The message says why"""

    def __init__(self, message: str, *, meanwhile: ModelConfig, works: Sequence[Work], in_processes: str = "") -> None:
        super().__init__(message)
        self.meanwhile = meanwhile
        """The configuration by which the version serves until then, perhaps of another backend"""
        self.works = works
        """All that is missing, each by itself"""
        self.in_processes = in_processes or message
        """What is said instead where the model has processes of its own: there nothing is made, nor serves meanwhile"""
