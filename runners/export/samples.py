"""Values for the inputs of a model: rows drawn from examples, or random numbers"""

from collections.abc import Sequence

import torch

from ..backends.torch.datatypes import torch_type
from .tensors import Input

__all__ = ["SIZES", "Samples"]

SIZES = (64, 96)
"""What dimensions that vary are tried with: not so small, nor so odd, that a usual network refuses it"""
_ANY = -1
_SEED = 0


class Samples:
    """Draws the same values in every run"""

    def __init__(self, inputs: Sequence[Input | torch.Tensor], device: torch.device, *, batching: bool) -> None:
        self.inputs = inputs
        self._device = device
        self._batching = batching
        self._random = torch.Generator().manual_seed(_SEED)

    def draw(self, rows: int, size: int = SIZES[0]) -> tuple[torch.Tensor, ...]:
        """One value for each input: `rows` rows, if there are any, and `size` for each dimension that varies"""
        drawn = (
            self._random_numbers(source, rows, size) if isinstance(source, Input) else self._rows_of(source, rows)
            for source in self.inputs
        )
        return tuple(value.to(self._device) for value in drawn)

    def varying(self) -> list[tuple[int, ...]]:
        """For each input the dimensions that vary, that of the batch among them"""
        batch = (0,) if self._batching else ()
        return [
            (*batch, *(len(batch) + place for place, dim in enumerate(source.dims) if dim == _ANY))
            if isinstance(source, Input)
            else batch
            for source in self.inputs
        ]

    def _rows_of(self, example: torch.Tensor, rows: int) -> torch.Tensor:
        if not self._batching:
            return example
        return example[torch.randint(len(example), (rows,), generator=self._random).to(example.device)]

    def _random_numbers(self, stated: Input, rows: int, size: int) -> torch.Tensor:
        batch = [rows] if self._batching else []
        shape = [*batch, *(size if dim == _ANY else dim for dim in stated.dims)]
        dtype = torch_type(stated.datatype)
        if dtype.is_floating_point:
            return torch.randn(shape, generator=self._random).to(dtype)
        # integers are indices and masks mostly: any model takes these two
        return torch.randint(2, shape, generator=self._random).to(dtype)
