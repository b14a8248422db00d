"""
Writes docs/reference/serve.md from the code: flags, refused flags, errors, metrics.

python -m docs.generate           writes the page
python -m docs.generate --check   fails when the page is not what the code says
"""

import sys
import time
from asyncio import CancelledError
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill

import numpy as np

from runners import Engine, EngineOptions, MetricsOptions
from runners.errors import KINDS, Kind
from runners.settings import SETTINGS
from runners.settings.absent import ABSENT
from runners.settings.definition import Setting
from runners.settings.kinds import Choice, Integer, Switch
from tests.nvml import StandIn

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "serve.md"
_COMMAND = "python -m docs.generate"
_HEAD = f"""# `kushi serve`: flags, errors, metrics

<!-- Written by `{_COMMAND}` from the code. Change the code, then run `make docs`. -->

What the flags are for: [serving](../serving.md).
"""
_FLAGS = """## Flags

A flag is written `--name=value` or `--name value`; a switch alone means true. A flag wins over its environment
variable. Unknown flags and unknown `KUSHI_*` variables are errors. `MODEL …` behind the flags is the same as
`--model-repository`. Where there is a name in Python, it is that of `EngineOptions`: `http.max_headers` is
`EngineOptions(http=HttpOptions(max_headers=…))`.
"""
_ABSENT = """## Flags of tritonserver that do not exist here

Their features do not exist yet, so `kushi serve` refuses them by name. Some are accepted with a value that asks for
nothing:
"""
_REFUSED = "Refused whatever their value:\n"
_ERRORS = """## Errors

Every error body is `{"error": "…"}`, and the header `kushi-error` names the kind. The Python class is what `Engine`
and `Client` raise; all of them are `KushiError`s. Some failures have another status, because they have it in Triton: a
request body that cannot be read at all (broken JSON, a missing member, a wrong number of elements) is `invalid_input`
and 500, shared memory that is not registered `invalid_input` and 404, shared memory that cannot be opened or is too
small for an output `invalid_input` and 500, and what [a load or unload](../http.md#loading-and-unloading) is refused
with has the statuses listed there. 503 comes with `Retry-After` where the table says that a retry may help.
"""
_METRICS = """## Metrics

`GET /metrics` on the metrics port answers these, in the Prometheus text format. There are no metrics with the label
`model` while no model is loaded. What they mean, and what asks for them: [metrics](../metrics.md).
"""
# read by a thread of its own
_OF_GPUS = "nv_gpu_utilization"
_STREAM = """class TritonPythonModel:
    def execute(self, requests):
        raise NotImplementedError
"""
_STREAM_CONFIG = """backend: "python"
output { name: "Y" data_type: TYPE_FP32 dims: 1 }
model_transaction_policy { decoupled: true }
"""


def main(arguments: Iterable[str]) -> str | None:
    """Writes or checks the page; answers what is wrong"""
    page = _page()
    if "--check" not in arguments:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page, encoding="utf-8")
        return None
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page:
        return None
    return f"{PAGE.relative_to(ROOT)} is not what the code says: run {_COMMAND}"


def _page() -> str:
    return "\n".join(
        [
            _HEAD,
            _FLAGS,
            *_flags(),
            _ABSENT,
            _table(("flag", "accepted"), _switched_off()),
            _REFUSED,
            _refused(),
            _ERRORS,
            _table(("kind", "HTTP", "retry", "Python class", "meaning"), _errors()),
            _METRICS,
            _table(("metric", "type", "labels", "meaning"), _metrics()),
        ]
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [list(head)]
    cells += [["---"] * len(cells[0]), *map(list, rows)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in cells)


def _flags() -> Iterator[str]:
    """A table for each section of the help"""
    head = ("flag", "value", "default", "environment", "in Python", "meaning")
    titles = dict.fromkeys(one.title for one in SETTINGS.values())
    for title in titles:
        yield f"### Flags: {title}\n"
        yield _table(head, (_flag(one) for one in SETTINGS.values() if one.title == title))


def _flag(one: Setting) -> tuple[str, ...]:
    match one.kind:
        case Choice(words=words):
            value = ", ".join(f"`{word}`" for word in words)
        case Switch():
            value = "`true`, `false`"
        case Integer():
            value = "number"
        case other:
            value = other.placeholder.lower()
    shown = f"`{one.shown_default}`" if one.shown_default else ""
    group, _, path = one.path.partition(".")
    in_python = f"`{path}`" if group == "engine" and one.is_in_object else ""
    return f"`--{one.flag}`", value, shown, f"`{one.variable}`", in_python, f"{one.description}{one.kind.note}"


def _switched_off() -> Iterator[tuple[str, str]]:
    for name in sorted(name for name, accepted in ABSENT.items() if accepted):
        yield f"`--{name}`", ", ".join(f"`{value}`" for value in sorted(ABSENT[name], reverse=True))


def _refused() -> str:
    names = (f"`--{name}`" for name in sorted(name for name, accepted in ABSENT.items() if not accepted))
    return fill(", ".join(names), width=120, break_on_hyphens=False) + ".\n"


def _errors() -> Iterator[tuple[str, ...]]:
    for kind, row in KINDS.items():
        yield kind, str(row.status), "yes" if row.retryable else "no", f"`{_class(row)}`", _meaning(row)


def _class(row: Kind) -> str:
    return "asyncio.CancelledError" if row.raised is CancelledError else row.raised.__name__


def _meaning(row: Kind) -> str:
    return "The caller gave the request up" if row.raised is CancelledError else row.raised.__doc__ or ""


def _metrics() -> Iterator[tuple[str, ...]]:
    """What a server really answers that has all of them"""
    metrics = MetricsOptions(histogram_latencies=True, summary_latencies=True)
    with TemporaryDirectory() as folder, TemporaryDirectory() as driver:
        (Path(folder) / "stream" / "1").mkdir(parents=True)
        (Path(folder) / "stream" / "1" / "model.py").write_text(_STREAM, encoding="utf-8")
        (Path(folder) / "stream" / "config.pbtxt").write_text(_STREAM_CONFIG, encoding="utf-8")
        StandIn.made(Path(driver)).load()
        with Engine(
            ROOT / "tests/small_service/model_repository", folder, options=EngineOptions(metrics=metrics)
        ) as engine:
            engine.model("digits").run(np.zeros((1, 1, 8, 8), np.float32))
            page = engine.get_metrics()
            while _OF_GPUS not in page:
                time.sleep(0.01)
                page = engine.get_metrics()
    helps, kinds, labels = {}, {}, {}
    for line in page.splitlines():
        match line.split(maxsplit=3):
            case ["#", "HELP", name, text]:
                helps[name] = text
            case ["#", "TYPE", name, kind]:
                kinds[name] = kind
            case [series, _]:
                name, _, pairs = series.partition("{")
                family = name if name in helps else name.removesuffix("_bucket")
                labels[family] = ", ".join(f"`{pair.partition('=')[0]}`" for pair in pairs.split(",") if pair)
            case _:
                continue
    for name, text in helps.items():
        yield f"`{name}`", kinds[name], labels[name], text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
