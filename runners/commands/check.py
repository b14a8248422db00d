"""kushi check: one line for each model of a repository, would it be served or not, and why"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import KushiError
from ..printable import printable
from ..settings.kinds import BackendSettings
from .command import Command

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterable

    from ..control.check import Finding

__all__ = ["COMMAND", "lines_of"]

_BACKEND_CONFIG, _SELF_TEST = "--backend-config", "--self-test"


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "repository", nargs="+", metavar="DIR", help="a model repository, also in a bucket, or a file of a model"
    )
    parser.add_argument(
        "--load",
        action="store_true",
        help="load every model, which runs `auto_complete_config` and `initialize` of those in Python",
    )
    parser.add_argument(
        _SELF_TEST,
        action="store_true",
        help="with --load: hold the answers of each model against those of its runtime alone, as kushi serve does with "
        "--model-self-test",
    )
    parser.add_argument(
        _BACKEND_CONFIG,
        action="append",
        default=[],
        metavar=BackendSettings().placeholder,
        help="with --load: setting of a backend, as for kushi serve",
    )
    parser.add_argument("--model-config-name", metavar="NAME", help="as for kushi serve")
    parser.add_argument("--backend-directory", metavar="DIR", help="as for kushi serve")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="of the output. Default: %(default)s"
    )


def _run(arguments: dict[str, Any], parser: ArgumentParser) -> int:
    handler, warned = logging.StreamHandler(sys.stderr), _Notes()
    handler.addFilter(warned)
    logging.basicConfig(format="%(levelname)s: %(message)s", handlers=[handler])
    loads = arguments["load"]
    needing = {_BACKEND_CONFIG: arguments["backend_config"], _SELF_TEST: arguments["self_test"]}
    for flag, stated in needing.items():
        if stated and not loads:
            parser.error(f"{flag} needs --load")
    try:
        findings = list(_findings(arguments["repository"], arguments, loads=loads))
    except KushiError as error:
        parser.error(str(error))
    if arguments["format"] == "json":
        sys.stdout.write(json.dumps([_row(one, loads=loads) for one in findings], indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for one in findings for line in lines_of(one, loads=loads))
        if not loads and any(one.served for one in findings):
            sys.stderr.write("no model was opened: `kushi check --load` does that as well\n")
    for text in warned.beside(findings):
        sys.stderr.write(f"WARNING: {text}\n")
    return 0 if all(one.served for one in findings) else 1


class _Notes(logging.Filter):
    """Keeps warnings about fields out of the log: most are notes of the list, and the others come behind it"""

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, None] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        is_of_fields = record.name.endswith(".repository.supported_fields")
        if is_of_fields:
            self._texts[record.getMessage()] = None
        return not is_of_fields

    def beside(self, findings: Iterable[Finding]) -> list[str]:
        """Those that are no notes of models that would be served"""
        notes = [(f"model '{one.name}': ", note.text) for one in findings for note in one.notes]
        return [
            printable(text)
            for text in self._texts
            if not any(text.startswith(of) and note.endswith(text.removeprefix(of)) for of, note in notes)
        ]


def _findings(repositories: list[str], arguments: dict[str, Any], *, loads: bool) -> Iterable[Finding]:
    # native code and protobuf, which help does without
    if arguments["backend_directory"]:
        from ..repository.discovery import add_directory  # noqa: PLC0415 - see above

        add_directory(Path(arguments["backend_directory"]).absolute())
    if loads:
        from ..trial_load import load_once  # noqa: PLC0415 - see above

        settings: Any = BackendSettings().read(arguments["backend_config"], _BACKEND_CONFIG)
        return load_once(repositories, settings, arguments["model_config_name"], self_test=arguments["self_test"])
    from ..control.check import check  # noqa: PLC0415 - see above
    from ..settings import read_settings  # noqa: PLC0415 - see above

    buckets = read_settings({}).engine.buckets
    return check(repositories, config_name=arguments["model_config_name"], buckets=buckets)


def _row(one: Finding, *, loads: bool) -> dict[str, Any]:
    row = {
        "name": one.name,
        "served": one.served,
        "backend": one.backend,
        "versions": list(one.versions),
        "reason": one.reason,
        "problems": [asdict(problem) for problem in one.problems],
        "notes": [asdict(note) for note in one.notes],
    }
    loaded = {"inputs": list(one.inputs), "outputs": list(one.outputs), "self_test": one.self_test}
    return {**row, **loaded} if loads else row


def lines_of(one: Finding, *, loads: bool = False) -> list[str]:
    """
    What is said of a model: one line, or one for each thing that is wrong, and one for each note; `loads`: whether it
    was loaded
    """
    several = [replace(one, reason=problem.text) for problem in one.problems] or [one]
    lines = [_said(each, loads=loads) for each in several] + [f"note: {note.text}" for note in one.notes]
    return [printable(f"{one.name}: {line}") for line in lines]


def _said(one: Finding, *, loads: bool) -> str:
    versions = ", ".join(map(str, one.versions))
    if not one.served:
        # one of a program may have several lines
        reason = " ".join(one.reason.split())
        return f"{'does not load' if loads else 'not served'}: {reason}"
    if not loads:
        return f"served, {one.backend}, version {versions}"
    tensors = f"{', '.join(one.inputs)} → {', '.join(one.outputs)}"
    tested = f"; self-test: {one.self_test}" if one.self_test else ""
    return f"loads, {one.backend}, version {versions}: {tensors}{tested}"


COMMAND = Command(
    name="check",
    summary="say which models would be served",
    description="Reads and checks every configuration of model repositories, and prints one line for each model. No "
    "model file is opened, other than with --load. The exit code is 1 where a model would not be served.",
    epilog="",
    add_arguments=_add_arguments,
    run=_run,
)
