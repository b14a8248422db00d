"""What a server makes of repositories: every model is loaded once, by its own code as well, and let go again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .control.check import Finding, check
from .engine import Engine
from .repository.backend_config import BackendConfig
from .repository.said_here import SELF_TESTED
from .settings import EngineOptions, LogOptions, ModelOptions, read_settings

__all__ = ["load_once"]


def load_once(
    repositories: Sequence[str | Path],
    backend_config: BackendConfig,
    config_name: str | None = None,
    *,
    self_test: bool = False,
) -> list[Finding]:
    """All models of these repositories, by name; what models raise is in the log whole"""
    models, buckets = ModelOptions(config_name=config_name, self_test=self_test), read_settings({}).engine.buckets
    options = EngineOptions(
        exit_on_error=False, backend_config=backend_config, log=LogOptions(info=False), models=models, buckets=buckets
    )
    with Engine(*repositories, options=options) as engine:
        failures = engine.failures
        return [
            replace(one, versions=(), reason=str(failures[one.name])) if one.name in failures else _loaded(engine, one)
            for one in check(repositories, config_name=config_name, buckets=buckets)
        ]


def _loaded(engine: Engine, found: Finding) -> Finding:
    about = engine.get_model_metadata(found.name)
    versions = tuple(map(int, about["versions"]))
    inputs, outputs = (_tensors(about[role]) for role in ("inputs", "outputs"))
    said = engine.get_model_config(found.name)["parameters"].get(SELF_TESTED, {}).get("string_value", "")
    return replace(found, versions=versions, reason="", inputs=inputs, outputs=outputs, problems=(), self_test=said)


def _tensors(listed: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(f"{one['name']} {one['datatype']} {[*map(int, one['shape'])]}" for one in listed)
