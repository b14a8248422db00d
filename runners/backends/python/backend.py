"""Loads Python models: finds the interpreter, lets the model complete its configuration, starts its processes"""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from kushi_native import WorkerModel

from ...errors import ConfigInvalid
from ...repository.config_json import to_plain
from ...repository.messages import ModelConfig
from ...repository.tensors import protocol_type
from ...threads import intra_op_threads, usable_cores
from .. import Backend, Bound, Opened, Placed, Prepared
from . import in_process
from .interpreter import Interpreter, find_interpreter
from .thread_variables import thread_variables

__all__ = ["PythonBackend"]

_LOG = logging.getLogger(__name__)
_WORKER = Path(__file__).parents[2] / "worker"
_IN_PROCESS = "kushi.inprocess"
_MAX_REQUESTS = "kushi.max_requests"
_OF_OTHER_INTERPRETERS = ("kushi.python", "kushi.requirements", "EXECUTION_ENV_PATH")
_START_SECONDS = "30"
_FINALIZE_SECONDS = 10.0
_SAID_BY_MODELS = ("dynamic_batching", "input", "max_batch_size", "model_transaction_policy", "output")


class PythonBackend(Backend):
    """Processes of the interpreter that a model asks for"""

    def prepare(self, model: Placed) -> Prepared:
        how = _How(
            model=model,
            in_process=_is_in_process(model.config),
            interpreter=find_interpreter(model, self.settings.get("python-runtime")),
            threads=intra_op_threads(0, None, len(model.places), usable_cores()),
            start_seconds=float(self.settings.get("stub-timeout-seconds", _START_SECONDS)),
            execute_seconds=_seconds(model.config, "kushi.execute_timeout"),
            max_requests=_count(model.config, _MAX_REQUESTS),
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
    execute_seconds: float
    max_requests: int

    @property
    def directory(self) -> Path:
        """That of the model, as the processes see it"""
        return self.model.source.path.absolute()

    def launch(self, name: str) -> dict[str, Any]:
        return {
            "command": [str(self.interpreter.program), "-u", str(_WORKER)],
            "environment": [*thread_variables(self.threads), *self.interpreter.environment],
            "directory": str(self.directory),
            "name": name,
        }

    def order(self, path: Path) -> dict[str, Any]:
        path = path.absolute()
        return {"path": str(path), "directories": [str(path.parent), str(self.directory)]}


class _Opened(Opened):
    """A file that was found; it is read in the processes alone"""

    def __init__(self, path: Path, *, how: _How) -> None:
        self._path = path
        self._how = how

    def complete(self, config: ModelConfig, default_max_batch_size: int) -> ModelConfig:  # noqa: ARG002 - the model says it
        """By the model's `auto_complete_config`, if it has one"""
        # one that is inherited is not looked for where nothing is open: that takes a process of its own
        if config.input and config.output and "auto_complete_config" not in self._path.read_text(errors="replace"):
            return config
        how = self._how
        order = {**how.order(self._path), "config": json.dumps(to_plain(config))}
        launch = json.dumps(how.launch(f"{config.name}_auto_complete"))
        completed = WorkerModel.complete(launch, json.dumps(order), how.start_seconds)
        try:
            said = ParseDict(json.loads(completed), ModelConfig())
        except ParseError as error:
            raise ConfigInvalid(f"'{self._path}' completes the configuration wrongly: {error}") from error
        return _with(config, said)

    def bind(self, config: ModelConfig) -> Bound:
        return Bound(partial(self._sessions, config), threads=lambda: self._how.threads, may_be_silent=True)

    def _sessions(self, config: ModelConfig, _threads: int) -> Sequence[WorkerModel]:
        model = self._how.model
        return [self._session(config, *place) for place in zip(_instance_names(model), model.places, strict=True)]

    def _session(self, config: ModelConfig, instance: str, gpu: int | None) -> WorkerModel:
        how = self._how
        decoupled = config.model_transaction_policy.decoupled
        args = {
            "model_config": json.dumps(to_plain(config)),
            "model_instance_kind": "CPU" if gpu is None else "GPU",
            "model_instance_name": instance,
            "model_instance_device_id": str(gpu or 0),
            "model_repository": str(how.directory),
            "model_version": str(how.model.version),
            "model_name": config.name,
        }
        order = {
            **how.order(self._path),
            "args": args,
            "instance": instance,
            "decoupled": decoupled,
            "inputs": [[tensor.name, protocol_type(tensor.data_type)] for tensor in config.input],
            "outputs": [[tensor.name, protocol_type(tensor.data_type)] for tensor in config.output],
        }
        options = {
            "launch": how.launch(instance),
            "initialize": json.dumps(order),
            "model": config.name,
            "outputs": len(config.output),
            "start_seconds": how.start_seconds,
            "execute_seconds": how.execute_seconds,
            "finalize_seconds": _FINALIZE_SECONDS,
            "max_requests": how.max_requests,
        }
        return WorkerModel(json.dumps(options), in_process.start if how.in_process else None)


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
    if _IN_PROCESS not in config.parameters:
        return False
    text = config.parameters[_IN_PROCESS].string_value
    if text not in {"true", "false"}:
        of = f"parameter '{_IN_PROCESS}' of model '{config.name}'"
        raise ConfigInvalid(f"{of} must be 'true' or 'false', got '{text}'")
    others = [name for name in _OF_OTHER_INTERPRETERS if name in config.parameters]
    if text == "true" and others:
        raise ConfigInvalid(
            f"model '{config.name}' is to run in the process of the server ('{_IN_PROCESS}'), and asks for another "
            f"interpreter by '{others[0]}'"
        )
    if text == "true" and _MAX_REQUESTS in config.parameters:
        raise ConfigInvalid(
            f"model '{config.name}' is to run in the process of the server ('{_IN_PROCESS}'), which is not replaced: "
            f"remove '{_MAX_REQUESTS}'"
        )
    return text == "true"


def _instance_names(model: Placed) -> Iterator[str]:
    """As in Triton: the name of the group, and the number in it"""
    for group in model.config.instance_group:
        yield from (f"{group.name}_{number}" for number in range(group.count * max(1, len(group.gpus))))


def _seconds(config: ModelConfig, name: str) -> float:
    """A parameter in seconds; 0 where it is not there"""
    if name not in config.parameters:
        return 0.0
    text = config.parameters[name].string_value
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e6:
        raise ConfigInvalid(f"parameter '{name}' of model '{config.name}' must be seconds above 0, got '{text}'")
    return seconds


def _count(config: ModelConfig, name: str) -> int:
    """A parameter that is a number above 0; 0 where it is not there"""
    if name not in config.parameters:
        return 0
    text = config.parameters[name].string_value
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**53):
        raise ConfigInvalid(f"parameter '{name}' of model '{config.name}' must be a number above 0, got '{text}'")
    return int(text)
