"""One picture of all parts: what a request costs, how long it takes, what a long model keeps, and every target."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import PercentFormatter

from benchmarks.outcome import Check, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["draw", "draw_overload", "draw_service", "draw_soak"]

KUSHI = "#c8502d"
KUSHI_LIGHT = "#eeb9a4"
FLOOR = "#8a94a3"
FLOOR_LIGHT = "#ccd2da"
GOOD = "#3b7d57"
BAD = "#b3261e"
INK = "#22262b"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa2ad",
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
}
WIDTH = 0.38
WORST_SHARE = 2.5


def draw(outcomes: dict[str, Outcome], path: Path) -> None:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(16, 15), dpi=110, layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15))
        ((upper,), (middle,), (lower,)) = figure.subfigures(3, 1, squeeze=False, height_ratios=(1.2, 0.85, 1.25))
        cost, latency, throughput = upper.subplots(1, 3, width_ratios=(1.1, 1.1, 1))
        _draw_cost(cost, outcomes.get("http_cost"))
        _draw_latency(latency, outcomes.get("http_cost"))
        _draw_throughput(throughput, outcomes.get("throughput"), outcomes.get("interference"))
        _draw_calls(middle.subplots(1, 3), outcomes.get("python_calls"))
        _draw_targets(lower.subplots(), [check for outcome in outcomes.values() for check in outcome.checks])
        first = next(iter(outcomes.values())).machine
        figure.suptitle(
            f"Kushi against the floors of the same run · {first['CPU']} · {first['date']}",
            fontsize=13,
            x=0.01,
            ha="left",
        )
        figure.savefig(path)


def draw_service(outcomes: dict[str, Outcome], path: Path) -> None:
    """The picture of benchmarks/service.py alone"""
    (outcome,) = outcomes.values()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(16, 7), dpi=110, layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15))
        ((upper,), (lower,)) = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.1, 1))
        points: list[dict[str, Any]] = outcome.figures["points"]
        configurations = list(dict.fromkeys(point["configuration"] for point in points))
        widest = max(point["cpu_us"] for point in points)
        for axes, configuration in zip(upper.subplots(1, len(configurations)), configurations, strict=True):
            chosen = [point for point in points if point["configuration"] == configuration]
            _draw_services(axes, configuration, chosen, widest)
        _draw_targets(lower.subplots(), list(outcome.checks))
        machine = outcome.machine
        title = f"One API over BentoML, in several ways · {machine['CPU']} · {machine['date']}"
        figure.suptitle(title, fontsize=13, x=0.01, ha="left")
        figure.savefig(path)


def draw_overload(outcomes: dict[str, Outcome], path: Path) -> None:
    """The picture of benchmarks/overload.py alone"""
    (outcome,) = outcomes.values()
    figures = outcome.figures
    closed, load, memory = figures["closed"], figures["load"], figures["memory"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(16, 7), dpi=110, layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15))
        ((upper,), (lower,)) = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.1, 1))
        results, latency, resident = upper.subplots(1, 3)
        results.set_title("Results a second")
        bars = (
            ("closed loop, c = 32", closed["per_second"], FLOOR),
            ("attainable under the load", figures["attainable"] * closed["per_second"], FLOOR_LIGHT),
            ("under the load", load["good_per_second"], KUSHI),
        )
        for y, (_, value, color) in enumerate(bars):
            results.barh(y, value, 0.62, color=color)
            results.text(value, y, f"  {value:.0f}", va="center", fontweight="bold")
        results.set_yticks(range(len(bars)), [label for label, *_ in bars])
        results.set_xlim(right=1.2 * max(value for _, value, _ in bars))
        results.invert_yaxis()
        latency.set_title("ms from the send, under the load")
        quantiles = ("p50", "p90", "p99", "p999", "max")
        for key, label, color in (("result_us", "results", KUSHI), ("refusal_us", "refusals", FLOOR)):
            latency.plot(quantiles, [load[key][name] / 1e3 for name in quantiles], "o-", color=color, label=label)
        latency.set_yscale("log")
        latency.legend()
        _draw_series(resident, "Resident memory, MB", memory["samples"])
        resident.axvspan(*memory["loaded"], color=KUSHI_LIGHT, alpha=0.5)
        _draw_targets(lower.subplots(), list(outcome.checks))
        figure.savefig(path)


def draw_soak(outcomes: dict[str, Outcome], path: Path) -> None:
    """The picture of benchmarks/soak.py alone"""
    (outcome,) = outcomes.values()
    figures = outcome.figures
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(16, 7), dpi=110, layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15))
        ((upper,), (lower,)) = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.1, 1))
        cpu, resident = upper.subplots(1, 2)
        _draw_series(cpu, "CPU µs per request", figures["cpu_us"])
        for window in (figures["early_s"], figures["late_s"]):
            cpu.axvspan(*window, color=KUSHI_LIGHT, alpha=0.5)
        _draw_series(resident, "Resident memory, MB", figures["rss_mb"])
        _draw_targets(lower.subplots(), list(outcome.checks))
        figure.savefig(path)


def _draw_series(axes: Axes, title: str, points: list[tuple[float, float]]) -> None:
    axes.set_title(title)
    axes.plot([second for second, _ in points], [value for _, value in points], color=KUSHI)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")


def _draw_services(axes: Axes, configuration: str, points: list[dict[str, Any]], widest: float) -> None:
    axes.set_title(f"CPU µs per request, all processes, {configuration}")
    for y, point in enumerate(points):
        axes.barh(y, point["cpu_us"], 0.62, color=KUSHI if point["way"].startswith("Kushi") else FLOOR)
        text = f"  {point['cpu_us']:.0f} µs = {point['ratio']:.2f}"
        text += f", {point['failed']:.1%} failed" if point["failed"] else ""
        axes.text(point["cpu_us"], y, text, va="center", fontweight="bold")
    axes.set_yticks(range(len(points)), [point["way"] for point in points])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(right=1.5 * widest)
    axes.invert_yaxis()


def _short_points(outcome: Outcome) -> list[dict[str, Any]]:
    """convnet's milliseconds would hide the microseconds of the others."""
    return [point for point in outcome.figures["points"] if point["model"] != "convnet"]


