"""
What an exported program writes to.

Memory of a request must not change under its caller, and weights that change belong to one instance alone. The
operators say which of their arguments they write to, and with which their results share memory; so every write is
followed back to the inputs of the graph, weights among them.
"""

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

__all__ = ["changed_inputs"]

# what is between an argument of an operator and the nodes in it
_Value = Any


def changed_inputs(exported: torch.export.ExportedProgram) -> set[str]:
    """The names of the inputs of the graph whose memory the program may write to"""
    signature = exported.graph_signature
    states = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target}
    changed = set(signature.user_inputs_to_mutate.values())
    changed |= {states[target] for target in signature.buffers_to_mutate.values()}
    for node in exported.graph.nodes:
        for written in _written(node):
            changed |= _origins(written)
    return changed


def _origins(node: Node) -> set[str]:
    found: set[str] = set()
    waiting, seen = [node], {node}
    while waiting:
        origin = waiting.pop()
        if origin.op == "placeholder":
            found.add(origin.name)
        new = [shared for shared in _shared(origin) if shared not in seen]
        waiting += new
        seen.update(new)
    return found


def _written(node: Node) -> Iterator[Node]:
    if isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001 - the class has no public name
        yield from _arguments(node, only_written=True)
    elif any(_mutates(inner) for inner in _subgraphs(node)):
        yield from node.all_input_nodes


def _shared(node: Node) -> Iterator[Node]:
    """The values whose memory the results of a node may be in"""
    if isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001
        yield from _arguments(node, only_written=False)
    elif node.target is operator.getitem or any(True for _ in _subgraphs(node)):
        yield from node.all_input_nodes


def _arguments(node: Node, *, only_written: bool) -> Iterator[Node]:
    stated = node.target._schema.arguments  # noqa: SLF001 - as above
    by_name = {argument.name: argument for argument in stated}
    given = [*zip(stated, node.args, strict=False), *((by_name[name], value) for name, value in node.kwargs.items())]
    for argument, value in given:
        if argument.alias_info and (argument.alias_info.is_write or not only_written):
            yield from _nodes(value)


def _nodes(value: _Value) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _nodes(item)


def _subgraphs(node: Node) -> Iterator[GraphModule]:
    """The graphs that an operator of a higher order runs"""
    for argument in node.all_input_nodes if node.op == "call_function" else ():
        inner = getattr(node.graph.owning_module, str(argument.target), None) if argument.op == "get_attr" else None
        if isinstance(inner, GraphModule):
            yield inner


def _mutates(graph: GraphModule) -> bool:
    return any(
        any(True for _ in _arguments(node, only_written=True))
        if isinstance(node.target, torch._ops.OpOverload)  # noqa: SLF001
        else any(_mutates(inner) for inner in _subgraphs(node))
        for node in graph.graph.nodes
    )
