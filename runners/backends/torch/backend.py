"""Loads PyTorch models: the file checked, its tensors bound to the configuration's, weights once for each device"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock

import torch
from kushi_native import PythonModel

from ...errors import about
from ...repository.backend_config import NO_SETTINGS
from ...repository.complete import check_against_model, complete, default_max_batch_size
from ...repository.labels import read_labels
from ...repository.layout import ModelSource, model_file
from ...repository.messages import ModelConfig, ModelInput, ModelInstanceGroup, ModelOutput
from ...repository.normalize import fill_defaults, fill_instance_groups
from ...repository.specification import instances_of, specify
from ...repository.tensors import TensorInfo, protocol_type, scalar_names
from ...repository.validate import check_instance_groups, check_model, check_tensors
from ...threads import intra_op_threads, usable_cores
from .. import Loaded
from . import exported, script
from .archive import Format, inspect
from .engine import Plan, TorchEngine
from .names import Leaf, Place, Signature, bind_inputs, bind_outputs
from .options import TorchOptions, check_applicable, read_options
from .program import Program
from .trial import attempt

__all__ = ["load"]

_LOG = logging.getLogger(__name__)
_PROCESS_WIDE = Lock()


def load(
    source: ModelSource,
    config: ModelConfig,
    version: int,
    *,
    auto_complete: bool,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> Loaded:
    """Opens one version on every device that its instances are on"""
    started = time.monotonic()
    gpus = range(torch.cuda.device_count())
    with about(source.stated_in):
        config = fill_instance_groups(config, gpus)
        check_instance_groups(config, gpus)
        options = read_options(config)
        path = model_file(source.versions[version], config.default_model_filename)
    kind = inspect(path)
    open_on = partial(script.load if kind is Format.SCRIPT else exported.load, path)
    devices = list(_devices(config))
    program = open_on(devices[0])
    with about(source.stated_in):
        check_applicable(config, is_script=kind is Format.SCRIPT)
        if auto_complete:
            config = _complete(config, program.signature, default_max_batch_size(settings))
        check_model(config, source.name)
        check_tensors(config)
        plan, infos = _bind(config, program.signature)
        _set_process_wide(options, config.name)
        trying = TorchEngine(program, plan, devices[0], options, threads=1, concurrent=False)
        seconds = None if program.stateful else attempt(trying, config, plan)
        threads = intra_op_threads(options.intra_op_threads, seconds, instances_of(config), usable_cores())
        specification = specify(
            config,
            version=version,
            scalars=scalar_names(infos),
            inline=False,
            load_seconds=time.monotonic() - started,
            labels=read_labels(source.path, config),
        )
    shared = not program.stateful if options.weight_sharing is None else options.weight_sharing
    make = partial(TorchEngine, plan=plan, options=options, threads=threads, concurrent=shared)
    return Loaded(specification, _sessions(devices, program, open_on, make, shared=shared), threads)


def _devices(config: ModelConfig) -> Iterator[torch.device]:
    """The device of each instance"""
    for group in config.instance_group:
        on_gpu = group.kind == ModelInstanceGroup.KIND_GPU
        for device in [torch.device("cuda", gpu) for gpu in group.gpus] if on_gpu else [torch.device("cpu")]:
            yield from [device] * group.count


def _complete(config: ModelConfig, signature: Signature, default_max_batch_size: int) -> ModelConfig:
    """Filled in from an exported program; a TorchScript archive says too little of its tensors"""
    arguments = [leaf.info for leaf in signature.arguments if leaf.info]
    results = [leaf.info for leaf in signature.results or () if leaf.info]
    if not results:
        return config
    return fill_defaults(complete(config, arguments, results, default_max_batch_size))


def _bind(config: ModelConfig, signature: Signature) -> tuple[Plan, list[TensorInfo]]:
    """The plan, and what the file says of the tensors, under the names that the configuration has for them"""
    plan = Plan(
        input_places=bind_inputs(config, signature),
        input_types=tuple(protocol_type(tensor.data_type) for tensor in config.input),
        output_places=bind_outputs(config, signature),
        output_names=tuple(tensor.name for tensor in config.output),
    )
    inputs = _infos(config.input, plan.input_places, signature.arguments)
    outputs = _infos(config.output, plan.output_places, signature.results or ())
    if inputs and outputs:
        check_against_model(config, inputs, outputs)
    return plan, [*inputs, *outputs]


def _infos(
    tensors: Sequence[ModelInput | ModelOutput], places: Sequence[Place], leaves: Sequence[Leaf]
) -> list[TensorInfo]:
    bound = [
        (tensor, leaves[place])
        for tensor, place in zip(tensors, places, strict=True)
        if isinstance(place, int) and leaves
    ]
    return [replace(leaf.info, name=tensor.name) for tensor, leaf in bound if leaf.info]


def _set_process_wide(options: TorchOptions, model: str) -> None:
    """What PyTorch has once in a process. As in Triton, the last model decides, and for inter-op threads the first"""
    with _PROCESS_WIDE:
        for value, setting in (
            (options.jit_profiling, torch._C._jit_set_profiling_mode),  # noqa: SLF001 - there is no public way
            (options.jit_executor, torch._C._jit_set_profiling_executor),  # noqa: SLF001
            (options.tensor_fuser, torch._C._jit_set_texpr_fuser_enabled),  # noqa: SLF001
        ):
            if value is not None:
                setting(value)
        wanted = options.inter_op_threads
        if wanted and wanted != torch.get_num_interop_threads():
            try:
                torch.set_num_interop_threads(wanted)
            except RuntimeError:
                _LOG.warning(
                    "parameter 'INTER_OP_THREAD_COUNT' of model '%s' is %d and the process has %d: PyTorch takes it "
                    "once, from the first model that states it",
                    *(model, wanted, torch.get_num_interop_threads()),
                )


def _sessions(
    devices: Sequence[torch.device],
    program: Program,
    open_on: Callable[[torch.device], Program],
    make: Callable[..., TorchEngine],
    *,
    shared: bool,
) -> list[PythonModel]:
    """One for all instances, or one for each; those that share a device share its weights where they may"""
    if not shared:
        programs = [program, *map(open_on, devices[1:])]
        return [PythonModel(make(own, device=device)) for own, device in zip(programs, devices, strict=True)]
    models = {devices[0]: PythonModel(make(program, device=devices[0]))}
    for device in devices:
        if device not in models:
            models[device] = PythonModel(make(open_on(device), device=device))
    return [models[device] for device in devices] if len(models) > 1 else [models[devices[0]]]