def _draw_cost(axes: Axes, outcome: Outcome | None) -> None:
    axes.set_title("Server CPU per request, µs")
    if outcome is None:
        return _missing(axes)
    points = _short_points(outcome)
    places = range(len(points))
    axes.bar(
        [x - WIDTH / 2 for x in places], [p["echo_cpu_us"] for p in points], WIDTH, color=FLOOR, label="echo server"
    )
    axes.bar([x + WIDTH / 2 for x in places], [p["cpu_us"] for p in points], WIDTH, color=KUSHI, label="Kushi")
    floors = [p["floor_us"] for p in points]
    axes.bar([x + WIDTH / 2 for x in places], floors, WIDTH, color=KUSHI_LIGHT, label="of it raw ONNX Runtime, batch c")
    for x, point in zip(places, points, strict=True):
        axes.text(
            x + WIDTH / 2, point["cpu_us"], f"{point['cpu_ratio']:.2f}×", ha="center", va="bottom", fontweight="bold"
        )
    _label(axes, points)
    axes.set_ylim(top=1.3 * max(point["cpu_us"] for point in points))
    axes.legend(loc="upper left")
    return None


def _draw_latency(axes: Axes, outcome: Outcome | None) -> None:
    axes.set_title("Latency, µs: p50, whisker to p99")
    if outcome is None:
        return _missing(axes)
    points = _short_points(outcome)
    for name, color, shift, prefix in (("echo server", FLOOR, -WIDTH / 2, "echo_"), ("Kushi", KUSHI, WIDTH / 2, "")):
        p50 = [point[f"{prefix}p50_us"] for point in points]
        up = [point[f"{prefix}p99_us"] - low for point, low in zip(points, p50, strict=True)]
        axes.bar(
            [x + shift for x in range(len(points))],
            p50,
            WIDTH,
            yerr=[[0.0] * len(points), up],
            color=color,
            ecolor=INK,
            capsize=3,
            label=name,
        )
        for x, value in enumerate(p50):
            axes.text(x + shift, value * 0.93, f"{value:.0f}", ha="center", va="top", color="white", fontsize=8.5)
    axes.set_yscale("log")
    axes.set_ylim(bottom=10)
    _label(axes, points)
    axes.legend(loc="upper left")
    return None


def _label(axes: Axes, points: list[dict[str, Any]]) -> None:
    axes.set_xticks(range(len(points)), [f"{point['model']}\nc = {point['connections']}" for point in points])
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("µs")


