"""kushi serve --dry-run: what a server would do with these flags, without one"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..control.check import check
from ..doors import DOORS, probe_all
from ..errors import KushiError
from ..settings import ALL_MODELS
from .check import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..control.check import Finding
    from ..settings import ServerSettings

__all__ = ["dry_run"]


def dry_run(settings: ServerSettings) -> int:
    """Prints a line for each model that would be loaded and for each door, and answers the exit code of a start"""
    models = settings.engine.models
    try:
        findings = check(
            settings.repositories,
            auto_complete=not models.strict_config,
            config_name=models.config_name,
            buckets=settings.engine.buckets,
        )
        loaded = list(findings if models.control != "explicit" else _named(findings, models.load))
    except KushiError as error:
        sys.stderr.write(f"kushi serve: error: {error}\n")
        return 1
    sys.stdout.writelines(f"{line}\n" for one in loaded for line in lines_of(one))
    if not loaded:
        sys.stdout.write("no model is loaded at the start\n")
    is_well = all(one.served for one in loaded) or not settings.engine.exit_on_error
    doors = settings.open_doors
    for door in DOORS:
        if place := door.place(doors):
            sys.stdout.write(f"{door.service} at {place}\n")
    try:
        probe_all(doors)
    except KushiError as error:
        sys.stdout.write(f"{error}\n")
        is_well = False
    sys.stderr.write("nothing was opened: `kushi check --load` opens the models as well\n")
    return 0 if is_well else 1


def _named(findings: Iterable[Finding], names: tuple[str, ...]) -> Iterable[Finding]:
    """Those that --load-model names"""
    known = {one.name: one for one in findings}
    for name in known if ALL_MODELS in names else names:
        if name not in known:
            raise KushiError(f"--load-model={name}: there is no such model in the repositories")
        yield known[name]
