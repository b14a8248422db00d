"""Executes batches on a program. One object serves any number of instances, each on its own thread."""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ...errors import EngineFailed
from ..python_engine import ModelFailed
from .compiler import NotCompiledError, is_of_compiler
from .device import Lanes
from .graphs import Graphs, capture_on
from .memory import give_back_gpu_memory, give_back_memory
from .modes import modes
from .values import array_of, pick, value_of

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from ..pinned import PinnedBudget
    from .device import Host, Lane
    from .graph_plan import GraphPlan
    from .graphs import Results
    from .names import Place
    from .options import TorchOptions
    from .program import Device, Program

__all__ = ["Plan", "TorchEngine"]


@dataclass(frozen=True)
class Plan:
    """Which values of the program the tensors of the configuration are, in its order"""

    input_places: tuple[Place, ...]
    input_types: tuple[str, ...]
    output_places: tuple[Place, ...]
    output_names: tuple[str, ...]


class TorchEngine:
    """What the native core calls, once per batch; PyTorch gives up the GIL while it computes"""

    def __init__(
        self,
        program: Program,
        plan: Plan,
        device: Device,
        options: TorchOptions,
        *,
        threads: int,
        concurrent: bool,
        budget: PinnedBudget,
        instances: int = 1,
        graphs: GraphPlan | None = None,
    ) -> None:
        """instances: that call this object; `graphs` are captured for each of them; budget: of memory that is pinned"""
        self.concurrent = concurrent
        self.keeps_state = program.stateful
        self.threads = threads
        self._plan = plan
        # a program that chooses its devices takes its inputs from the host, as in Triton, and may be on any GPU
        self._device = device or torch.device("cpu")
        self._uses_gpu = torch.cuda.is_available() if device is None else device.type == "cuda"
        self._options = options
        self._held = _Held(program, Lanes(self._device, instances, budget))
        if self._uses_gpu:
            # at the end of the process the system takes everything back
            weakref.finalize(self, self._held.close).atexit = False
        if graphs is not None:
            self._capture(graphs)

    def execute(self, inputs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        """The wanted outputs of one batch, as arrays and lists of strings"""
        given = zip(self._plan.input_places, self._plan.input_types, inputs, strict=True)
        return self.run({place: value_of(array, of) for place, of, array in given if array is not None}, wanted)

    def run(self, values: Mapping[Place, Any], wanted: Sequence[bool]) -> list[Any]:
        """The same on tensors in the memory of the host, and lists of strings; those that are missing are left out"""
        # Each thread has its own number, and one that was never told takes what another was told last.
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        lane = self._held.lanes.take()
        try:
            return self._outputs(lane, values, wanted)
        except EngineFailed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the model made PyTorch raise
            text = f"PyTorch execute failure: {error}"
            # TorchScript has one error for everything
            if isinstance(error, torch.OutOfMemoryError) or "CUDA out of memory" in text:
                # frames hold what the model had before memory ran out
                traceback.clear_frames(error.__traceback__)
                give_back_memory()
                raise ModelFailed(text) from None
            if self._options.compile and is_of_compiler(error):
                raise NotCompiledError(text) from None
            raise EngineFailed(text) from None
        finally:
            self._held.lanes.give_back(lane)
            if self._options.cache_cleaning and self._uses_gpu:
                give_back_gpu_memory()

    def _outputs(self, lane: Host | Lane, values: Mapping[Place, Any], wanted: Sequence[bool]) -> list[Any]:
        with modes(self._options, lane.context(), uses_gpu=self._uses_gpu):
            results = self._results(lane, values)
            outputs = zip(self._plan.output_places, self._plan.output_names, wanted, strict=True)
            picked = [pick(results, place, name) if asked else None for place, name, asked in outputs]
            return [None if value is None else array_of(value) for value in lane.receive(picked)]

    def _results(self, lane: Host | Lane, values: Mapping[Place, Any]) -> Results:
        graphs = lane.graphs
        size = None if graphs is None else graphs.size_for(values)
        if graphs is not None and size is not None:
            return graphs.run(size, values)
        program = self._held.program
        writes: Container[Place] = program.writes
        if program.signature.takes_dictionary and 0 in program.writes:
            writes = values
        return self._run_program(lane.send(values, writes))

    def _run_program(self, values: Mapping[Place, Any]) -> Results:
        """On values that are on the device"""
        program = self._held.program
        if program.signature.takes_dictionary:
            return program.run([dict(values)])
        return program.run([values.get(index, default) for index, default in enumerate(program.defaults)])

    def _capture(self, plan: GraphPlan) -> None:
        torch.set_num_threads(self.threads)
        for lane in self._held.lanes.own:
            with modes(self._options, lane.context(), uses_gpu=self._uses_gpu):
                lane.graphs = Graphs(plan, self._plan.input_places, lane, self._run_program, capture_on(lane))


class _Held:
    """What an engine gives up when nobody has it any more"""

    def __init__(self, program: Program, lanes: Lanes) -> None:
        self._program: Program | None = program
        self.lanes = lanes

    @property
    def program(self) -> Program:
        assert self._program is not None  # noqa: S101 - the engine is there
        return self._program

    def close(self) -> None:
        self._program = None
        self.lanes.close()
        give_back_memory()
