"""
The law inside crates, read from what their modules import: python -m tests.module_law

The rooms of `core` stand on one another in the order of `CORE`, and a module of one uses no room above. In every crate
the modules at its top form no circle, but for the few of `CIRCLES`, each of which is one thing in several files.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.crate_law import NATIVE

CRATES = NATIVE / "crates"

CORE = ("base", "model", "request", "schedule", "batch", "execute")
"""The ground floor first"""

CIRCLES: Mapping[str, frozenset[frozenset[str]]] = {
    crate: frozenset(frozenset(circle.split()) for circle in circles)
    for crate, circles in {
        "arrays": ["read strings write"],
        "bindings": ["local_client local_stream"],
        "dataplane": ["orders plane"],
        "engine-onnx": ["options plugin provider", "strings value"],
        "engine-openvino": ["compiled model", "strings tensor"],
        "engine-python": ["engine late outputs"],
        "engine-worker": ["answers calls readiness reading state supervisor worker"],
        "net": ["connections departures door io listen", "net tls"],
        "trace": ["outlet recording sampling spans"],
    }.items()
}

Graph = Mapping[str, frozenset[str]]
"""The modules at the top of a crate, and which of them each uses"""


def graph(crate: Path) -> Graph:
    source = crate / "src"
    root = (source / "lib.rs").read_text()
    modules = {path.stem for path in source.glob("*.rs")} - {"lib"}
    owners = dict(_re_exports(root))
    uses: dict[str, set[str]] = {module: set() for module in modules}
    for path in source.rglob("*.rs"):
        relative = path.relative_to(source)
        module = relative.parts[0].removesuffix(".rs")
        if module in modules and "tests" not in str(relative):
            # tests may use what they like
            code = path.read_text().split("#[cfg(test)]\nmod tests")[0]
            names = {owners.get(name, name) for name in used(code)}
            uses[module] |= (names & modules) - {module}
    return {module: frozenset(names) for module, names in uses.items()}


def used(code: str) -> Iterator[str]:
    """The first names behind `crate::`"""
    code = re.sub(r"//.*", "", code)
    for names in re.findall(r"\bcrate::\{(.*?)\};", code, re.DOTALL):
        # what is nested belongs to a module that is named in front of it
        yield from re.findall(r"(?:^|,)\s*(\w+)", _without_nested(names))
    yield from re.findall(r"\bcrate::(\w+)", code)


def _without_nested(names: str) -> str:
    while (flat := re.sub(r"\{[^{}]*\}", "", names)) != names:
        names = flat
    return names


def _re_exports(root: str) -> Iterator[tuple[str, str]]:
    for module, names in re.findall(r"\buse (\w+)::(\{[^}]*\}|\w+)", root):
        yield from ((name, module) for name in re.findall(r"\w+", names))


def circles(modules: Graph) -> frozenset[frozenset[str]]:
    """Modules that use one another, directly or by others"""
    reached = {module: _reached(modules, module) for module in modules}
    found = (frozenset(other for other in reached[module] if module in reached[other]) for module in modules)
    return frozenset(circle for circle in found if len(circle) > 1)


def _reached(modules: Graph, start: str) -> frozenset[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for module in modules[waiting.pop()] - seen:
            seen.add(module)
            waiting.append(module)
    return frozenset(seen)


def upward(modules: Graph, floors: Iterable[str]) -> Iterator[str]:
    below: set[str] = set()
    for floor in floors:
        for other in sorted(modules[floor] - below):
            yield f"'{floor}' uses '{other}', which stands above it"
        below.add(floor)


def violations() -> Iterator[str]:
    for crate in sorted(CRATES.iterdir()):
        modules = graph(crate)
        for circle in circles(modules) - CIRCLES.get(crate.name, frozenset()):
            yield f"modules of {crate.name} form a circle that is not allowed: {', '.join(sorted(circle))}"
        for circle in CIRCLES.get(crate.name, frozenset()) - circles(modules):
            yield f"modules of {crate.name} form this circle no longer: {', '.join(sorted(circle))}"
        if crate.name == "core":
            yield from upward(modules, CORE)


def main() -> int:
    found = list(violations())
    sys.stdout.writelines(f"{violation}\n" for violation in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
