"""
`kushi.alternatives`: a model with several forms, of which the first that can run on this machine is served.

Its value names them in the order of preference, with commas between them: a backend, or a file `configs/NAME.pbtxt` of
the model, whose fields take the place of those in config.pbtxt. `NAME if CONDITION` is tried where that holds. What
config.pbtxt itself says comes last, so that Triton loads the same repository.
"""

import logging
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .backends import driver
from .errors import ConfigInvalid, KushiError, about
from .repository.config import read
from .repository.discovery import descriptors
from .repository.files import is_within
from .repository.messages import ModelConfig
from .repository.resolve import Resolved, resolve_written
from .repository.said_here import ALTERNATIVE
from .repository.supported_fields import ALTERNATIVES, SAMPLES

__all__ = ["Candidate", "candidates", "samples_file"]

_LOG = logging.getLogger(__name__)
_FORM = re.compile(r"(?P<name>[\w.-]+)(?:\s+if\s+(?P<condition>\S+))?")
_COMPUTE = re.compile(r"sm>=(?P<least>[0-9]{2,3})")
_MOST_FORMS = 16
"""Each may be loaded, and compared"""
# of another backend they mean something else, or nothing
_OF_ONE_BACKEND = ("backend", "platform", "default_model_filename", "optimization", "model_operations")


@dataclass(frozen=True)
class Candidate:
    """One form of a model"""

    name: str
    resolved: Resolved

    def refuse(self, error: KushiError) -> None:
        """Says why it is not served"""
        _LOG.warning("model '%s': alternative '%s' cannot be served: %s", self.resolved.source.name, self.name, error)

    def add(self, text: str) -> None:
        """To the reason that stands in its configuration"""
        parameter = self.resolved.config.parameters[ALTERNATIVE]
        parameter.string_value = f"{parameter.string_value}; {text}"


@dataclass(frozen=True)
class _Stated:
    name: str
    condition: str


def candidates(resolved: Resolved, *, holds: Callable[[str], bool] | None = None) -> Iterator[Candidate]:
    """The forms of a model that may run here, the best one first; `holds`: whether a condition is true of this host"""
    config, source = resolved.config, resolved.source
    if ALTERNATIVES not in config.parameters:
        yield Candidate("", resolved)
        return
    with about(source.stated_in):
        stated = _read(config)
    for one in stated:
        if one.condition and not (holds or _holds)(one.condition):
            _LOG.info("model '%s': alternative '%s' is for machines with %s", source.name, one.name, one.condition)
            continue
        why = f"this machine has {one.condition}" if one.condition else "it is the first that can run here"
        try:
            written = _form(resolved, one.name)
            _mark(written, f"{one.name}: {why}")
            candidate = resolve_written(source, written)
        except KushiError as error:
            _LOG.warning("model '%s': alternative '%s' cannot be served: %s", source.name, one.name, error)
            continue
        yield Candidate(one.name, candidate)
    own = ModelConfig()
    own.CopyFrom(config)
    _mark(own, f"{config.backend}: none of the alternatives can run here")
    yield Candidate(config.backend, Resolved(source, own, resolved.versions))


def samples_file(resolved: Resolved) -> Path:
    """The rows that all forms are asked"""
    name = resolved.config.parameters[SAMPLES].string_value
    path = resolved.source.path / name
    if not name or not is_within(path, resolved.source.path) or not path.is_file():
        raise ConfigInvalid(
            f"parameter '{SAMPLES}' of model '{resolved.source.name}': expected an .npz file inside the directory of "
            f"the model, got '{name}'"
        )
    return path


def _read(config: ModelConfig) -> list[_Stated]:
    parts = config.parameters[ALTERNATIVES].string_value.split(",")
    if len(parts) > _MOST_FORMS:
        raise ConfigInvalid(
            f"parameter '{ALTERNATIVES}' of model '{config.name}' names {len(parts)} forms, expected at most "
            f"{_MOST_FORMS}"
        )
    stated = []
    for part in parts:
        found = _FORM.fullmatch(part.strip())
        condition = (found and found["condition"]) or ""
        if not found or (condition and condition not in _CONDITIONS and not _COMPUTE.fullmatch(condition)):
            known = ", ".join(f"'{name}'" for name in _CONDITIONS)
            raise ConfigInvalid(
                f"parameter '{ALTERNATIVES}' of model '{config.name}': expected forms as 'NAME' or 'NAME if CONDITION' "
                f"with commas between them, where CONDITION is one of {known} or 'sm>=80', got '{part.strip()}'"
            )
        stated.append(_Stated(found["name"], condition))
    return stated


def _form(resolved: Resolved, name: str) -> ModelConfig:
    """config.pbtxt with what the form says in its place"""
    source, config = resolved.source, resolved.config
    form = ModelConfig()
    form.CopyFrom(config)
    file = source.path / "configs" / f"{name}.pbtxt"
    if source.path.is_dir() and file.is_file():
        stated = read(file)
        if stated.backend or stated.platform:
            _clear(form)
        for field, value in stated.ListFields():
            if field.name == "parameters":
                for key in stated.parameters:
                    form.parameters[key].CopyFrom(stated.parameters[key])
                continue
            form.ClearField(field.name)
            if field.is_repeated:
                getattr(form, field.name).MergeFrom(value)
            elif field.message_type:
                getattr(form, field.name).CopyFrom(value)
            else:
                setattr(form, field.name, value)
        return form
    if name not in descriptors():
        raise ConfigInvalid(f"neither '{file}' is there, nor a backend '{name}'")
    file_name = form.default_model_filename
    _clear(form)
    form.backend = name
    newest = source.versions[resolved.versions[-1]]
    if not any((newest / own).exists() for own in descriptors()[name].files):
        # a backend that reads the formats of others
        form.default_model_filename = file_name
    return form


def _clear(form: ModelConfig) -> None:
    for field in _OF_ONE_BACKEND:
        form.ClearField(field)


def _mark(config: ModelConfig, text: str) -> None:
    config.parameters[ALTERNATIVE].string_value = text


def _holds(condition: str) -> bool:
    least = _COMPUTE.fullmatch(condition)
    if least:
        return any(capability >= int(least["least"]) for capability in driver.compute_capabilities())
    return _CONDITIONS[condition]()


@cache
def _cpu_vendor() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^vendor_id\s*:\s*(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


_CONDITIONS: Mapping[str, Callable[[], bool]] = {
    "amd": lambda: _cpu_vendor() == "AuthenticAMD",
    "arm": lambda: platform.machine() in {"aarch64", "arm64"},
    "gpu": lambda: bool(driver.gpus()),
    "intel": lambda: _cpu_vendor() == "GenuineIntel",
}
