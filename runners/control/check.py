"""
What a server would make of repositories, without one: each configuration is read and checked, and files are looked for.
No model file is opened, so that what only the file says stays unknown.
"""

import logging
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from os.path import lexists
from pathlib import Path

from ..alternatives import candidates, samples_file
from ..buckets.repositories import Repositories
from ..errors import ConfigInvalid, KushiError, about
from ..failures import failure_of
from ..repository.advice import lies_beside
from ..repository.complete import completes_itself
from ..repository.config import read
from ..repository.discovery import descriptor_of
from ..repository.ensemble import check_composing, composing, is_ensemble
from ..repository.files import check_file
from ..repository.labels import read_labels
from ..repository.layout import ModelSource, scan
from ..repository.messages import ModelConfig
from ..repository.notes import notes_of
from ..repository.resolve import Resolved, resolve, resolve_written
from ..repository.self_tests import read_self_test
from ..repository.supported_fields import SAMPLES
from ..repository.validate import check_outputs, check_tensors
from ..repository.warm_up import warm_up_samples
from ..settings import BucketOptions
from .plan import Refuse, Step, Wish, plan
from .problems import Problem, placed_notes, problems_of, unreadable
from .reader import refused

__all__ = ["Finding", "check"]

_LOG = logging.getLogger(__name__)
_USUAL = BucketOptions()


@dataclass(frozen=True)
class Finding:
    """One model: the versions that would be served, or why there are none"""

    name: str
    backend: str
    versions: tuple[int, ...]
    reason: str = ""
    inputs: tuple[str, ...] = ()
    """Of a model that was loaded: names, datatypes and shapes"""
    outputs: tuple[str, ...] = ()
    self_test: str = ""
    """What came of it, where it was loaded and had one"""
    problems: tuple[Problem, ...] = ()
    """All that is wrong with its configuration, where that is why; the first is the reason"""
    notes: tuple[Problem, ...] = ()
    """Of one that would be served: what of its configuration means nothing here, and what is other in Triton"""

    @property
    def served(self) -> bool:
        """Whether it would be served, as far as its configuration tells"""
        return not self.reason


def check(
    stated: Iterable[str | Path],
    *,
    auto_complete: bool = True,
    config_name: str | None = None,
    buckets: BucketOptions = _USUAL,
) -> list[Finding]:
    """
    All models of these repositories, by name: what a start would do, without opening anything; of buckets, large files
    are not fetched
    """
    with closing(Repositories(stated, buckets.directory, buckets.most_bytes)) as repositories:
        repositories.begin()
        failures = repositories.sketch()
        findings = _check(repositories.paths, auto_complete=auto_complete, config_name=config_name)
        return [
            Finding(one.name, "", (), str(failures[one.name])) if one.name in failures else _shown(one, repositories)
            for one in findings
        ]


def _shown(one: Finding, repositories: Repositories) -> Finding:
    def shown(all_of: tuple[Problem, ...]) -> tuple[Problem, ...]:
        return tuple(replace(each, text=repositories.shown(each.text)) for each in all_of)

    reason = repositories.shown(one.reason)
    return replace(one, reason=reason, problems=shown(one.problems), notes=shown(one.notes))


def _check(repositories: Iterable[Path], *, auto_complete: bool, config_name: str | None) -> list[Finding]:
    found = scan(repositories, config_name)
    desired = {name: refused(name, reason) for name, reason in found.refused.items()}
    stated: dict[str, ModelConfig] = {}
    problems: dict[str, tuple[Problem, ...]] = {}
    for source in found.models:
        try:
            resolved = resolve(source, auto_complete=auto_complete)
            _check_all_files(resolved)
            stated[source.name] = _as_stated(resolved)
            desired[source.name] = Wish(source.name, 0, resolved)
        except Exception as error:  # noqa: BLE001 - one model's: the others are checked as well
            desired[source.name] = refused(source.name, failure_of(error, source.path))
            problems[source.name] = _problems(source)
    findings: dict[str, Finding] = {}
    models: dict[str, Mapping[int, ModelConfig]] = {}
    for step in plan({}, desired):
        if (wanted := desired[step.name].resolved) is None:
            reason, all_of_it = str(desired[step.name].reason), problems.get(step.name, ())
            findings[step.name] = Finding(step.name, "", (), reason, problems=all_of_it)
            continue
        reason = _wrong(step, wanted, findings, models)
        backend = wanted.config.backend or wanted.config.platform
        notes = () if reason else tuple(placed_notes(wanted.source, notes_of(wanted.config)))
        findings[step.name] = Finding(step.name, backend, () if reason else wanted.versions, reason, notes=notes)
        models[step.name] = dict.fromkeys(wanted.versions, stated[step.name])
    return [findings[name] for name in sorted(findings)]


