"""The files of the plans of the stand-in: a head as NVIDIA's, and the formulas"""

from __future__ import annotations

import ctypes
import json
import struct
from typing import Any

import tensorrt_bindings as real

__all__ = ["HEAD", "compute_capability", "written"]

HEAD = struct.Struct("<4sI16x4B")


def written(plan: dict[str, Any], version: str = real.__version__, tag: bytes = b"ftrt") -> bytes:
    """The file of a plan"""
    numbers = [int(part) for part in version.split(".")[:4]]
    return HEAD.pack(tag, 0, *numbers) + json.dumps({"gpu": compute_capability(), **plan}).encode()


def compute_capability() -> str:
    """Of the GPU that this thread uses, or else of the first"""
    driver = ctypes.CDLL("libcuda.so.1")
    gpu = ctypes.c_int()
    if driver.cuCtxGetDevice(ctypes.byref(gpu)):
        gpu.value = 0
    values = []
    for attribute in (75, 76):
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, gpu)
        values.append(value.value)
    return f"{values[0]}.{values[1]}"
