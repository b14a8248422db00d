"""
CUDA graphs: for which shapes one is recorded, and which one a batch can run with.

A batch runs with the graph of its own shapes. Where `graph_lower_bound` says so it may run with a larger one: what lies
behind its rows is computed as well, and thrown away. Rules and texts are Triton's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ...errors import ConfigInvalid

if TYPE_CHECKING:
    from ...repository.messages import ModelConfig, ModelOptimizationPolicy
    from .plan import Plan, Shape

__all__ = ["GraphShapes", "find", "graph_shapes"]

_SIZES = (1, 2, 3, 4, 6, 8, 12, 16)
"""Where neither sizes of graphs nor preferred sizes of batches are stated"""

Shapes = Mapping[str, "Shape"]


@dataclass(frozen=True)
class GraphShapes:
    """The full shapes of all inputs that one graph is recorded for, and the least ones that it is used for"""

    most: Shapes
    least: Shapes

    def takes(self, shapes: Shapes) -> bool:
        """Whether a batch of these shapes can run with it"""
        return all(
            len(given) == len(self.most[name])
            and all(low <= dim <= high for low, dim, high in zip(self.least[name], given, self.most[name], strict=True))
            for name, given in shapes.items()
        )


def find(graphs: Iterable[GraphShapes], shapes: Shapes) -> GraphShapes | None:
    """The graph of exactly these shapes, or else the smallest that takes them"""
    fitting = [graph for graph in graphs if graph.takes(shapes)]
    exact = next((graph for graph in fitting if graph.most == shapes), None)
    return exact or min(fitting, key=lambda graph: _elements(graph.most), default=None)


def graph_shapes(config: ModelConfig, plan: Plan) -> list[GraphShapes]:
    """Those that the configuration asks for; an error where one says what cannot be"""
    specifications = config.optimization.cuda.graph_spec
    if not specifications:
        return [_of(config, plan, (size, size), {}, {}) for size in _default_sizes(config)]
    return [_stated(config, plan, specification) for specification in specifications]


def _default_sizes(config: ModelConfig) -> list[int]:
    most = config.max_batch_size
    if most == 0:
        return [0]
    preferred = config.dynamic_batching.preferred_batch_size
    sizes = {1, *preferred} if config.HasField("dynamic_batching") else set(_SIZES)
    return sorted(size for size in {*sizes, most} if size <= most)


def _stated(config: ModelConfig, plan: Plan, stated: ModelOptimizationPolicy.Cuda.GraphSpec) -> GraphShapes:
    bounded = stated.HasField("graph_lower_bound")
    lower = stated.graph_lower_bound
    size, least = stated.batch_size, lower.batch_size if bounded else stated.batch_size
    most_size = config.max_batch_size
    if most_size == 0 and (size or least):
        raise ConfigInvalid("graph spec expects 'batch_size' to be 0 if 'max_batch_size' is 0")
    if most_size and not (1 <= size <= most_size and 1 <= least <= most_size):
        raise ConfigInvalid(f"graph spec expects 'batch_size' to be >= 1 and <= {most_size}")
    if least > size:
        raise ConfigInvalid("graph lower bound spec expects 'batch_size' to be <= graph spec 'batch_size'")
    dims = {name: tuple(shape.dim) for name, shape in stated.input.items()}
    lower_dims = {name: tuple(shape.dim) for name, shape in lower.input.items()} if bounded else dims
    for name, shape in dims.items():
        _check_bound(name, shape, lower_dims.get(name))
    return _of(config, plan, (least, size), dims, lower_dims)


def _check_bound(name: str, shape: Shape, lower: Shape | None) -> None:
    if lower is None:
        raise ConfigInvalid(f"graph lower bound spec expects shape for input '{name}'")
    if len(lower) != len(shape):
        raise ConfigInvalid(f"graph lower bound spec expects to have '{len(shape)} dimensions, got {len(lower)}")
    for least, dim in zip(lower, shape, strict=True):
        if least < 0 or dim < 0:
            raise ConfigInvalid(f"graph spec expects input '{name}' to have dimension >= 0")
        if least > dim:
            raise ConfigInvalid(f"graph lower bound spec expects input '{name}' to have dimension <= {dim}")


def _of(config: ModelConfig, plan: Plan, rows: tuple[int, int], dims: Shapes, lower_dims: Shapes) -> GraphShapes:
    """rows: the least and the most"""
    known = {tensor.name for tensor in plan.inputs}
    if strange := sorted({*dims, *lower_dims} - known):
        raise ConfigInvalid(f"graph spec names the input '{strange[0]}', the model has {', '.join(sorted(known))}")
    batched = config.max_batch_size > 0

    def full(count: int, stated: Shapes) -> dict[str, Shape]:
        shapes = {}
        for tensor in plan.inputs:
            own = tensor.shape[1:] if batched else tensor.shape
            shape = stated.get(tensor.name, own)
            if -1 in shape:
                raise ConfigInvalid(
                    f"graph spec leaves open which dimensions input '{tensor.name}' has, the plan has {list(own)}: "
                    "state them in 'input'"
                )
            shapes[tensor.name] = (count, *shape) if batched else tuple(shape)
        return shapes

    return GraphShapes(full(rows[1], dims), full(rows[0], lower_dims))


def _elements(shapes: Shapes) -> int:
    return sum(prod(shape) for shape in shapes.values())
