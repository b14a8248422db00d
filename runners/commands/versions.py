"""kushi versions: how the requests for a model of a server find its versions, and how that changes"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidInput, KushiError
from .command import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..client import Client

__all__ = ["COMMAND"]

_DESCRIPTION = """\
Shows the versions of a model that a server has, their labels, and how the requests are shared out
that name no version; or changes labels and shares, while the versions stay as they are.
"""
_EPILOG = """\
examples:
  kushi versions digits
  kushi versions digits --labels stable=1,canary=2 --weights stable=90,canary=10 --sticky user
  kushi versions digits --promote canary --keep
  kushi versions digits --back

The server has to let clients change models (--model-control-mode=explicit).
"""
_HEAD: Final = ("version", "state", "labels", "share", "requests")


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument(
        "--url", default="http://localhost:8000", help="of the server, as Client takes it. Default: %(default)s"
    )
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE", help="sent to the server, as a token"
    )
    parser.add_argument("--labels", metavar="LABEL=VERSION,…", help="these, and no others; '' for none")
    parser.add_argument(
        "--weights", metavar="VERSION=WEIGHT,…", help="of labels or versions; '' to send all to the latest version"
    )
    parser.add_argument(
        "--sticky", metavar="NAME", help="requests with equal values of this parameter or header meet one version"
    )
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--promote", metavar="VERSION", help="label it 'stable', and send it all requests")
    one.add_argument("--back", action="store_true", help="go back to what was before the last change")
    one.add_argument("--forget", action="store_true", help="go back to config.pbtxt, and delete what was kept")
    parser.add_argument("--keep", action="store_true", help="keep the change for the next start of the server")
    parser.add_argument("--json", action="store_true", help="what is in effect, for a program")


def _run(arguments: dict[str, Any], parser: ArgumentParser) -> int:
    from ..client import Client  # noqa: PLC0415 - native code, which help does without

    model = arguments["model"]
    try:
        change = _change(arguments, parser)
        with Client(arguments["url"], headers=dict(map(_header, arguments["header"])) or None) as client:
            if change:
                change(client)
            lines = _lines(client, model) if not arguments["json"] else [json.dumps(client.get_model_versions(model))]
            sys.stdout.write("\n".join([*lines, ""]))
    except KushiError as error:
        sys.stderr.write(f"{parser.prog}: error: {error}\n")
        return 1
    return 0


def _change(arguments: dict[str, Any], parser: ArgumentParser) -> Callable[[Client], None] | None:
    """What is to be done before the versions are shown"""
    model, keep = arguments["model"], arguments["keep"]
    stated = {name: arguments[name] for name in ("labels", "weights", "sticky") if arguments[name] is not None}
    alone = next((name for name in ("promote", "back", "forget") if arguments[name] not in (None, False)), None)
    if alone:
        if stated or (alone == "forget" and keep):
            parser.error(f"--{next(iter(stated), 'keep')} cannot be given with --{alone}")
        if alone == "forget":
            return lambda client: client.forget_model_versions(model)
        if alone == "back":
            return lambda client: client.roll_back_model_versions(model, keep=keep)
        return lambda client: client.promote_model_version(model, arguments["promote"], keep=keep)
    if not stated:
        if keep:
            parser.error("--keep is for a change, as --weights")
        return None
    labels = _pairs("labels", stated.get("labels"), int)
    weights = _pairs("weights", stated.get("weights"), float)
    sticky = stated.get("sticky")
    return lambda client: client.change_model_versions(model, labels=labels, weights=weights, sticky=sticky, keep=keep)


def _pairs(flag: str, text: str | None, number: Callable[[str], Any]) -> dict[Any, Any] | None:
    if text is None:
        return None
    try:
        pairs = [one.split("=") for one in text.split(",") if one.strip()]
        return {name.strip(): number(value) for name, value in pairs}
    except ValueError:
        raise InvalidInput(f"--{flag} is '{text}', expected names with numbers, as in stable=1,canary=2") from None


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise InvalidInput(f"--header is '{text}', expected a name and a value, as in authorization:Bearer abc")
    return name.strip(), value.strip()


def _lines(client: Client, model: str) -> Iterator[str]:
    stated = client.get_model_versions(model)
    counts = {row["version"]: row["inference_count"] for row in _statistics(client, model)}
    rows = [row for row in client.get_model_repository_index() if row["name"] == model and "version" in row]
    shares = _shares(stated, [row["version"] for row in rows if row.get("state") == "READY"])
    table = [_HEAD]
    for row in rows:
        version = row["version"]
        labels = ", ".join(label for label, number in stated["labels"].items() if str(number) == version)
        share = f"{100 * shares.get(version, 0):.4g} %"
        table.append((version, row.get("state", ""), labels, share, str(counts.get(version, 0))))
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEAD))]
    for line in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
    if stated["sticky"]:
        yield f"requests with equal values of '{stated['sticky']}' meet one version"


def _statistics(client: Client, model: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = client.get_inference_statistics(model)["model_stats"]
    return rows


def _shares(stated: Mapping[str, Any], ready: list[str]) -> dict[str, float]:
    """Of the requests that name no version"""
    if not stated["weights"]:
        return {ready[-1]: 1.0} if ready else {}
    shares: dict[str, float] = {}
    for name, weight in stated["weights"].items():
        version = str(stated["labels"].get(name, name))
        shares[version] = shares.get(version, 0) + weight
    whole = sum(shares.values())
    return {version: weight / whole for version, weight in shares.items()}


COMMAND = Command(
    name="versions",
    summary="show and change how requests find the versions of a model",
    description=_DESCRIPTION,
    epilog=_EPILOG,
    add_arguments=_add_arguments,
    run=_run,
    formatter=RawDescriptionHelpFormatter,
)
