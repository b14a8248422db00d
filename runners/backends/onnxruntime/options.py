"""What the parameters of config.pbtxt say about a session, in the words of Triton's ONNX Runtime backend"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType

import kushi_native

from ...errors import ConfigInvalid, Unsupported
from ...integers import MAX_THREADS, integer
from ...repository.messages import ModelConfig
from ...repository.specification import parameter
from ...repository.values import BOOLEANS, boolean
from .files import ModelFiles
from .session_entries import SESSION_ENTRIES
from .values import Provider

__all__ = ["SessionOptions", "read_options"]

_LOG = logging.getLogger(__name__)

# optimization.graph.level of config.pbtxt → ONNX Runtime's own numbers; everything else is "all"
_GRAPH_LEVELS = {-1: 1, 1: 2, 2: 0}
_ALL_OPTIMIZATIONS = 99
_NO_LIBRARY = "Failed to load library"
_PACKAGES = MappingProxyType({"cuda": "'onnxruntime-gpu[cuda,cudnn]'", "tensorrt": "'tensorrt-cu13-libs==10.*'"})
_CONTEXT = "ep.context_"
_CONTEXT_ENABLE = f"{_CONTEXT}enable"
_CONTEXT_FILE = f"{_CONTEXT}file_path"
_SHRINKAGE = "memory.enable_memory_arena_shrinkage"
_ARENAS = re.compile(r"(cpu:0|gpu:[0-9]+)(;(cpu:0|gpu:[0-9]+))*")


@dataclass(frozen=True)
class SessionOptions:
    """As the native core takes them; 0 threads leave it to the policy"""

    intra_op_threads: int
    inter_op_threads: int
    parallel: bool
    graph_level: int
    memory_arena: bool = True
    memory_pattern: bool = False
    session_entries: Sequence[tuple[str, str]] = ()
    run_entries: Sequence[tuple[str, str]] = ()
    providers: Sequence[Provider] = ()
    operator_libraries: Sequence[str] = ()
    profile: str | None = None

    def open(self, path: Path) -> kushi_native.OnnxModel:
        """A session of the model at `path`"""
        try:
            return kushi_native.OnnxModel(str(path), json.dumps(asdict(self)))
        except ConfigInvalid as error:
            # ONNX Runtime names the file again
            text = str(error).replace(f"Load model from {path} failed:", "").rstrip()
            raise ConfigInvalid(text + (self._hint() if _NO_LIBRARY in text else "")) from None

    def _hint(self) -> str:
        """What brings the libraries that an accelerator needs, where the system has none"""
        packages = {_PACKAGES[provider.accelerator] for provider in self.providers if provider.accelerator in _PACKAGES}
        return f": pip install {' '.join(sorted(packages))}" if packages else ""

    def still_to_compile(self) -> "SessionOptions":
        """Without the order to write an EP context model that is there: ONNX Runtime does not write it again"""
        written = dict(self.session_entries).get(_CONTEXT_FILE)
        if written is None or not Path(written).exists():
            return self
        _LOG.info("the EP context model '%s' is there, and is not written again", written)
        entries = tuple((key, value) for key, value in self.session_entries if not key.startswith(_CONTEXT))
        return replace(self, session_entries=entries)

    def at(self, gpu: int | None, providers: Sequence[Provider], *, threads: int, instance: str) -> "SessionOptions":
        """For the session of one instance, whose profile has its name"""
        arenas = [arena for _, arenas in self.run_entries for arena in arenas.split(";")]
        here = ";".join(arena for arena in arenas if arena in {"cpu:0", f"gpu:{gpu}"})
        return replace(
            self,
            providers=providers,
            intra_op_threads=threads,
            run_entries=((_SHRINKAGE, here),) if here else (),
            profile=None if self.profile is None else f"{self.profile}_{instance}",
        )


def read_options(
    config: ModelConfig, files: ModelFiles, gpus: Sequence[int], global_threads: tuple[int, int] | None
) -> SessionOptions:
    """The options of a model, each checked; `gpus` are those that its instances are on"""
    memory_arena = _switch(config, "enable_mem_arena", default=True)
    return SessionOptions(
        intra_op_threads=_threads(config, "intra_op_thread_count", global_threads and global_threads[0]),
        inter_op_threads=_threads(config, "inter_op_thread_count", global_threads and global_threads[1]),
        parallel=parameter(config, "execution_mode", 0, allowed=(0, 1)) == 1,
        graph_level=_GRAPH_LEVELS.get(config.optimization.graph.level, _ALL_OPTIMIZATIONS),
        memory_arena=memory_arena,
        memory_pattern=_switch(config, "enable_mem_pattern", default=False),
        session_entries=_session_entries(config, files),
        run_entries=_shrinkage(config, gpus, memory_arena=memory_arena),
        operator_libraries=tuple(
            files.library(name, "model_operations.op_library_filename")
            for name in config.model_operations.op_library_filename
        ),
        profile=files.profile(config.name) if _switch(config, "kushi.profile", default=False) else None,
    )


def _threads(config: ModelConfig, key: str, shared: int | None) -> int:
    stated = parameter(config, key, 0, most=MAX_THREADS)
    if shared is None:
        return stated
    if stated:
        raise Unsupported(
            f"parameter '{key}' of model '{config.name}' is without effect where all models share their "
            "threads: remove it, or leave out --backend-config=onnxruntime,enable-global-threadpool=1"
        )
    return shared


def _switch(config: ModelConfig, key: str, *, default: bool) -> bool:
    if key not in config.parameters:
        return default
    text = config.parameters[key].string_value
    value = boolean(text)
    if value is None:
        raise ConfigInvalid(f"parameter '{key}' of model '{config.name}': expected {BOOLEANS}, got '{text}'")
    return value


def _session_entries(config: ModelConfig, files: ModelFiles) -> Sequence[tuple[str, str]]:
    entries = {}
    for key, allowed in SESSION_ENTRIES.items():
        if key not in config.parameters:
            continue
        value = config.parameters[key].string_value
        if allowed and value not in allowed:
            raise ConfigInvalid(
                f"parameter '{key}' of model '{config.name}': expected one of {', '.join(allowed)}, got '{value}'"
            )
        if key == "session.dynamic_block_base":
            value = str(parameter(config, key, 0))
        if key == _CONTEXT_FILE:
            value = files.output(value, f"parameter '{key}' of model '{config.name}':")
        entries[key] = value
    _check_context(config, entries)
    if entries.get(_CONTEXT_ENABLE) == "1" and _CONTEXT_FILE not in entries:
        name = f"{PurePosixPath(config.default_model_filename).stem}_ctx.onnx"
        entries[_CONTEXT_FILE] = files.output(name, f"the EP context model of '{config.name}':")
    return tuple(entries.items())


def _check_context(config: ModelConfig, entries: Mapping[str, str]) -> None:
    """An EP context model is what an accelerator has compiled; TensorRT is told among its own parameters"""
    stated = [key for key in entries if key.startswith(_CONTEXT) and entries[key] != "0"]
    compiling = config.optimization.execution_accelerators.cpu_execution_accelerator
    if stated and not compiling:
        raise ConfigInvalid(
            f"parameter '{stated[0]}' of model '{config.name}' needs an accelerator that compiles, as openvino; "
            "tensorrt has 'trt_dump_ep_context_model' for it"
        )
    if stated and entries.get(_CONTEXT_ENABLE) != "1":
        raise ConfigInvalid(f"parameter '{stated[0]}' of model '{config.name}' needs '{_CONTEXT_ENABLE}' with it")


def _shrinkage(config: ModelConfig, gpus: Sequence[int], *, memory_arena: bool) -> Sequence[tuple[str, str]]:
    if _SHRINKAGE not in config.parameters:
        return ()
    arenas = config.parameters[_SHRINKAGE].string_value
    named = f"parameter '{_SHRINKAGE}' of model '{config.name}'"
    if not _ARENAS.fullmatch(arenas):
        raise ConfigInvalid(f"{named}: expected arenas as in 'cpu:0;gpu:0', got '{arenas}'")
    for arena in arenas.split(";"):
        device, _, number = arena.partition(":")
        if device == "cpu" and not memory_arena:
            raise ConfigInvalid(f"{named} has '{arena}', and 'enable_mem_arena' is off: there is no such arena")
        if device == "gpu" and integer(number) not in gpus:
            raise ConfigInvalid(f"{named} has '{arena}', and no instance of the model is on that GPU")
    return ((_SHRINKAGE, arenas),)
