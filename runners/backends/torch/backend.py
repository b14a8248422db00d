"""Loads PyTorch models: the file checked, its tensors bound to the configuration's, weights once for each device"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock

import torch
from kushi_native import PythonModel

from ...errors import ConfigInvalid
from ...repository.complete import complete
from ...repository.isolation import is_isolated
from ...repository.messages import ModelConfig, ModelInput, ModelOutput
from ...repository.specification import instances_of
from ...repository.tensors import TensorInfo, protocol_type
from ...threads import intra_op_threads
from .. import Backend, Bound, Opened, Placed, Prepared, driver
from ..cores import cores_for_all
from ..pinned import PinnedBudget
from . import exported, script
from .archive import Format, inspect
from .engine import Plan, TorchEngine
from .graph_plan import GraphPlan, plan_graphs, rows_to_compile
from .graphs import CaptureError
from .names import Leaf, Place, bind_inputs, bind_outputs
from .options import (
    TorchOptions,
    check_applicable,
    check_graphs,
    check_sharing,
    import_packages,
    read_options,
)
from .program import Device, Program
from .trial import SIZES, attempt, run_zeros

__all__ = ["TorchBackend"]

_LOG = logging.getLogger(__name__)
_PROCESS_WIDE = Lock()
_SAID: dict[str, tuple[bool, str]] = {}
"""What TorchScript's interpreter was told last, and by which model"""


class TorchBackend(Backend):
    """PyTorch's own library, in the process that makes it: the server's, or that of an isolated model"""

    def gpus(self) -> Sequence[int]:
        return range(torch.cuda.device_count())

    def why_no_gpu(self) -> str:
        if torch.version.cuda is None:
            return f"PyTorch {torch.__version__} is made without CUDA"
        return driver.why_none()

    def places_itself(self) -> bool:
        """The archive keeps the devices that it was saved with"""
        return True

    def prepare(self, model: Placed) -> Prepared:
        options = read_options(model.config)
        check_graphs(model.config, options, model.places)
        import_packages(model.config)
        if is_isolated(model.config):
            check_sharing(model.config, options, len(model.places))
        devices = [_device(gpu, chosen=model.chooses(index)) for index, gpu in enumerate(model.places)]
        return Prepared(
            partial(_Opened, options=options, devices=devices, budget=self.limits.pinned), options.intra_op_threads
        )


