"""One model's directory → its checked configuration and the versions to load, before any model file is opened"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ConfigInvalid, about
from ..version_labels import VERSIONS
from .config import read
from .kept_routes import WHERE, read_kept
from .layout import ModelSource
from .messages import ModelConfig
from .normalize import fill_backend, fill_defaults
from .said_here import SAID_HERE
from .supported_fields import check_supported_fields
from .validate import check_model
from .version_routes import STATED, check_routes, routes_text, with_routes
from .versions import missing, served

__all__ = ["NoVersion", "Resolved", "resolve", "resolve_written", "states_its_own"]

_LOG = logging.getLogger(__name__)
_MOST_NAMED = 10


class NoVersion(ConfigInvalid):
    """The configuration is right, and there is nothing to load"""


@dataclass(frozen=True)
class Resolved:
    """A model that can be handed to its backend"""

    source: ModelSource
    config: ModelConfig
    versions: tuple[int, ...]


def resolve(source: ModelSource, *, auto_complete: bool) -> Resolved:
    """Reads and checks the configuration; an error names the file it is about"""
    written = read(source.config_file) if source.config_file else source.config
    if not auto_complete and source.config_file is None:
        raise ConfigInvalid(
            f"{source.path / 'config.pbtxt'}: not found, and completing it from the model is disabled: write it, or "
            "leave out --disable-auto-complete-config"
        )
    return resolve_written(source, _without_what_is_said_here(written))


def _without_what_is_said_here(written: ModelConfig) -> ModelConfig:
    if not SAID_HERE & {*written.parameters}:
        return written
    config = ModelConfig()
    config.CopyFrom(written)
    for key in SAID_HERE:
        config.parameters.pop(key, None)
    return config


def resolve_written(source: ModelSource, written: ModelConfig) -> Resolved:
    """Completes and checks a configuration that was read; an error names the file it is about"""
    with about(source.stated_in):
        written, where = _as_kept(source, written)
        config = fill_backend(source, written)
        check_supported_fields(config)
        config = fill_defaults(config)
        check_model(config, source.name)
        _report(missing(config, source.versions), source.name)
        versions = served(config, source.versions)
        if not versions:
            raise NoVersion(f"at least one version must be available under the version policy of model '{source.name}'")
        check_routes(config, versions, where)
    return Resolved(source, config, versions)


def states_its_own(source: ModelSource) -> bool:
    """Whether a load has brought a configuration that says how requests find versions"""
    return source.config_file is None and routes_text(source.config) != ""


def _as_kept(source: ModelSource, written: ModelConfig) -> tuple[ModelConfig, str]:
    """With the routes of versions that are kept, unless a load states its own; and how errors name those"""
    stated = routes_text(written)
    kept = None if states_its_own(source) else read_kept(source.path)
    if kept is None:
        return written, STATED
    if stated:
        _LOG.info("model '%s': %s takes the place of the parameter '%s'", source.name, WHERE, VERSIONS)
    return with_routes(written, kept.routes), WHERE


def _report(versions: Sequence[int], name: str) -> None:
    """Those that are not there, in one line, however many they are"""
    if len(versions) == 1:
        _LOG.error(
            "version %d is specified for model '%s', but the version directory is not present", versions[0], name
        )
    elif versions:
        named = ", ".join(map(str, versions[:_MOST_NAMED]))
        more = f" and {len(versions) - _MOST_NAMED} more" if len(versions) > _MOST_NAMED else ""
        _LOG.error(
            "versions %s%s are specified for model '%s', but the version directories are not present", named, more, name
        )
