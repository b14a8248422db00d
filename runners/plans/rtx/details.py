"""What is inside of a plan of TensorRT for RTX; it is opened on a GPU for that"""

import mmap
from pathlib import Path

from ...backends.tensorrt.cuda import gpu
from ...backends.tensorrt.reading import Details, read_details
from ...errors import EngineFailed
from .library import LOGGER, trt, version

__all__ = ["details_of"]


def details_of(path: Path, gpu_number: int) -> Details:
    """Nothing of it is executed"""
    owner = gpu(gpu_number)
    owner.enter()
    LOGGER.begin()
    try:
        runtime = trt.Runtime(LOGGER)
    except TypeError as error:
        # how its module says that there is none
        raise EngineFailed(f"TensorRT-RTX cannot be used: {LOGGER.why()}") from error
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        engine = runtime.deserialize_cuda_engine(content)
    if engine is None:
        raise EngineFailed(
            f"plan '{path}' cannot be opened by TensorRT-RTX {version()} on {owner.name}, compute capability "
            f"{owner.compute_capability}: {LOGGER.why()}"
        )
    return read_details(engine, trt.LayerInformationFormat.JSON, LOGGER.why)
