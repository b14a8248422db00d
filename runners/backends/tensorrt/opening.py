"""Opens the file of a plan"""

import mmap
from contextlib import suppress
from pathlib import Path

from ...errors import ConfigInvalid, EngineFailed, KushiError
from .cuda import Gpu
from .header import read_header
from .library import LOGGER, runtime, trt, version

__all__ = ["OpenPlan", "open_plan"]


class OpenPlan:
    """A plan in the memory of a GPU. Whoever refers to its engine keeps what opened it"""

    def __init__(self, engine: "trt.ICudaEngine", owner: Gpu) -> None:
        self.engine = engine
        self.owner = owner

    def __del__(self) -> None:
        """What TensorRT has made is freed behind this, on the GPU that the thread has entered"""
        with suppress(KushiError):
            self.owner.enter()


def open_plan(path: Path, owner: Gpu, *, runs_code_of_plans: bool) -> OpenPlan:
    """On this GPU. The error says what the plan is for, and what there is"""
    header = read_header(path)
    if header.is_rtx:
        raise ConfigInvalid(
            f"plan '{path}' was written by {header.written_by}, and plans of TensorRT for RTX are not served: build "
            "one with 'kushi export --to tensorrt' here, or put its ONNX file beside it, as model.onnx"
        )
    owner.enter()
    LOGGER.begin()
    opens = runtime(runs_code_of_plans=runs_code_of_plans)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        engine = opens.deserialize_cuda_engine(content)
    if engine is not None:
        return OpenPlan(engine, owner)
    why = LOGGER.why()
    if "memory" in why.lower():
        raise EngineFailed(f"plan '{path}' cannot be opened on GPU {owner.number}: {why}")
    here = f"TensorRT {'.'.join(map(str, version()))} on {owner.name}, compute capability {owner.compute_capability}"
    raise ConfigInvalid(
        f"plan '{path}' was written by {header.written_by} and cannot be opened by {here}: {why}. A plan is for the "
        "version and the kind of GPU that it was built with: build it here with 'kushi export --to tensorrt', or put "
        "its ONNX file beside it, as model.onnx"
    )
