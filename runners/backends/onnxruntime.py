"""
ONNX models through ONNX Runtime's C API.

The shared library is the one that the installed onnxruntime wheel carries. It is found without importing onnxruntime,
and its version is checked before it is loaded.
"""

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import kushi_native

from ..errors import ConfigInvalid, EngineFailed, Unsupported, about
from ..repository.complete import check_against_model, complete
from ..repository.labels import read_labels
from ..repository.layout import ModelSource, model_file
from ..repository.messages import ModelConfig
from ..repository.normalize import fill_defaults, fill_instance_groups
from ..repository.specification import instances_of, parameter, specify
from ..repository.tensors import TensorInfo, scalar_names
from ..repository.validate import check_instance_groups, check_model, check_tensors
from ..threads import intra_op_threads, usable_cores
from . import Loaded

__all__ = ["load", "runtime_library"]

_LOG = logging.getLogger(__name__)

OLDEST, FIRST_UNKNOWN = (1, 31), (1, 32)
_WHEELS = ("onnxruntime", "onnxruntime-gpu")
_MEASURED_RUNS = 5
# tried in turn for dimensions that may vary: not so small that a long model looks short, then what any model takes
_VARIABLE_SIZES = (32, 1)
# optimization.graph.level of config.pbtxt → ONNX Runtime's own numbers; everything else is "all"
_GRAPH_LEVELS = {-1: 1, 1: 2, 2: 0}
_ALL_OPTIMIZATIONS = 99


@dataclass(frozen=True)
class _SessionOptions:
    intra_op_threads: int
    inter_op_threads: int
    parallel: bool
    graph_level: int

    @property
    def asks_for_threads(self) -> bool:
        """Whether the configuration gives an instance more than the thread that calls it"""
        return self.intra_op_threads > 1 or self.parallel

    def open(self, path: Path, threads: int) -> kushi_native.OnnxModel:
        try:
            return kushi_native.OnnxModel(
                str(path),
                intra_op_threads=threads,
                inter_op_threads=self.inter_op_threads,
                parallel=self.parallel,
                graph_level=self.graph_level,
            )
        except ConfigInvalid as error:
            # ONNX Runtime names the file again
            raise ConfigInvalid(str(error).replace(f"Load model from {path} failed:", "")) from None


def load(source: ModelSource, config: ModelConfig, version: int, *, auto_complete: bool) -> Loaded:
    """Opens one version: session, auto-completion, checks against the model, thread policy"""
    started = time.monotonic()
    with about(source.stated_in):
        config = fill_instance_groups(config)
        check_instance_groups(config)
        options = _session_options(config)
        path = model_file(source.versions[version], config.default_model_filename)
    kushi_native.init_onnxruntime(str(runtime_library()))
    model = options.open(path, options.intra_op_threads or 1)
    inputs, outputs = _tensors(model.inputs), _tensors(model.outputs)
    with about(source.stated_in):
        if auto_complete:
            config = fill_defaults(complete(config, inputs, outputs))
        check_model(config, source.name)
        check_tensors(config)
        check_against_model(config, inputs, outputs)
    threads = options.intra_op_threads
    if threads == 0:
        cores = usable_cores()
        measured = _measure(model, config, inputs) if cores // instances_of(config) > 1 else None
        threads = intra_op_threads(0, measured, instances_of(config), cores)
        if threads > 1:
            model = options.open(path, threads)
    with about(source.stated_in):
        specification = specify(
            config,
            version=version,
            scalars=scalar_names([*inputs, *outputs]),
            inline=threads == 1 and not options.parallel,
            load_seconds=time.monotonic() - started,
            labels=read_labels(source.path, config),
        )
    sessions = [model]
    if options.asks_for_threads:
        # Threads belong to a session: each instance gets as many as the configuration says.
        sessions += [options.open(path, threads) for _ in range(1, specification.instances)]
    return Loaded(specification, sessions, threads)


def _session_options(config: ModelConfig) -> _SessionOptions:
    return _SessionOptions(
        intra_op_threads=parameter(config, "intra_op_thread_count", 0),
        inter_op_threads=parameter(config, "inter_op_thread_count", 0),
        parallel=parameter(config, "execution_mode", 0, allowed=(0, 1)) == 1,
        graph_level=_GRAPH_LEVELS.get(config.optimization.graph.level, _ALL_OPTIMIZATIONS),
    )


def _tensors(declared: list[tuple[str, str, list[int]]]) -> list[TensorInfo]:
    return [TensorInfo(name, datatype, tuple(dims)) for name, datatype, dims in declared]


def _measure(model: kushi_native.OnnxModel, config: ModelConfig, inputs: Sequence[TensorInfo]) -> float | None:
    """Seconds of one run on a single row of zeros, or nothing where the model refuses such an input"""
    for size in _VARIABLE_SIZES:
        try:
            return model.measure(_example_shapes(config, inputs, size), _MEASURED_RUNS)
        except EngineFailed as error:
            _LOG.debug("'%s' cannot be measured with %d for variable dimensions: %s", config.name, size, error)
    return None


def _example_shapes(config: ModelConfig, inputs: Sequence[TensorInfo], size: int) -> dict[str, list[int]]:
    """A shape for each input that the model requires: one row, and `size` for every dimension that may vary"""
    stated = {t.name: t.reshape.shape if t.HasField("reshape") else t.dims for t in config.input}
    batch = [1] if config.max_batch_size > 0 else []
    return {
        info.name: [*batch, *(dim if dim > 0 else size for dim in stated[info.name])] if info.dims else []
        for info in inputs
    }


def runtime_library() -> Path:
    """The shared library of the installed wheel, its version checked"""
    package = find_spec("onnxruntime")
    roots = (package.submodule_search_locations if package else None) or []
    libraries = sorted(path for root in roots for path in Path(root, "capi").glob("libonnxruntime.so*"))
    if not libraries:
        raise Unsupported("onnxruntime is not installed: pip install 'kushi[cpu]' (or 'kushi[gpu]')")
    found = _installed_version(libraries[0])
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if not OLDEST <= numbers < FIRST_UNKNOWN:
        raise Unsupported(
            f"onnxruntime {found} found, expected {OLDEST[0]}.{OLDEST[1]}"
            f"{' or newer' if numbers < OLDEST else ''}: pip install 'kushi[cpu]'"
        )
    return libraries[0]


def _installed_version(library: Path) -> str:
    for wheel in _WHEELS:
        try:
            return version(wheel)
        except PackageNotFoundError:
            continue
    named = library.name.partition(".so.")[2]
    if not named:
        raise ConfigInvalid(f"cannot tell the version of '{library}': pip install 'kushi[cpu]'")
    return named
