"""The configuration of one model as a server completes it: the model is loaded once, by its own code as well"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from google.protobuf import json_format

from .engine import Engine
from .errors import ConfigInvalid, InvalidInput
from .repository.backend_config import BackendConfig
from .repository.messages import ModelConfig
from .settings import EngineOptions, LogOptions, ModelOptions

__all__ = ["completed_config"]

_NOTHING: BackendConfig = {}


def completed_config(
    model: Path, backend_config: BackendConfig = _NOTHING, config_name: str | None = None
) -> ModelConfig:
    """Of a model by its directory in a repository, or its file; what an ensemble is made of is loaded, too"""
    if not model.exists():
        raise InvalidInput(f"'{model}': there is no such file")
    with _loaded(model, backend_config, config_name) as engine:
        name = model.name if model.is_dir() else model.stem
        if failure := engine.failures.get(name):
            raise ConfigInvalid(str(failure))
        return json_format.ParseDict(engine.get_model_config(name), ModelConfig())


@contextmanager
def _loaded(model: Path, backend_config: BackendConfig, config_name: str | None) -> Iterator[Engine]:
    is_directory = model.is_dir()
    repository = model.parent if is_directory else model
    name = model.name if is_directory else model.stem
    models = ModelOptions(control="explicit", load=(name,), config_name=config_name)
    options = EngineOptions(
        exit_on_error=False, backend_config=backend_config, log=LogOptions(info=False, warning=False), models=models
    )
    with Engine(repository, options=options) as engine:
        yield engine
