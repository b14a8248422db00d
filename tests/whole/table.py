"""The end of a whole run, for people: parts, failures by name, what was asked again or skipped, the slowest tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .running import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .reading import Found
    from .running import Ran

__all__ = ["lines"]

SLOWEST: Final = 20
WIDTH: Final = 200


def lines(
    parts: Sequence[Ran],
    found: Mapping[str, Found],
    unexplained: Mapping[str, Sequence[str]],
    second_looks: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
) -> Iterator[str]:
    """`found`: by part; `unexplained`: last lines of parts that failed by no test; `notes`: what parts have noted"""
    yield from ["", "=== parts"]
    for part in parts:
        tests = found[part.name]
        counted = f"{tests.passed:6} passed" if tests.passed else ""
        yield f"{part.name:20} {part.seconds:7.1f} s  {part.outcome}  {counted}".rstrip()
    failures = [(name, test, text) for name, one in found.items() for test, text in one.failures.items()]
    if failures or unexplained:
        yield from ["", "=== failures"]
    for name, test, text in failures:
        yield f"{name}: {test}"
        yield f"    {text[:WIDTH]}"
    for name, last in unexplained.items():
        yield f"{name}: its last lines"
        yield from (f"    {line[:WIDTH]}" for line in last)
    if second_looks:
        yield from ["", "=== second looks: these tests were late; mend them before you go on"]
        for look in second_looks:
            yield f"{look['test']}: {'right' if look['right'] else 'wrong'} when asked alone"
            yield f"    {look['late'][:WIDTH]}"
    if any(part.left for part in parts):
        yield from ["", "=== processes that were left behind, and are ended now"]
        yield from (f"{part.name}: {command[:WIDTH]}" for part in parts for command in part.left)
    if notes:
        yield from ["", "=== times, and what this machine could not show", *notes]
    slow = sorted(((s, test) for one in found.values() for test, s in one.seconds.items()), reverse=True)[:SLOWEST]
    if slow:
        yield from ["", "=== slowest", *(f"{seconds:7.1f} s  {test}" for seconds, test in slow)]
    passed, skipped = (sum(getattr(one, name) for one in found.values()) for name in ("passed", "skipped"))
    others = sum(part.outcome in {Outcome.LEFT_OUT, Outcome.TOO_LONG} for part in parts)
    # a form that is read, too
    yield from ["", f"{passed} passed, {len(failures) + len(unexplained) + others} failed, {skipped} skipped"]
