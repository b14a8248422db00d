"""Table and plot from the kept figures of all parts."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import cast

from benchmarks.outcome import Outcome, check_table, load

__all__ = ["Draw", "load_plot", "write"]

Draw = Callable[[dict[str, Outcome], Path], None]

HEADER = """\
# Results

Written by `python -m benchmarks` (`make bench`); what each figure means: [../README.md](../README.md).
Ratios are measured within one run and survive a change of machine; absolute figures do not.

![results](results.png)"""


def load_plot(name: str = "draw") -> Draw:
    """A function of `plot`, the one module that needs matplotlib."""
    try:
        return cast("Draw", getattr(import_module("benchmarks.plot"), name))
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"the plot needs {error.name}, which is not installed here: `make bench` installs it"
        ) from None


def write(directory: Path, parts: tuple[str, ...], draw: Draw) -> None:
    """Reads `figures/*.json` in the directory, writes results.md and results.png into it."""
    files = [directory / "figures" / f"{part}.json" for part in parts]
    outcomes = [load(file) for file in files if file.exists()]
    if not outcomes:
        raise SystemExit(f"no figures in {directory}: run python -m benchmarks first")
    checks = tuple(check for outcome in outcomes for check in outcome.checks)
    sections = [HEADER, _machines(outcomes), "## Targets", check_table(checks).markdown()]
    sections += [outcome.markdown(with_checks=False) for outcome in outcomes]
    (directory / "results.md").write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    draw({outcome.part: outcome for outcome in outcomes}, directory / "results.png")
    print(f"wrote {directory / 'results.md'} and results.png")


def _machines(outcomes: list[Outcome]) -> str:
    """The parts usually ran one after the other on one machine; where they did not, each difference is shown."""
    lines = []
    for key in outcomes[0].machine:
        values = {outcome.part: outcome.machine.get(key, "") for outcome in outcomes}
        if len(set(values.values())) == 1:
            lines.append(f"* {key}: {outcomes[0].machine[key]}")
        else:
            lines.append(f"* {key}: " + "; ".join(f"{value} ({part})" for part, value in values.items()))
    return "## Machine\n\n" + "\n".join(lines)
