"""One model's directory → its checked configuration and the versions to load, before any model file is opened"""

import logging
from dataclasses import dataclass

from ..errors import ConfigInvalid, about
from .config import read
from .layout import ModelSource
from .messages import ModelConfig
from .normalize import fill_backend, fill_defaults
from .supported_fields import check_supported_fields
from .validate import check_model
from .versions import missing, served

__all__ = ["NoVersion", "Resolved", "resolve", "resolve_written"]

_LOG = logging.getLogger(__name__)


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
    return resolve_written(source, written)


def resolve_written(source: ModelSource, written: ModelConfig) -> Resolved:
    """Completes and checks a configuration that was read; an error names the file it is about"""
    with about(source.stated_in):
        config = fill_backend(source, written)
        check_supported_fields(config)
        config = fill_defaults(config)
        check_model(config, source.name)
        for version in missing(config, source.versions):
            _LOG.error(
                "version %d is specified for model '%s', but the version directory is not present", version, source.name
            )
        versions = served(config, source.versions)
        if not versions:
            raise NoVersion(f"at least one version must be available under the version policy of model '{source.name}'")
    return Resolved(source, config, versions)