def _problems(source: ModelSource) -> tuple[Problem, ...]:
    """None where nothing is wrong with a configuration of its own"""
    if source.config_file is None:
        return ()
    try:
        written = read(source.config_file)
    except KushiError as error:
        return (unreadable(source, str(error)),)
    try:
        return tuple(problems_of(source, written, partial(_fault, source)))
    except Exception:  # noqa: BLE001 - the first one is known without it
        _LOG.exception("the problems of '%s' cannot be told apart", source.config_file)
        return ()


def _fault(source: ModelSource, config: ModelConfig) -> str:
    try:
        _check_all_files(resolve_written(source, config))
    except Exception as error:  # noqa: BLE001 - as for one model
        return str(failure_of(error, source.path))
    return ""


def _check_all_files(resolved: Resolved) -> None:
    _check_files(resolved.source, resolved)
    _check_named(resolved.source, resolved)


def _wrong(
    step: Step, resolved: Resolved, findings: Mapping[str, Finding], models: Mapping[str, Mapping[int, ModelConfig]]
) -> str:
    """Why a model would not be served; "" where it would, as far as its configuration tells"""
    if isinstance(step, Refuse):
        return str(step.reason)
    if not is_ensemble(resolved.config):
        return ""
    unserved = (name for name in composing(resolved.config) if not findings[name].served)
    missing = "; ".join(f"its model '{name}' would not be served" for name in unserved)
    return missing or _wrong_graph(resolved, models)


def _check_files(source: ModelSource, resolved: Resolved) -> None:
    if is_ensemble(resolved.config) or descriptor_of(resolved.config.backend).program:
        return
    for version in resolved.versions:
        path = source.versions[version] / resolved.config.default_model_filename
        if not lexists(path):
            raise ConfigInvalid(f"unable to find '{path}'{lies_beside(path)}")
        if not path.is_dir():
            check_file(path)


def _check_named(source: ModelSource, resolved: Resolved) -> None:
    """Other files of the model that its configuration names, and its other forms"""
    config = resolved.config
    with about(source.stated_in):
        read_labels(source.path, config)
        warm_up_samples(source.path, config)
        read_self_test(source.path, config)
    forms = list(candidates(resolved))
    # with one form, there is nothing to compare
    if SAMPLES in config.parameters and len(forms) > 1:
        with about(source.stated_in):
            samples_file(resolved)


def _as_stated(resolved: Resolved) -> ModelConfig:
    """The configuration as it will be, without tensors where only the model says which there are"""
    config = ModelConfig()
    config.CopyFrom(resolved.config)
    if _completes_itself(resolved):
        return ModelConfig(name=config.name)
    if not (config.input and config.output):
        config.ClearField("input")
        config.ClearField("output")
    return config


def _completes_itself(resolved: Resolved) -> bool:
    """Whether code of the model may change its configuration when it is loaded"""
    if is_ensemble(resolved.config) or not descriptor_of(resolved.config.backend).code_suffix:
        return False
    if program := descriptor_of(resolved.config.backend).program:
        return completes_itself(program)
    name = resolved.config.default_model_filename
    return any(completes_itself(resolved.source.versions[version] / name) for version in resolved.versions)


def _wrong_graph(ensemble: Resolved, models: Mapping[str, Mapping[int, ModelConfig]]) -> str:
    """Why the models of its steps do not fit it or one another; "" where they do, as far as they say"""
    try:
        with about(ensemble.source.stated_in):
            check_tensors(ensemble.config)
            check_outputs(ensemble.config)
            check_composing(ensemble.config, models, {}, as_written=True)
    except KushiError as error:
        return str(error)
    return ""
