"""
Which batches a CUDA graph executes. A graph repeats the work of one batch with the shapes, and in the memory, that it
was captured with, so there is one for each number of rows that `kushi.cuda_graphs` names. Plans alone: nothing here
touches a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ConfigInvalid, Unsupported
from ...repository.messages import DataType, ModelConfig
from ...repository.tensors import model_dims, protocol_type

__all__ = ["GRAPHS", "PADDING", "GraphPlan", "check_places", "plan_graphs", "rows_to_compile"]

GRAPHS = "kushi.cuda_graphs"
PADDING = "kushi.cuda_graphs_padding"


@dataclass(frozen=True)
class GraphPlan:
    """The graphs that each instance of a model has"""

    sizes: tuple[int, ...]
    """Their numbers of rows, in order"""
    rows: tuple[tuple[int, ...], ...]
    """The shape of one row of each input, in the order of the configuration"""
    types: tuple[str, ...]
    """The data type of each"""
    pads: bool
    """Whether a batch between two sizes is filled up to the larger one"""

    def size_for(self, shapes: Sequence[Sequence[int] | None]) -> int | None:
        """The rows of the graph that executes inputs of these shapes; none does where one is left out"""
        known = [tuple(shape) for shape in shapes if shape is not None]
        if len(known) < len(self.rows) or not all(known) or len({shape[0] for shape in known}) > 1:
            return None
        if tuple(shape[1:] for shape in known) != self.rows:
            return None
        given = known[0][0]
        if not self.pads:
            return given if given in self.sizes else None
        return next((size for size in self.sizes if size >= given), None) if given else None


def check_places(config: ModelConfig, asked_by: str, places: Sequence[int | None]) -> None:
    """Refuses graphs where an instance has no GPU"""
    if None in places:
        raise ConfigInvalid(
            f"{_subject(config, asked_by)} asks for CUDA graphs, and an instance is on the CPU: use KIND_GPU"
        )


def plan_graphs(config: ModelConfig, asked_by: str, sizes: Sequence[int], *, pads: bool, stateful: bool) -> GraphPlan:
    """
    The graphs of a model whose configuration is complete. `asked_by`: the parameter that asks for them; where it names
    no `sizes`, those are the powers of two up to the largest batch.
    """
    subject, largest = _subject(config, asked_by), config.max_batch_size
    if not largest:
        raise Unsupported(f"{subject}: a CUDA graph has one number of rows, and the model takes no batches")
    if stateful:
        raise Unsupported(f"{subject}: the model changes itself, and to capture a graph it has to run")
    if sizes and max(sizes) > largest:
        raise ConfigInvalid(f"{subject}: expected sizes up to max_batch_size, {largest}, got {max(sizes)}")
    rows = []
    for tensor in config.input:
        dims = model_dims(tensor)
        if tensor.data_type == DataType.Value("TYPE_STRING"):
            raise Unsupported(f"{subject}: input '{tensor.name}' has strings, which no GPU computes on")
        if any(dim < 0 for dim in dims):
            raise Unsupported(
                f"{subject}: a CUDA graph has one shape, and input '{tensor.name}' has dims {[*tensor.dims]}"
            )
        rows.append(dims)
    types = tuple(protocol_type(tensor.data_type) for tensor in config.input)
    return GraphPlan(tuple(sizes) or _powers_of_two(largest), tuple(rows), types, pads)


def rows_to_compile(largest: int) -> tuple[int | None, ...]:
    """
    The sizes of batches to compile for at load, in order; None for a model that takes no batches. PyTorch compiles once
    for one row, once for a number that it takes for fixed, and then for any number.
    """
    return tuple(sorted({1, min(2, largest), largest})) if largest else (None,)


def _powers_of_two(largest: int) -> tuple[int, ...]:
    return (*(1 << power for power in range((largest - 1).bit_length())), largest)


def _subject(config: ModelConfig, key: str) -> str:
    return f"parameter '{key}' of model '{config.name}'"
