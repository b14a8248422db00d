"""Plans as values, for decisions that are made of them."""

from __future__ import annotations

from runners.backends.tensorrt.plan import Plan, PlanTensor, Range

__all__ = ["given", "made", "plan"]


def given(
    name: str, shape: tuple[int, ...], *ranges: tuple[tuple[int, ...], ...], datatype: str = "FP32"
) -> PlanTensor:
    """An input; without ranges its shape is the only one"""
    allowed = tuple(Range(*one) for one in ranges) or (Range(shape, shape, shape),)
    return PlanTensor(name, is_input=True, datatype=datatype, shape=shape, ranges=allowed)


def made(name: str, shape: tuple[int, ...], datatype: str = "FP32") -> PlanTensor:
    """An output"""
    return PlanTensor(name, is_input=False, datatype=datatype, shape=shape)


def plan(*tensors: PlanTensor) -> Plan:
    return Plan(tensors, max(len(tensor.ranges) for tensor in tensors))
