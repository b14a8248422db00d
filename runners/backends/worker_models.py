"""Instances in processes of their own: how their workers are started, whatever they execute"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kushi_native import WorkerModel

from ..errors import ConfigInvalid
from ..repository.config_json import to_plain
from ..repository.cores import Cores, cores_of_instances
from ..repository.layout import ModelSource
from ..repository.messages import ModelConfig, ModelInstanceGroup
from ..repository.tensors import protocol_type
from ..wanted import is_given_up
from .steps import Placed

__all__ = ["ProcessLimits", "Workers", "directory_of", "of_this_program", "process_limits"]

_WORKER = Path(__file__).parents[1] / "worker"
_FINALIZE_SECONDS = 10.0
_CALL_SECONDS = 300.0
_CALL_TIMEOUT = "kushi.call_timeout"
_EXECUTE_TIMEOUT = "kushi.execute_timeout"
_MAX_REQUESTS = "kushi.max_requests"
_NUMBER = re.compile(r"[0-9]{1,16}")


@dataclass(frozen=True)
class ProcessLimits:
    """When processes are ended, other than with their model; 0 is never"""

    execute_seconds: float
    max_requests: int
    call_seconds: float = _CALL_SECONDS
    """How long a model may take no answer of another one that waits for that"""
    silence_seconds: float = 0
    """How long a process may say nothing while it owes answers"""


def process_limits(config: ModelConfig) -> ProcessLimits:
    """Those that the configuration states"""
    return ProcessLimits(
        execute_seconds=_seconds(config, _EXECUTE_TIMEOUT),
        max_requests=_count(config, _MAX_REQUESTS),
        call_seconds=_seconds(config, _CALL_TIMEOUT) or _CALL_SECONDS,
    )


def directory_of(source: ModelSource) -> Path:
    """That of the model, as its processes see it"""
    path = source.path.absolute()
    return path.parent if path.is_file() else path


@dataclass(frozen=True)
class Workers:
    """How the workers of a version are started"""

    program: Path
    """The interpreter"""
    environment: Sequence[tuple[str, str]]
    directory: Path
    file: Path
    """What they load: it has a class TritonPythonModel"""
    import_directories: Sequence[str]
    """What lies in them can be imported by the file"""
    start_seconds: float
    limits: ProcessLimits
    thread: Callable[[Cores, int, int], None] | None = None
    """Starts a worker in this process, on these cores, instead of one in its own"""
    sources: str = ""
    """Files of Python as each process is to import them, packed; others are read when they are imported"""
    version_directory: Path | None = None
    """Of the model, where that is not where the file lies"""
    arguments: Callable[[int], Mapping[str, str]] = lambda _number: {}
    """What `initialize` of the instance with this number gets beside what it gets for every model"""

    def complete(self, name: str, config: str) -> str:
        """What `auto_complete_config` of the class makes of `config`, in a process that is there for nothing else"""
        order = {**self._order(), "config": config}
        launch = json.dumps(self._launch(name))
        return WorkerModel.complete(launch, json.dumps(order), self.start_seconds, is_given_up)

    def models(self, model: Placed, config: ModelConfig) -> list[WorkerModel]:
        """One for each instance of a version whose configuration is complete"""
        cores = cores_of_instances(config) or [()] * len(model.places)
        places = zip(enumerate(_instances(config)), model.places, cores, strict=True)
        return [self._model(model, config, instance, gpu, on) for instance, gpu, on in places]

    def _model(
        self, model: Placed, config: ModelConfig, numbered: tuple[int, tuple[str, str]], gpu: int | None, cores: Cores
    ) -> WorkerModel:
        number, (instance, kind) = numbered
        args = {
            "model_config": json.dumps(to_plain(config)),
            "model_instance_kind": kind,
            "model_instance_name": instance,
            "model_instance_device_id": str(gpu or 0),
            "model_repository": str(self.directory),
            "model_version": str(model.version),
            "model_name": config.name,
            **self.arguments(number),
        }
        order = {
            **self._order(),
            "args": args,
            "instance": instance,
            "decoupled": config.model_transaction_policy.decoupled,
            "inputs": [[tensor.name, protocol_type(tensor.data_type)] for tensor in config.input],
            "outputs": [[tensor.name, protocol_type(tensor.data_type)] for tensor in config.output],
        }
        options = {
            "launch": self._launch(instance, cores),
            "initialize": json.dumps(order),
            "model": config.name,
            "outputs": len(config.output),
            "start_seconds": self.start_seconds,
            "execute_seconds": self.limits.execute_seconds,
            "silence_seconds": self.limits.silence_seconds,
            "finalize_seconds": _FINALIZE_SECONDS,
            "call_seconds": self.limits.call_seconds,
            "max_requests": self.limits.max_requests,
        }
        return WorkerModel(json.dumps(options), is_given_up, self.thread and partial(self.thread, cores))

    def _launch(self, name: str, cores: Cores = ()) -> dict[str, Any]:
        return {
            "command": [str(self.program), "-u", str(_WORKER)],
            "environment": self.environment,
            "directory": str(self.directory),
            "name": name,
            "cores": cores,
        }

    def _order(self) -> dict[str, Any]:
        return {
            "path": str(self.file),
            "directories": self.import_directories,
            "version_directory": str(self.version_directory or self.file.parent),
            "sources": self.sources,
        }


def of_this_program(file: Path, source: ModelSource, start_seconds: float) -> Workers:
    """Processes of this interpreter, for a file of this package: what can be imported here can be there"""
    return Workers(
        program=Path(sys.executable),
        environment=(),
        directory=directory_of(source),
        file=file.absolute(),
        import_directories=[os.path.abspath(directory) for directory in sys.path],  # noqa: PTH100 - "" is the current one
        start_seconds=start_seconds,
        limits=ProcessLimits(0, 0),
    )


def _instances(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Their names, as in Triton: that of the group, and the number in it; and what a model is told of their kind"""
    for group in config.instance_group:
        kind = ModelInstanceGroup.Kind.Name(group.kind).removeprefix("KIND_")
        yield from ((f"{group.name}_{number}", kind) for number in range(group.count * max(1, len(group.gpus))))


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
        raise ConfigInvalid(
            f"parameter '{name}' of model '{config.name}' must be seconds above 0 and below 1,000,000, got '{text}'"
        )
    return seconds


def _count(config: ModelConfig, name: str) -> int:
    """A parameter that is a number above 0; 0 where it is not there"""
    if name not in config.parameters:
        return 0
    text = config.parameters[name].string_value
    if not (_NUMBER.fullmatch(text) and 0 < int(text) < 2**53):
        raise ConfigInvalid(f"parameter '{name}' of model '{config.name}' must be a number above 0, got '{text}'")
    return int(text)
