"""Loads TensorFlow models: a SavedModel by one of its signatures, or a GraphDef by the names of its nodes"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import tensorflow as tf
from kushi_native import PythonModel

from ...errors import ConfigInvalid
from ...repository.complete import complete
from ...repository.messages import ModelConfig
from ...repository.specification import instances_of
from .. import Backend, Bound, Opened, Placed, Prepared
from ..cores import cores_for_all
from ..optional_inputs import refuse_optional_inputs
from .devices import take_devices
from .engine import TensorFlowEngine
from .messages import check_message
from .opening import Options, open_program, read_options, set_threads

__all__ = ["TensorFlowBackend"]

_GRAPH = "saved_model.pb"
_FINGERPRINT = "fingerprint.pb"
"""Of a SavedModel"""


class TensorFlowBackend(Backend):
    """TensorFlow's own library, in a process that has one model"""

    def gpus(self) -> Sequence[int]:
        return range(len(tf.config.list_physical_devices("GPU")))

    def why_no_gpu(self) -> str:
        return "TensorFlow shows no GPU: tensorflow[and-cuda] has the libraries for those of NVIDIA"

    def places_itself(self) -> bool:
        """The graph says where its operations are, and TensorFlow decides for the others"""
        return True

    def prepare(self, model: Placed) -> Prepared:
        options = read_options(model.config)
        return Prepared(partial(_Opened, model=model, options=options), options.intra_op_threads)

    def locate(self, directory: Path, name: str) -> Path:
        """A SavedModel is a directory"""
        path = directory / name
        if not path.is_dir():
            if not path.exists() and (directory / _GRAPH).is_file():
                raise ConfigInvalid(f"unable to find '{path}': what lies in '{directory}' has to be in it")
            return super().locate(directory, name)
        if not (path / _GRAPH).is_file():
            raise ConfigInvalid(f"SavedModel '{path}' has no '{_GRAPH}'")
        # TensorFlow reads them whole
        for file in (path / _GRAPH, path / _FINGERPRINT):
            if file.is_file():
                check_message(file)
        return path


class _Opened(Opened):
    """A program on the place of the first instance; each process has one"""

    def __init__(self, path: Path, *, model: Placed, options: Options) -> None:
        self._options = options
        set_threads(options)
        device = take_devices(tf.config, model.places[0], by_itself=model.chooses(0))
        self._place = partial(_place, device)
        with self._place():
            self._program = open_program(path, model.config, options)

    def complete(self, config: ModelConfig, default_max_batch_size: int) -> ModelConfig:
        return complete(config, self._program.inputs, self._program.outputs, default_max_batch_size)

    def bind(self, config: ModelConfig) -> Bound:
        refuse_optional_inputs(config, "TensorFlow")
        return Bound(
            sessions=partial(self._sessions, config),
            threads=lambda: self._options.intra_op_threads or max(1, cores_for_all(config) // instances_of(config)),
            inputs=self._program.inputs,
            outputs=self._program.outputs,
        )

    def _sessions(self, config: ModelConfig, _threads: int) -> list[PythonModel]:
        names = [tensor.name for tensor in config.input], [tensor.name for tensor in config.output]
        return [PythonModel(TensorFlowEngine(self._program, self._place, *names))]


def _place(device: str | None) -> AbstractContextManager[object]:
    """Operations inside are on this device, or where the graph and TensorFlow want them"""
    placed: AbstractContextManager[object] = tf.device(device) if device else nullcontext()
    return placed
