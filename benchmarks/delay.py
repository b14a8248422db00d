"""How precise `max_queue_delay_microseconds` is: how much later, or earlier, than asked a lone request is answered.

    python -m benchmarks.delay [--quick] [--seconds S] [--save]

One connection, a preferred batch size that is never reached: every request waits for the whole delay. The error is its
latency minus the delay minus the median latency of the same model without a delay (kept off the io threads with the
parameter `kushi.inline`, since a model with a delay is not executed there either).
"""

from __future__ import annotations

from dataclasses import asdict

from benchmarks import loadgen
from benchmarks.loadgen import OpenLoop, Quantiles
from benchmarks.models import Entry, write_repository
from benchmarks.options import BUILD, Options, Plan, parse
from benchmarks.outcome import Outcome, Table, progress, run_part
from benchmarks.payload import binary_request
from benchmarks.server import Server

__all__ = ["PART", "measure"]

PART = "delay"
MODEL = "add_sub"
DELAYS_US = (0, 500, 1000, 5000, 20000)
SPACING_US = 2000


def measure(options: Options) -> Outcome:
    plan = options.plan(full=Plan(10, 1), quick=Plan(2, 1))
    progress(
        PART, f"{len(DELAYS_US)} delays of {plan.seconds:g} s, about {len(DELAYS_US) * (plan.seconds + 1) + 2:.0f} s"
    )
    loadgen.build()
    with Server(write_repository(BUILD / "repository", [_entry(delay) for delay in DELAYS_US])) as server:
        found = {delay: _one_by_one(server, delay, plan.seconds) for delay in DELAYS_US}
    baseline = found[0].service_us.p50
    errors = {delay: _minus(run.service_us, baseline + delay) for delay, run in found.items()}
    return Outcome(
        PART,
        "Precision of the queue delay",
        f"{MODEL}, c = 1, preferred batch size 32, unpinned; {plan.seconds:g} s each",
        Table(
            ("max_queue_delay µs", "p50 latency µs", "error: min µs", "p1", "p50", "p90", "p99", "max"),
            tuple(
                (
                    str(delay),
                    f"{found[delay].service_us.p50:.0f}",
                    *(f"{value:+.0f}" for value in (error.min, error.p1, error.p50, error.p90, error.p99, error.max)),
                )
                for delay, error in errors.items()
            ),
        ),
        notes=(f"The error is latency - delay - {baseline:.0f} µs, the median without a delay.",),
        figures={
            "baseline_us": baseline,
            "errors_us": {str(delay): asdict(error) for delay, error in errors.items()},
        },
    )


def _entry(delay_us: int) -> Entry:
    batching = f"dynamic_batching {{ preferred_batch_size: [ 32 ] max_queue_delay_microseconds: {delay_us} }}"
    parameters = {} if delay_us else {"kushi.inline": "never"}
    return Entry(MODEL, f"delay_{delay_us}", batching=batching, parameters=parameters)


def _one_by_one(server: Server, delay_us: int, seconds: float) -> OpenLoop:
    """Requests come so far apart that each finds the queue empty: the rate is open, the concurrency is 1."""
    return loadgen.open_loop(
        server.port,
        binary_request(f"delay_{delay_us}", MODEL),
        rate=1e6 / (delay_us + SPACING_US),
        connections=1,
        seconds=seconds,
        warmup=0.5,
    )


def _minus(quantiles: Quantiles, offset: float) -> Quantiles:
    return Quantiles(**{name: value - offset for name, value in vars(quantiles).items()})


if __name__ == "__main__":
    run_part(PART, measure, parse(__doc__))
