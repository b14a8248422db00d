"""
Optimisation profiles: which of them an instance has, and which one a batch runs with.

A profile fits where every input is inside of what it allows. Of several that fit, the one whose best dimensions are
the nearest is taken, by the sum of the differences, and the first of equal ones, as in Triton.
"""

from collections.abc import Iterable, Mapping, Sequence

from ...errors import ConfigInvalid, InvalidInput
from .plan import Plan, PlanTensor, Range, Shape

__all__ = ["choose", "largest_batch", "listed"]

Shapes = Mapping[str, Shape]


def listed(stated: Sequence[str], plan: Plan, group: str) -> tuple[int, ...]:
    """The numbers of the profiles that a group names; without any, the first one"""
    numbers = []
    for text in stated or ("0",):
        if not text.isascii() or not text.isdigit():
            raise ConfigInvalid(f"instance group '{group}': unable to parse '{text}', expected the number of a profile")
        number = int(text)
        if number >= plan.profiles:
            raise ConfigInvalid(
                f"instance group '{group}': Can not set the specified optimization profile {text}[{number}]. Expected "
                f"optimization profile index range 0-{plan.profiles - 1}"
            )
        numbers.append(number)
    return tuple(dict.fromkeys(numbers))


def choose(plan: Plan, profiles: Iterable[int], shapes: Shapes, values: Shapes, instance: str) -> int:
    """The profile for a batch of these `shapes`, and `values` of shape tensors; raises where none fits"""
    reasons: dict[int, str] = {}
    distances: dict[int, int] = {}
    for profile in profiles:
        reason = _refusal(plan, profile, shapes, values, instance)
        if reason:
            reasons[profile] = reason
        else:
            distances[profile] = _distance(plan, profile, shapes, values)
    if not distances:
        first, *others = reasons.items()
        text = first[1]
        if others:
            names = " ".join(f"{number}[{number}]" for number in reasons)
            text = (
                f"failed to find any Optimization Profile among [{names}] to support the requested dimensions: {text}"
            )
        raise InvalidInput(text)
    return min(distances, key=lambda profile: distances[profile])


def largest_batch(plan: Plan, profiles: Iterable[int]) -> int:
    """How many rows the profiles take at most"""
    return max((min((_rows(tensor, profile) for tensor in plan.inputs), default=0) for profile in profiles), default=0)


def _rows(tensor: PlanTensor, profile: int) -> int:
    most = (tensor.values or tensor.ranges)[profile].most
    return most[0] if most else 0


def _given(plan: Plan, profile: int, shapes: Shapes, values: Shapes) -> Iterable[tuple[PlanTensor, Range, Shape, str]]:
    for tensor in plan.inputs:
        yield tensor, tensor.ranges[profile], shapes[tensor.name], "shape"
        if tensor.values:
            yield tensor, tensor.values[profile], values[tensor.name], "values"


def _refusal(plan: Plan, profile: int, shapes: Shapes, values: Shapes, instance: str) -> str:
    for tensor, allowed, given, what in _given(plan, profile, shapes, values):
        subject = f"request specifies invalid {what} for input '{tensor.name}' for {instance}. Error details: "
        if len(given) != len(allowed.most):
            return f"{subject}model expected {len(allowed.most)} dimensions but received {len(given)}"
        for index, (dim, least, most) in enumerate(zip(given, allowed.least, allowed.most, strict=True)):
            if not least <= dim <= most:
                return (
                    f"{subject}model expected the {what} of dimension {index} to be between {least} and {most} but "
                    f"received {dim}"
                )
    return ""


def _distance(plan: Plan, profile: int, shapes: Shapes, values: Shapes) -> int:
    return sum(
        abs(dim - best)
        for _, allowed, given, _ in _given(plan, profile, shapes, values)
        for dim, best in zip(given, allowed.best, strict=True)
    )
