"""The Python package of TensorRT for RTX, with what it logs"""

from typing import TYPE_CHECKING

from ...backends.tensorrt.messages import Messages

if TYPE_CHECKING:
    import tensorrt_rtx as trt
else:
    try:
        import tensorrt_rtx as trt
    except ModuleNotFoundError:
        # the package with that name only brings this one and its libraries
        import tensorrt_rtx_bindings as trt

__all__ = ["LOGGER", "trt", "version"]


class Logger(Messages, trt.ILogger):  # type: ignore[misc] # untyped where there are no stubs of it
    """What TensorRT for RTX says"""

    def __init__(self) -> None:
        Messages.__init__(self, "TensorRT-RTX")
        trt.ILogger.__init__(self)


LOGGER = Logger()


def version() -> str:
    """Of the library: its plans are for this one alone"""
    return str(trt.__version__)
