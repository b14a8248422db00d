"""Loads Python models: finds the interpreter, lets the model complete its configuration, starts its processes"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from google.protobuf.json_format import ParseDict, ParseError
from kushi_native import WorkerModel

from ...bounded_json import read_json
from ...errors import ConfigInvalid, Unsupported
from ...repository.complete import completes_itself
from ...repository.config_json import to_plain
from ...repository.isolation import IN_PROCESS, ISOLATE, is_isolated
from ...repository.messages import ModelConfig
from ...threads import intra_op_threads
from .. import Backend, Bound, Opened, Placed, Prepared, driver
from ..cores import cores_for_all
from ..thread_variables import thread_variables
from ..worker_models import ProcessLimits, Workers, directory_of, process_limits
from . import in_process
from .interpreter import Interpreter, find_interpreter
from .sources import packed, sources

__all__ = ["PythonBackend"]

_LOG = logging.getLogger(__name__)
_INPUT_MEMORY = "FORCE_CPU_ONLY_INPUT_TENSORS"
_MAX_REQUESTS = "kushi.max_requests"
_OF_OTHER_INTERPRETERS = ("kushi.python", "kushi.requirements", "EXECUTION_ENV_PATH")
_START_SECONDS = "30"
_SAID_BY_MODELS = ("dynamic_batching", "input", "max_batch_size", "model_transaction_policy", "output")


class PythonBackend(Backend):
    """Processes of the interpreter that a model asks for"""

    def gpus(self) -> Sequence[int]:
        return driver.gpus()

    def why_no_gpu(self) -> str:
        return driver.why_none()

    def places_itself(self) -> bool:
        return True

    def prepare(self, model: Placed) -> Prepared:
        stays = _is_in_process(model.config)
        if is_isolated(model.config):
            _LOG.info(
                "model '%s': parameter '%s' changes nothing, Python models have processes of their own in any case",
                *(model.config.name, ISOLATE),
            )
        _check_input_memory(model.config)
        how = _How(
            model=model,
            in_process=stays,
            interpreter=find_interpreter(model, self.settings.get("python-runtime")),
            threads=intra_op_threads(0, None, len(model.places), cores_for_all(model.config)),
            start_seconds=float(self.settings.get("stub-timeout-seconds", _START_SECONDS)),
            limits=process_limits(model.config),
        )
        return Prepared(partial(_Opened, how=how))


@dataclass(frozen=True)
class _How:
    """How the processes of a version are started"""

    model: Placed
    in_process: bool
    """Not in processes, but on threads of this one"""
    interpreter: Interpreter
    threads: int
    """Of each process"""
    start_seconds: float
    limits: ProcessLimits

    def workers(self, path: Path) -> Workers:
        path = path.absolute()
        directory = directory_of(self.model.source)
        return Workers(
            program=self.interpreter.program,
            environment=[*thread_variables(self.threads), *self.interpreter.environment],
            directory=directory,
            file=path,
            import_directories=[str(path.parent), str(directory)],
            version_directory=self.model.source.versions[self.model.version].absolute(),
            start_seconds=self.start_seconds,
            limits=self.limits,
            thread=in_process.start if self.in_process else None,
            # nobody starts it again without a load
            sources="" if self.in_process else packed(sources(path, directory)),
        )


class _Opened(Opened):
    """A file that was found; it is read in the processes alone"""

    def __init__(self, path: Path, *, how: _How) -> None:
        self._path = path
        self._how = how
        self._workers = how.workers(path)

    def complete(self, config: ModelConfig, default_max_batch_size: int) -> ModelConfig:  # noqa: ARG002 - the model says it
        """By the model's `auto_complete_config`, if it has one"""
        # one that is inherited is not looked for where nothing is open: that takes a process of its own
        if config.input and config.output and not completes_itself(self._path):
            return config
        completed = self._workers.complete(f"{config.name}_auto_complete", json.dumps(to_plain(config)))
        try:
            said = ParseDict(read_json(completed), ModelConfig())
        except (ParseError, ValueError, RecursionError) as error:
            raise ConfigInvalid(f"'{self._path}' completes the configuration wrongly: {error}") from error
        return _with(config, said)

    def bind(self, config: ModelConfig) -> Bound:
        return Bound(partial(self._sessions, config), threads=lambda: self._how.threads, may_be_silent=True)

    def _sessions(self, config: ModelConfig, _threads: int) -> Sequence[WorkerModel]:
        return self._workers.models(self._how.model, config)


def _with(config: ModelConfig, said: ModelConfig) -> ModelConfig:
    """What a model may say of itself; the rest is decided when it is asked"""
    taken = ModelConfig()
    taken.CopyFrom(said)
    for field in taken.DESCRIPTOR.fields:
        if field.name not in _SAID_BY_MODELS:
            taken.ClearField(field.name)
    completed = ModelConfig()
    completed.CopyFrom(config)
    for name in _SAID_BY_MODELS:
        completed.ClearField(name)
    completed.MergeFrom(taken)
    return completed


def _is_in_process(config: ModelConfig) -> bool:
    if IN_PROCESS not in config.parameters:
        return False
    text = config.parameters[IN_PROCESS].string_value
    if text not in {"true", "false"}:
        of = f"parameter '{IN_PROCESS}' of model '{config.name}'"
        raise ConfigInvalid(f"{of} must be 'true' or 'false', got '{text}'")
    others = [name for name in _OF_OTHER_INTERPRETERS if name in config.parameters]
    if text == "true" and others:
        raise ConfigInvalid(
            f"model '{config.name}' is to run in the process of the server ('{IN_PROCESS}'), and asks for another "
            f"interpreter by '{others[0]}'"
        )
    if text == "true" and _MAX_REQUESTS in config.parameters:
        raise ConfigInvalid(
            f"model '{config.name}' is to run in the process of the server ('{IN_PROCESS}'), which is not replaced: "
            f"remove '{_MAX_REQUESTS}'"
        )
    if text == "true" and is_isolated(config):
        raise ConfigInvalid(
            f"model '{config.name}' is to run in the process of the server ('{IN_PROCESS}'), and in processes of its "
            f"own ('{ISOLATE}'): remove one of them"
        )
    return text == "true"


def _check_input_memory(config: ModelConfig) -> None:
    """Inputs are in the memory of the host in any case"""
    if _INPUT_MEMORY in config.parameters:
        text = config.parameters[_INPUT_MEMORY].string_value
        if text not in {"yes", "no"}:
            raise Unsupported(f"Incorrect value for {_INPUT_MEMORY}: {text}'")
