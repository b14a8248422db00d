"""
What the method forward of a TorchScript archive writes to: as in `exported_writes`, and for the same reasons.

PyTorch can tell by itself, and is so careful that a usual network seems to write to its own weights: a batch
normalisation would in training, and what comes out of a list might have come from anywhere. So here branches that
depend on `training` and the like are decided first, and writes are followed back value by value.
"""

from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["changed_by"]

# PyTorch's classes for graphs of TorchScript are not public
_Native = Any

_CONTAINERS = frozenset({"ListType", "DictType", "ClassType", "AnyType"})


def changed_by(module: _Native) -> tuple[frozenset[int], bool]:
    """The arguments of forward whose memory it may write to, and whether it may change the module itself"""
    graph = module.inlined_graph
    _decide_branches(graph, module)
    trace = _Trace(graph)
    written = trace.written()
    return frozenset(place - 1 for place in written if place > 0), 0 in written


def _decide_branches(graph: _Native, module: _Native) -> None:
    """Puts the value of each flag of the module that nothing assigns in its place"""
    nodes = list(_all_nodes(graph))
    assigned = {node.s("name") for node in nodes if node.kind() == "prim::SetAttr"}
    for node in nodes:
        if node.kind() != "prim::GetAttr" or node.output().type().kind() != "BoolType" or node.s("name") in assigned:
            continue
        owner = _owner(node.inputsAt(0), graph, module)
        if owner is not None:
            with graph.insert_point_guard(node):
                value = graph.insertConstant(bool(getattr(owner, node.s("name"))))
            node.output().replaceAllUsesWith(value)
    torch._C._jit_pass_constant_propagation(graph)  # noqa: SLF001 - there is no public way
    torch._C._jit_pass_dce(graph)  # noqa: SLF001


def _owner(value: _Native, graph: _Native, module: _Native) -> _Native | None:
    """The part of the module that a value is, if it is one"""
    names = []
    while value.node().kind() == "prim::GetAttr":
        names.append(value.node().s("name"))
        value = value.node().inputsAt(0)
    if value.debugName() != next(iter(graph.inputs())).debugName():
        return None
    for name in reversed(names):
        module = getattr(module, name)
    return module


def _all_nodes(block: _Native) -> Iterator[_Native]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _all_nodes(inner)


class _Trace:
    """Follows values of a graph back to its inputs, of which the first is the module itself"""

    def __init__(self, graph: _Native) -> None:
        self._inputs = {value.debugName(): place for place, value in enumerate(graph.inputs())}
        self._nodes = list(_all_nodes(graph))
        self._through_blocks: dict[str, list[_Native]] = {}
        self._put_away: list[_Native] = []
        for node in self._nodes:
            for block in node.blocks():
                for value in (*block.inputs(), *node.outputs()):
                    sources = self._through_blocks.setdefault(value.debugName(), list(node.inputs()))
                    sources += block.outputs()
            if node.kind() == "prim::SetAttr" or any(_holds(value) for value in _arguments(node, only_written=True)):
                self._put_away += node.inputs()

    def written(self) -> set[int]:
        places: set[int] = set()
        for node in self._nodes:
            if node.kind() == "prim::SetAttr":
                places |= self._origins(node.inputsAt(0)) & {0}
            for value in _arguments(node, only_written=True):
                places |= self._origins(value)
        return places

    def _origins(self, value: _Native) -> set[int]:
        places: set[int] = set()
        waiting, seen = [value], {value.debugName()}
        while waiting:
            value = waiting.pop()
            if value.debugName() in self._inputs:
                places.add(self._inputs[value.debugName()])
            elif value.node().kind() == "prim::Constant" and value.type().kind() == "TensorType":
                places.add(0)
            for source in self._sources(value):
                if source.debugName() not in seen:
                    seen.add(source.debugName())
                    waiting.append(source)
        return places

    def _sources(self, value: _Native) -> list[_Native]:
        """The values that this one may share memory with"""
        through = self._through_blocks.get(value.debugName(), [])
        # what was put into a list may come out of any other
        held = self._put_away if _holds(value) and value.node().kind() != "prim::GetAttr" else []
        if value.debugName() in self._inputs or value.node().kind() == "prim::Param":
            return [*through, *held]
        return [*through, *held, *_arguments(value.node(), only_written=False)]


def _holds(value: _Native) -> bool:
    return value.type().kind() in _CONTAINERS


def _arguments(node: _Native, *, only_written: bool) -> list[_Native]:
    """Those that a node writes to, or that its results share memory with"""
    if "(no schema)" in node.schema():
        return [] if only_written else list(node.inputs())
    stated = torch._C.parse_schema(node.schema()).arguments  # noqa: SLF001
    return [
        value
        for argument, value in zip(stated, node.inputs(), strict=False)
        if argument.alias_info and (argument.alias_info.is_write or not only_written)
    ]
