"""What a plan is built of: a network that was read from an ONNX file, and the profile for it"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ConfigInvalid
from .recipe import Recipe, profile_of, values_of
from .shapes import dims

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .library import trt
    from .plan import Range

__all__ = ["add_profile", "parse"]


def parse(parser: trt.OnnxParser, source: Path, why: Callable[[], str]) -> None:
    """Raises where the library cannot read it"""
    if parser.parse_from_file(str(source)):
        return
    untyped: Any = parser
    errors = [untyped.get_error(index) for index in range(parser.num_errors)]
    texts = [f"node {error.node()} ({error.node_name()}): {error.desc()}" for error in errors]
    raise ConfigInvalid(f"TensorRT cannot read '{source}': {'; '.join(texts) or why()}")


def add_profile(
    builder: trt.Builder,
    network: trt.INetworkDefinition,
    config: trt.IBuilderConfig,
    recipe: Recipe,
    why: Callable[[], str],
) -> None:
    """The one that the recipe says, where the network needs one"""
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    all_shapes = {tensor.name: dims(tensor.shape, why) for tensor in inputs}
    hold_shapes = {tensor.name for tensor in inputs if tensor.is_shape_tensor}
    shapes = profile_of(
        recipe, {name: shape for name, shape in all_shapes.items() if name not in hold_shapes}, known=all_shapes
    )
    values = values_of(recipe, {name: all_shapes[name] for name in sorted(hold_shapes)})
    if not shapes and not values:
        return
    profile = builder.create_optimization_profile()
    for take, ranges in ((profile.set_shape, shapes), (profile.set_shape_input, values)):
        for name, allowed in ranges.items():
            _state(take, name, allowed)
    if config.add_optimization_profile(profile) < 0:
        raise ConfigInvalid(f"TensorRT refuses the profile {shapes | values}: {why()}")


def _state(take: Callable[..., object], name: str, allowed: Range) -> None:
    """The module makes shapes of tuples by itself"""
    take(name, allowed.least, allowed.best, allowed.most)
