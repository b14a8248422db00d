"""The configuration of one model as a server completes it: the model is loaded once, by its own code as well"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from google.protobuf import json_format

from .buckets.url import bucket_url
from .engine import Engine
from .errors import ConfigInvalid, InvalidInput
from .repository.backend_config import BackendConfig
from .repository.messages import ModelConfig
from .settings import EngineOptions, LogOptions, ModelOptions, read_settings

__all__ = ["completed_config"]

_NOTHING: BackendConfig = {}


def completed_config(
    model: str | Path, backend_config: BackendConfig = _NOTHING, config_name: str | None = None
) -> ModelConfig:
    """Of a model by its directory in a repository, or its file; what an ensemble is made of is loaded, too"""
    repository, name = _place(model)
    with _loaded(repository, name, backend_config, config_name) as engine:
        if failure := engine.failures.get(name):
            raise ConfigInvalid(str(failure))
        return json_format.ParseDict(engine.get_model_config(name), ModelConfig())


def _place(model: str | Path) -> tuple[str | Path, str]:
    """Its repository, and its name there"""
    if url := bucket_url(model):
        repository, _, name = url.text.rpartition("/")
        return repository, name
    path = Path(model)
    if not path.exists():
        raise InvalidInput(f"'{model}': there is no such file")
    return (path.parent, path.name) if path.is_dir() else (path, path.stem)


@contextmanager
def _loaded(
    repository: str | Path, name: str, backend_config: BackendConfig, config_name: str | None
) -> Iterator[Engine]:
    models = ModelOptions(control="explicit", load=(name,), config_name=config_name)
    options = EngineOptions(
        exit_on_error=False,
        backend_config=backend_config,
        log=LogOptions(info=False, warning=False),
        models=models,
        buckets=read_settings({}).engine.buckets,
    )
    with Engine(repository, options=options) as engine:
        yield engine