class _Opened(Opened):
    """A program on the device of the first instance"""

    def __init__(self, path: Path, *, options: TorchOptions, devices: Sequence[Device], budget: PinnedBudget) -> None:
        self._options = options
        self._budget = budget
        self._devices = devices
        self._is_script = inspect(path) is Format.SCRIPT
        self._open_on = (
            partial(script.load, path)
            if self._is_script
            else partial(exported.load, path, compiled=bool(options.compile))
        )
        self._program = self._open_on(devices[0])
        self._sizes: Sequence[int] = SIZES

    def complete(self, config: ModelConfig, default_max_batch_size: int) -> ModelConfig:
        """Filled in from an exported program; a TorchScript archive says too little of its tensors"""
        signature = self._program.signature
        arguments = [leaf.info for leaf in signature.arguments if leaf.info]
        results = [leaf.info for leaf in signature.results or () if leaf.info]
        return complete(config, arguments, results, default_max_batch_size) if results else config

    def bind(self, config: ModelConfig) -> Bound:
        check_applicable(config, is_script=self._is_script)
        signature = self._program.signature
        plan = Plan(
            input_places=bind_inputs(config, signature),
            input_types=tuple(protocol_type(tensor.data_type) for tensor in config.input),
            output_places=bind_outputs(config, signature),
            output_names=tuple(tensor.name for tensor in config.output),
        )
        options, stateful = self._options, self._program.stateful
        if stateful:
            _LOG.warning(
                "model '%s' keeps a state in itself: what one request leaves there the next one finds, whoever asks. "
                "To serve several streams, take the state as an input and answer it as an output",
                config.name,
            )
        graphs = None
        if asked_by := options.graphs_asked_by:
            graphs = plan_graphs(config, asked_by, options.graph_sizes, pads=options.pads_graphs, stateful=stateful)
        return Bound(
            sessions=partial(self._sessions, config, plan, graphs),
            threads=partial(self._threads, config, plan),
            inputs=_infos(config.input, plan.input_places, signature.arguments) or None,
            outputs=_infos(config.output, plan.output_places, signature.results or ()) or None,
        )

    def _threads(self, config: ModelConfig, plan: Plan) -> int:
        """One row goes through the model also where the configuration says how many: it shows what the model gives"""
        _set_process_wide(self._options, config.name)
        trying = TorchEngine(
            self._program, plan, self._devices[0], self._options, threads=1, concurrent=False, budget=self._budget
        )
        seconds = None
        if not self._program.stateful:
            trial = attempt(trying, config, plan)
            seconds, self._sizes = (trial.seconds, trial.sizes) if trial else (None, ())
        return intra_op_threads(self._options.intra_op_threads, seconds, instances_of(config), cores_for_all(config))

    def _sessions(self, config: ModelConfig, plan: Plan, graphs: GraphPlan | None, threads: int) -> list[PythonModel]:
        stated = self._options.weight_sharing
        shared = not self._program.stateful if stated is None else stated

        def make(program: Program, device: Device, instances: int) -> PythonModel:
            engine = TorchEngine(
                program,
                plan,
                device,
                self._options,
                threads=threads,
                concurrent=shared,
                instances=instances,
                graphs=graphs,
                budget=self._budget,
            )
            if self._options.compile:
                # here, and not while a request waits for it
                for rows in rows_to_compile(config.max_batch_size):
                    run_zeros(engine, config, plan, rows, self._sizes)
            return PythonModel(engine)

        try:
            return _sessions(self._devices, self._program, self._open_on, make, shared=shared)
        except CaptureError as error:
            text = str(error)
        # outside, since the other error holds what the model has taken of the GPU
        raise ConfigInvalid(f"unable to load model '{config.name}': {text}")


def _device(gpu: int | None, *, chosen: bool) -> Device:
    """That of an instance; none where the model chooses it"""
    if chosen:
        return None
    return torch.device("cpu") if gpu is None else torch.device("cuda", gpu)


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
        for key, value, setting in (
            ("ENABLE_JIT_PROFILING", options.jit_profiling, torch._C._jit_set_profiling_mode),  # noqa: SLF001 - there is no public way
            ("ENABLE_JIT_EXECUTOR", options.jit_executor, torch._C._jit_set_profiling_executor),  # noqa: SLF001
            ("ENABLE_TENSOR_FUSER", options.tensor_fuser, torch._C._jit_set_texpr_fuser_enabled),  # noqa: SLF001
        ):
            if value is None:
                continue
            said, by = _SAID.get(key, (value, model))
            if said != value and by != model:
                _LOG.warning(
                    "parameter '%s' of model '%s' is %s and that of '%s' %s: PyTorch has it once in a process, so that "
                    "it is now %s for both",
                    *(key, model, value, by, said, value),
                )
            _SAID[key] = value, model
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
    devices: Sequence[Device],
    program: Program,
    open_on: Callable[[Device], Program],
    make: Callable[[Program, Device, int], PythonModel],
    *,
    shared: bool,
) -> list[PythonModel]:
    """One for all instances, or one for each; those that share a device share its weights where they may"""
    if not shared:
        programs = [program, *map(open_on, devices[1:])]
        return [make(own, device, 1) for own, device in zip(programs, devices, strict=True)]
    models: dict[torch.device, PythonModel] = {}
    for device, count in Counter(devices).items():
        models[device] = make(open_on(device) if models else program, device, count)
    return [models[device] for device in devices] if len(models) > 1 else [*models.values()]
