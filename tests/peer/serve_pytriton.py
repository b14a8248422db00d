"""
A real Triton server with models in Python, for the tests beside this file: serve_pytriton.py HTTP GRPC METRICS

Runs in .venv-triton, on the three ports it is given. Says READY on standard output, and ends when its standard input
does.
"""

import json
import os
import sys
import sysconfig
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, QueuePolicy, Tensor
from pytriton.proxy.types import Request
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig

Array = NDArray[Any]

DATATYPES: dict[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.bytes_,
}


@batch  # type: ignore[untyped-decorator] # of a package in an environment of its own
def add_sub(INPUT0: Array, INPUT1: Array) -> dict[str, Array]:  # noqa: N803 - the names of the tensors
    return {"OUTPUT0": INPUT0 + INPUT1, "OUTPUT1": INPUT0 - INPUT1}


@batch  # type: ignore[untyped-decorator] # of a package in an environment of its own
def identity(**inputs: Array) -> dict[str, Array]:
    return {name.replace("IN", "OUT", 1): tensor for name, tensor in inputs.items()}


@batch  # type: ignore[untyped-decorator] # of a package in an environment of its own
def fails(SECONDS: Array) -> dict[str, Array]:  # noqa: N803
    raise ValueError(f"the model has failed on purpose after {SECONDS.size} rows")


@batch  # type: ignore[untyped-decorator] # of a package in an environment of its own
def slow(SECONDS: Array) -> dict[str, Array]:  # noqa: N803
    time.sleep(float(SECONDS.max()))
    return {"OUTPUT0": SECONDS}


def told(requests: list[Request]) -> list[dict[str, Array]]:
    """The parameters with which each request has arrived"""
    return [{"OUTPUT0": np.array([[json.dumps(request.parameters).encode()]])} for request in requests]


def tensors(names: Iterable[str], dtype: type[np.generic], *shape: int, optional: bool = False) -> list[Tensor]:
    return [Tensor(name=name, dtype=dtype, shape=shape, optional=optional) for name in names]


def bind(triton: Triton) -> None:
    numbers, results = (tensors((f"{name}0", f"{name}1"), np.int32, 16) for name in ("INPUT", "OUTPUT"))
    triton.bind("add_sub", add_sub, numbers, results, config=ModelConfig(max_batch_size=8))

    given, same = [], []
    for name, dtype in DATATYPES.items():
        given += tensors([f"IN_{name}"], dtype, -1, optional=True)
        same += tensors([f"OUT_{name}"], dtype, -1)
    triton.bind("identity", identity, given, same, config=ModelConfig(max_batch_size=8))

    seconds, output = tensors(["SECONDS"], np.float32, 1), tensors(["OUTPUT0"], np.float32, 1)
    for name, function, policy in (
        ("fails", fails, QueuePolicy()),
        ("spare", slow, QueuePolicy()),
        ("slow", slow, QueuePolicy(max_queue_size=1)),
        ("impatient", slow, QueuePolicy(default_timeout_microseconds=1000)),
    ):
        config = ModelConfig(max_batch_size=1, batcher=DynamicBatcher(default_queue_policy=policy))
        triton.bind(name, function, seconds, output, config=config)
    levels = DynamicBatcher(priority_levels=2, default_priority_level=2)
    triton.bind("ranked", slow, seconds, output, config=ModelConfig(max_batch_size=1, batcher=levels))
    triton.bind("told", told, seconds, tensors(["OUTPUT0"], np.bytes_, 1), config=ModelConfig(max_batch_size=1))


READY = "serve_pytriton is ready\n"


def main() -> None:
    # The backend's interpreter must find the library of this Python, not another one of its version.
    libraries = sysconfig.get_config_var("LIBDIR")
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [libraries, os.environ.get("LD_LIBRARY_PATH")]))
    http, grpc, metrics = map(int, sys.argv[1:])
    config = TritonConfig(
        http_address="127.0.0.1",
        grpc_address="127.0.0.1",
        metrics_address="127.0.0.1",
        http_port=http,
        grpc_port=grpc,
        metrics_port=metrics,
    )
    with Triton(config=config, security_config=TritonSecurityConfig(restricted_endpoints=[])) as triton:
        bind(triton)
        triton.run()
        sys.stdout.write(READY)
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
