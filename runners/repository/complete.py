"""
Auto-completion from the model file: what config.pbtxt leaves open is taken from the tensors that the model declares,
and what it states is held against them. Rules and messages are those of Triton's ONNX Runtime backend.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..errors import ConfigInvalid
from .files import read_file
from .messages import DataType, ModelConfig, ModelInput, ModelOutput
from .tensors import TensorInfo, config_type, model_dims, protocol_type, shape_text

__all__ = ["check_against_model", "complete", "completes_itself", "default_max_batch_size"]

_LOG = logging.getLogger(__name__)
_DEFAULT_MAX_BATCH_SIZE = 4
_ANY = -1


def default_max_batch_size(settings: Mapping[str, str]) -> int:
    """What a model that takes batches gets where nothing is said, by the settings of its backend"""
    return int(settings.get("default-max-batch-size", _DEFAULT_MAX_BATCH_SIZE))


def completes_itself(path: Path) -> bool:
    """Whether the code of a Python model may change its configuration when it is loaded"""
    return b"auto_complete_config" in read_file(path, "Python file")


def complete(
    written: ModelConfig,
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    default_max_batch_size: int = _DEFAULT_MAX_BATCH_SIZE,
) -> ModelConfig:
    """`written` with maximum batch size, scheduler, inputs and outputs filled in; as it is when it names both"""
    config = ModelConfig()
    config.CopyFrom(written)
    if config.input and config.output:
        return config
    for tensor in (*(() if config.input else inputs), *(() if config.output else outputs)):
        if tensor.any_rank:
            raise ConfigInvalid(
                f"autofill failed for model '{config.name}': the model file does not say how many dimensions tensor "
                f"'{tensor.name}' has, expected the inputs and outputs in config.pbtxt"
            )
    _complete_batching(config, [*inputs, *outputs], default_max_batch_size)
    if not config.input:
        config.input.extend(ModelInput(name=t.name, data_type=config_type(t.datatype)) for t in inputs)
        _complete_dims(config.input, inputs, config.max_batch_size)
    if not config.output:
        config.output.extend(ModelOutput(name=t.name, data_type=config_type(t.datatype)) for t in outputs)
        _complete_dims(config.output, outputs, config.max_batch_size)
    return config


def _complete_batching(config: ModelConfig, tensors: Iterable[TensorInfo], default: int) -> None:
    if not all(t.dims and t.dims[0] == _ANY for t in tensors):
        if config.max_batch_size != 0:
            raise ConfigInvalid(
                f"autofill failed for model '{config.name}': model does not support batching while non-zero "
                "max_batch_size is specified"
            )
        return
    if config.max_batch_size == 0:
        config.max_batch_size = default
        _LOG.warning(
            "autofilled max_batch_size to %d for model '%s' since batching is supported but no max_batch_size is "
            "specified in model configuration. Must specify max_batch_size to utilize autofill with a larger max "
            "batch size",
            config.max_batch_size,
            config.name,
        )
    if config.max_batch_size > 1 and config.WhichOneof("scheduling_choice") is None:
        config.dynamic_batching.SetInParent()


def _complete_dims(
    tensors: Iterable[ModelInput | ModelOutput], infos: Sequence[TensorInfo], max_batch_size: int
) -> None:
    for tensor, info in zip(tensors, infos, strict=True):
        dims = info.dims[1:] if max_batch_size > 0 else info.dims
        tensor.dims.extend(dims or [1])
        if not dims and max_batch_size > 0:
            tensor.reshape.SetInParent()


def check_against_model(config: ModelConfig, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> None:
    """Holds a complete configuration against the tensors of the model"""
    declared = {info.name for info in inputs}
    # an optional input has a default in the model file, and is then not among the inputs that it declares
    stated = [tensor.name for tensor in config.input if not tensor.optional or tensor.name in declared]
    if len(stated) != len(inputs):
        raise ConfigInvalid(
            f"unable to load model '{config.name}', configuration expects {len(stated)} inputs, model provides "
            f"{len(inputs)}"
        )
    inputs_by_name, expected = {info.name: info for info in inputs}, set(stated)
    for tensor in config.input:
        if tensor.optional and config.max_batch_size != 0:
            raise ConfigInvalid(
                f"unable to load model '{config.name}', optional input '{tensor.name}' is not supported for models "
                "that support batching"
            )
        if tensor.name in expected:
            _check_tensor(config, tensor, inputs_by_name, "input", exact=False)
    outputs_by_name = {info.name: info for info in outputs}
    for output in config.output:
        _check_tensor(config, output, outputs_by_name, "output", exact=True)


def _check_tensor(
    config: ModelConfig, tensor: ModelInput | ModelOutput, infos: Mapping[str, TensorInfo], role: str, *, exact: bool
) -> None:
    info = infos.get(tensor.name)
    if info is None:
        allowed = ", ".join(sorted(infos))
        raise ConfigInvalid(f"unexpected inference {role} '{tensor.name}', allowed {role}s are: {allowed}")
    if protocol_type(tensor.data_type) != info.datatype:
        raise ConfigInvalid(
            f"unable to load model '{config.name}', configuration expects datatype {DataType.Name(tensor.data_type)} "
            f"for {role} '{tensor.name}', model provides TYPE_{info.datatype}"
        )
    dims = model_dims(tensor)
    if info.any_rank:
        return
    if info.dims:
        _check_dims(config, info, dims, exact=exact)
    elif any(dim != 1 for dim in dims):
        raise ConfigInvalid(
            f"unable to load model '{config.name}', scalar tensor '{tensor.name}', should only provide 1 in the model "
            f"configuration when the model doesn't support batching. Model configuration provided: {shape_text(dims)}."
        )


def _check_dims(config: ModelConfig, info: TensorInfo, dims: tuple[int, ...], *, exact: bool) -> None:
    subject = f"model '{config.name}', tensor '{info.name}'"
    batching = config.max_batch_size > 0
    if batching and info.dims[0] != _ANY:
        raise ConfigInvalid(
            f"{subject}: for the model to support batching the shape should have at least 1 dimension and the first "
            f"dimension must be -1; but shape expected by the model is {shape_text(info.dims)}"
        )
    full = (_ANY, *dims) if batching else dims
    if len(full) == len(info.dims) and all(
        m == c or (m == _ANY and not exact) for m, c in zip(info.dims, full, strict=True)
    ):
        return
    explanation = (
        " (an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making "
        f"complete shape {shape_text(full)})"
        if batching
        else f" (shape {shape_text(full)})"
    )
    advice = ": leave the batch dimension out of dims" if batching and len(dims) == len(info.dims) else ""
    raise ConfigInvalid(
        f"{subject}: the model expects {len(info.dims)} dimensions (shape {shape_text(info.dims)}) but the model "
        f"configuration specifies {len(full)} dimensions{explanation}{advice}"
    )
