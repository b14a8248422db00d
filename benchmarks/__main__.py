"""Runs every part of the benchmarks and writes the table and the plot.

python -m benchmarks            about 25 minutes: benchmarks/results/
python -m benchmarks --quick    about 2 minutes: benchmarks/build/, a look and not a result
python -m benchmarks --part startup --part memory
python -m benchmarks --render   only writes table and plot again, from the kept figures
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import delay, grpc_cost, http_cost, interference, memory, python_calls, report, startup, throughput
from benchmarks.options import BUILD, RESULTS, Options, parser
from benchmarks.outcome import Outcome, run_part

PARTS: dict[str, Callable[[Options], Outcome]] = {
    startup.PART: startup.measure,
    memory.PART: memory.measure,
    http_cost.PART: http_cost.measure,
    grpc_cost.PART: grpc_cost.measure,
    throughput.PART: throughput.measure,
    interference.PART: interference.measure,
    delay.PART: delay.measure,
    python_calls.PART: python_calls.measure,
}


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--part", action="append", choices=PARTS, help="only this part; may be repeated")
    flags.add_argument("--render", action="store_true", help="measure nothing")
    given = flags.parse_args()
    save = given.save or not given.quick
    options = Options(given.quick, given.seconds, given.repeats, save)
    draw = report.load_plot()  # before minutes are spent on measuring
    if not given.render:
        for part in given.part or PARTS:
            run_part(part, PARTS[part], options)
    report.write(RESULTS if save else BUILD, tuple(PARTS), draw)


if __name__ == "__main__":
    main()