def _draw_throughput(axes: Axes, alone: Outcome | None, beside: Outcome | None) -> None:
    axes.set_title("convnet: requests per second")
    bars: list[tuple[str, float, float, str, str]] = []
    if alone is not None:
        for count in ("1", "2"):
            pairs = [pair for pair in alone.figures["pairs"] if str(pair["instances"]) == count]
            middle = sorted(pairs, key=lambda pair: float(pair["ratio"]))[len(pairs) // 2]
            bars.append(
                (
                    f"{count} instance{'s' * (count != '1')},\nc = {2 * int(count)}",
                    middle["floor"]["runs_per_second"],
                    middle["server"]["per_second"],
                    "raw ONNX Runtime",
                    f"{alone.figures['ratios'][count]:.3f}",
                )
            )
    if beside is not None:
        rounds = beside.figures["rounds"]
        middle = sorted(rounds, key=lambda one: float(one["kept"]))[len(rounds) // 2]
        bars.append(
            (
                "2 instances, c = 8,\nbeside add_sub",
                middle["large_alone"]["per_second"],
                middle["large"]["per_second"],
                "Kushi, nothing beside it",
                f"{beside.figures['kept']:.3f}",
            )
        )
    if not bars:
        return _missing(axes)
    for x, (_, reference, served, kind, ratio) in enumerate(bars):
        color = FLOOR if kind == "raw ONNX Runtime" else KUSHI_LIGHT
        axes.bar(x - WIDTH / 2, reference, WIDTH, color=color, label=kind)
        axes.bar(x + WIDTH / 2, served, WIDTH, color=KUSHI, label="Kushi")
        axes.text(x + WIDTH / 2, served, ratio, ha="center", va="bottom", fontweight="bold")
        for shift, value in ((-WIDTH / 2, reference), (WIDTH / 2, served)):
            axes.text(x + shift, value * 0.97, f"{value:.0f}", ha="center", va="top", color="white", fontsize=8.5)
    axes.set_xticks(range(len(bars)), [label for label, *_ in bars])
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("per second")
    axes.set_ylim(top=1.3 * max(max(reference, served) for _, reference, served, _, _ in bars))
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(unique.values(), unique.keys(), loc="upper left", fontsize=9.5)
    return None


def _draw_calls(places: Sequence[Axes], outcome: Outcome | None) -> None:
    groups: list[list[dict[str, Any]]] = outcome.figures["groups"] if outcome else []
    for axes, calls in zip_longest(places, groups):
        if not calls:
            axes.set_title("From Python")
            _missing(axes)
            continue
        peer = calls[0]
        size = "600 KB in" if peer["model"] == "wide" else peer["model"]
        axes.set_title(f"From Python: {size}, c = {calls[-1]['concurrency']}")
        for y, call in enumerate(calls):
            color, light = (FLOOR, FLOOR_LIGHT) if call is peer else (KUSHI, KUSHI_LIGHT)
            axes.barh(y, call["cpu_us"], 0.62, color=light)
            axes.barh(y, call["caller_cpu_us"], 0.62, color=color)
            text = f"  {call['cpu_us']:.1f} µs" + ("" if call is peer else f" = {call['ratio']:.3f}")
            axes.text(call["cpu_us"], y, text, va="center", fontweight="bold")
        axes.set_yticks(range(len(calls)), [call["label"] for call in calls])
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("CPU µs per call: caller dark, server light")
        axes.set_xlim(right=1.4 * peer["cpu_us"])
        axes.invert_yaxis()


def _draw_targets(axes: Axes, checks: list[Check]) -> None:
    axes.set_title("Targets: measured as a share of the limit; up to the line is met")
    if not checks:
        return _missing(axes)
    for y, check in enumerate(checks):
        color = GOOD if check.met else BAD
        axes.barh(y, min(check.share, WORST_SHARE), 0.62, color=color)
        axes.text(
            1.01, y, check.measured, transform=axes.get_yaxis_transform(), va="center", color=color, weight="bold"
        )
        axes.text(1.085, y, f"wanted {check.wanted}", transform=axes.get_yaxis_transform(), va="center")
    axes.axvline(1, color=INK, linewidth=1.2)
    axes.set_yticks(range(len(checks)), [check.what for check in checks])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, max(1.2, *(min(check.share, WORST_SHARE) for check in checks)))
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.invert_yaxis()
    return None


def _missing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes, color=FLOOR)
    axes.set_axis_off()
