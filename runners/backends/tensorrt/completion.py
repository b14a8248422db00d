"""
What config.pbtxt leaves open, taken from a plan, and what it states, held against it. Rules and texts are Triton's:
whether there are batches follows from the dimensions that are stated, and their largest size from the profiles.
"""

from collections.abc import Sequence
from dataclasses import replace

from ...errors import ConfigInvalid, Unsupported
from ...repository.messages import DataType, ModelConfig, ModelInput, ModelOutput
from ...repository.tensors import TensorInfo, config_type, model_dims
from .plan import Plan, PlanTensor
from .profiles import largest_batch

__all__ = ["check_shape_tensors", "complete", "infos"]

_ANY = -1


def complete(written: ModelConfig, plan: Plan, profiles: Sequence[int]) -> ModelConfig:
    """`written` with maximum batch size, scheduler, inputs and outputs filled in"""
    config = ModelConfig()
    config.CopyFrom(written)
    _complete_batching(config, plan, largest_batch(plan, profiles))
    if not config.input:
        config.input.extend(ModelInput(name=tensor.name) for tensor in plan.inputs)
    if not config.output:
        config.output.extend(ModelOutput(name=tensor.name) for tensor in plan.outputs)
    _complete_tensors(_tensors(config), plan.tensors, batched=config.max_batch_size > 0)
    return config


def _complete_batching(config: ModelConfig, plan: Plan, most: int) -> None:
    stated = [tensor for tensor in _tensors(config) if model_dims(tensor)]
    batched = [_has_batch(tensor, plan, config.name) for tensor in stated]
    if len(set(batched)) > 1:
        raise ConfigInvalid(
            f"unable to autofill for '{config.name}', model tensor configurations are contradicting each other in "
            "terms of whether batching is supported"
        )
    if any(batched) and most == 0:
        raise ConfigInvalid(
            f"autofill failed for model '{config.name}': model tensor shape configuration hints for dynamic batching "
            "but the underlying engine doesn't support batching."
        )
    if (stated and not any(batched)) or any(map(_holds_shapes, plan.tensors)):
        most = 0
    if config.max_batch_size == 0:
        config.max_batch_size = most
    elif config.max_batch_size > most:
        raise ConfigInvalid(
            f"autofill failed for model '{config.name}': configuration specified max-batch {config.max_batch_size} but "
            f"TensorRT engine only supports max-batch {most}"
        )
    if most > 1 and config.WhichOneof("scheduling_choice") is None:
        config.dynamic_batching.SetInParent()


def _holds_shapes(tensor: PlanTensor) -> bool:
    return bool(tensor.values) or tensor.on_host


def _tensors(config: ModelConfig) -> list[ModelInput | ModelOutput]:
    return [*config.input, *config.output]


def _has_batch(tensor: ModelInput | ModelOutput, plan: Plan, model: str) -> bool:
    own = _of(tensor, plan, model)
    return len(own.shape) == len(model_dims(tensor)) + 1


def _of(tensor: ModelInput | ModelOutput, plan: Plan, model: str) -> PlanTensor:
    is_input = isinstance(tensor, ModelInput)
    known = plan.inputs if is_input else plan.outputs
    found = next((own for own in known if own.name == tensor.name), None)
    if found is None:
        role, names = "input" if is_input else "output", ", ".join(sorted(own.name for own in known))
        raise ConfigInvalid(
            f"unexpected inference {role} '{tensor.name}' for model '{model}', allowed {role}s are: {names}"
        )
    return found


def _complete_tensors(stated: Sequence[ModelInput | ModelOutput], own: Sequence[PlanTensor], *, batched: bool) -> None:
    by_name = {tensor.name: tensor for tensor in own}
    for tensor in stated:
        found = by_name.get(tensor.name)
        if found is None:
            continue
        if tensor.data_type == DataType.Value("TYPE_INVALID"):
            tensor.data_type = config_type(found.datatype)
        if not tensor.dims:
            dims = found.shape[1:] if batched else found.shape
            tensor.dims.extend(dims or [1])
            if not dims:
                tensor.reshape.SetInParent()
        if _holds_shapes(found):
            tensor.is_shape_tensor = True


def infos(config: ModelConfig, tensors: Sequence[PlanTensor]) -> list[TensorInfo]:
    """
    The tensors as the check of the configuration takes them: a dimension that only one of both leaves open fits, and
    the first one is that of the batch
    """
    stated = {tensor.name: model_dims(tensor) for tensor in _tensors(config)}
    return [_info(tensor, stated.get(tensor.name), batched=config.max_batch_size > 0) for tensor in tensors]


def _info(tensor: PlanTensor, stated: Sequence[int] | None, *, batched: bool) -> TensorInfo:
    info = TensorInfo(tensor.name, tensor.datatype, tensor.shape)
    if stated is None or not tensor.shape:
        return info
    own = tensor.shape[1:] if batched else tensor.shape
    if len(own) == len(stated):
        own = tuple(said if _ANY in {dim, said} else dim for dim, said in zip(own, stated, strict=True))
    return replace(info, dims=(_ANY, *own) if batched else own)


def check_shape_tensors(config: ModelConfig, plan: Plan) -> None:
    """Marks of shape tensors are those of the plan, and there are no batches of them"""
    for tensor in _tensors(config):
        own = _of(tensor, plan, config.name)
        role = "input" if own.is_input else "output"
        is_shape = _holds_shapes(own)
        if is_shape and config.max_batch_size > 0:
            raise Unsupported(
                f"{role} '{tensor.name}' for model '{config.name}' is a shape tensor, which has no rows that requests "
                "could be joined by: expected max_batch_size 0"
            )
        if is_shape != tensor.is_shape_tensor:
            wrong = (
                "is a shape tensor but the model configuration doesn't mark it as a shape tensor."
                if is_shape
                else "is incorrectly marked as a shape tensor in the model configuration."
            )
            raise ConfigInvalid(f"{role} '{tensor.name}' for model '{config.name}' {wrong}")
