"""Tensors in regions on a GPU, with the real ``tritonclient`` over HTTP and gRPC.

`CHECKS` are what a server does with them. The same checks run where there is a GPU, and on a driver that stands in for
CUDA's.
"""

from __future__ import annotations

import base64
import re
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pytest
from tritonclient import grpc, http
from tritonclient.utils import InferenceServerException

from tests.contract.cases.case import NOT_UNSIGNED, Code
from tests.cuda_driver import Memory
from tests.serving import GRPC_LINE, START_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.cuda_driver import Gpu
    from tests.serving import Server

__all__ = ["CHECKS", "HANDLE", "INVALID_ARGS", "ROW_BYTES", "WAYS", "Way"]

WAYS: Final = ("http", "grpc")
FIRST: Final = np.arange(16, dtype=np.int32).reshape(1, 16)
SECOND: Final = np.full((1, 16), 3, dtype=np.int32)
ROW_BYTES: Final = FIRST.nbytes
INVALID_ARGS: Final = "failed to register shared memory region: invalid args"
HANDLE: Final = "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"
REFUSED: Final = "failed to register shared memory region 'r': expected "


class Way:
    """A client of a server over one transport"""

    def __init__(self, name: str, server: Server) -> None:
        self.name = name
        self._module: Any = {"http": http, "grpc": grpc}[name]
        port = server.http[1] if name == "http" else int(server.log.wait_for(GRPC_LINE, START_S).group(1))
        self.client = self._module.InferenceServerClient(f"127.0.0.1:{port}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def regions(self, name: str = "", memory: str = "cuda") -> list[dict[str, Any]]:
        """Of all regions or one, sorted by name"""
        if self.name == "http":
            rows: list[dict[str, Any]] = getattr(self.client, f"get_{memory}_shared_memory_status")(name)
            return rows
        answer = getattr(self.client, f"get_{memory}_shared_memory_status")(name)
        rows = [
            {field.name: getattr(row, field.name) for field in row.DESCRIPTOR.fields} for row in answer.regions.values()
        ]
        return sorted(rows, key=lambda row: row["name"])

    def register(self, name: str, memory: Memory, byte_size: int | None = None, device_id: int | None = None) -> None:
        device = memory.gpu.device if device_id is None else device_id
        size = memory.size if byte_size is None else byte_size
        self.client.register_cuda_shared_memory(name, self.handle(memory.handle), device, size)

    def handle(self, encoded: bytes) -> bytes | str:
        """As the client wants it: its JSON takes no bytes"""
        return encoded.decode() if self.name == "http" else encoded

    @contextmanager
    def registered(self, gpu: Gpu, name: str, content: bytes | int) -> Iterator[Memory]:
        with Memory(gpu, content) as memory:
            self.register(name, memory)
            try:
                yield memory
            finally:
                self.client.unregister_cuda_shared_memory(name)

    def input(self, name: str, datatype: str, shape: Sequence[int], region: str, size: int, *, at: int = 0) -> Any:  # noqa: ANN401 - of one of two modules
        made = self._module.InferInput(name, list(shape), datatype)
        made.set_shared_memory(region, size, at)
        return made

    def plain(self, name: str, values: np.ndarray[Any, Any], datatype: str) -> Any:  # noqa: ANN401
        made = self._module.InferInput(name, list(values.shape), datatype)
        made.set_data_from_numpy(values)
        return made

    def output(self, name: str, region: str, size: int, at: int = 0) -> Any:  # noqa: ANN401
        made = self._module.InferRequestedOutput(name)
        if self.name == "http":
            made = self._module.InferRequestedOutput(name, binary_data=False)
        made.set_shared_memory(region, size, at)
        return made

    def identity(self, name: str, size: int, *, at: int = 0, into: str = "", into_at: int = 0) -> Any:  # noqa: ANN401
        """Asks for the bytes of a region, into another one if that is named"""
        asked = self.input("INPUT0", "FP32", (1, size // 4), name, size, at=at)
        outputs = [self.output("OUTPUT0", into, size, into_at)] if into else None
        return self.client.infer("identity_fp32", [asked], outputs=outputs)

    @contextmanager
    def refuses(self, code: Code, text: str) -> Iterator[None]:
        with pytest.raises(InferenceServerException, match=f"^{re.escape(f'[{self._status(code)}] {text}')}$"):
            yield

    def _status(self, code: Code) -> str:
        return str(code.http) if self.name == "http" else f"StatusCode.{code.grpc}"


def regions_are_registered_listed_and_unregistered(way: Way, gpu: Gpu) -> None:
    with Memory(gpu, 256) as memory:
        way.register("b", memory, 64)
        way.register("a", memory)
        rows = [{"name": "a", "device_id": 0, "byte_size": 256}, {"name": "b", "device_id": 0, "byte_size": 64}]
        assert way.regions() == rows
        assert way.regions("b") == rows[1:]
        way.client.unregister_cuda_shared_memory("b")
        way.client.unregister_cuda_shared_memory("b")
        assert way.regions() == rows[:1]
        with way.refuses(Code.NOT_FOUND, "Unable to find cuda shared memory region: 'b'"):
            way.regions("b")
        way.client.unregister_cuda_shared_memory()
        assert way.regions() == []


def what_is_no_memory_of_that_gpu_is_refused(way: Way, gpu: Gpu) -> None:
    with Memory(gpu, 64) as memory:
        with way.refuses(Code.INVALID_ARGUMENT, INVALID_ARGS):
            way.client.register_cuda_shared_memory("r", way.handle(base64.b64encode(bytes(64))), 0, 64)
        # the driver of a GPU may have made it larger
        with way.refuses(Code.INVALID_ARGUMENT, "failed to register shared memory region 'r': invalid args"):
            way.register("r", memory, 1 << 40)
    assert way.regions() == []


def what_no_registration_can_say_is_refused(way: Way, gpu: Gpu) -> None:
    with Memory(gpu, 64) as memory:
        for length in (0, 63, 65):
            text = HANDLE if way.name == "http" else f"{REFUSED}a handle of 64 bytes, got {length}"
            with way.refuses(Code.INVALID_ARGUMENT, text):
                way.client.register_cuda_shared_memory("r", way.handle(base64.b64encode(bytes(length))), 0, 64)
        code, text = Code.INTERNAL, NOT_UNSIGNED
        if way.name == "grpc":
            code, text = Code.INVALID_ARGUMENT, f"{REFUSED}a device_id of 0 or more, got -1"
        with way.refuses(code, text):
            way.register("r", memory, device_id=-1)
    assert way.regions() == []


def _tensor_arrives_whole(way: Way, gpu: Gpu, *, size: int) -> None:
    content = np.random.default_rng(size).bytes(size)
    with way.registered(gpu, "in", bytes(3) + content), way.registered(gpu, "out", size + 3) as out:
        for _ in range(5):
            out.write(bytes(size), 3)
            way.identity("in", size, at=3, into="out", into_at=3)
            assert out.read(3) == content


def _rows_lie_on_a_gpu(way: Way, gpu: Gpu, *, inputs: bool, outputs: bool) -> None:
    """Sums and differences, at offsets"""
    rows = {"INPUT0": FIRST, "INPUT1": SECOND}
    with (
        way.registered(gpu, "in", bytes(4) + FIRST.tobytes() + SECOND.tobytes()),
        way.registered(gpu, "out", 300) as out,
    ):
        asked = [
            way.input(name, "INT32", (1, 16), "in", ROW_BYTES, at=4 + ROW_BYTES * number)
            if inputs
            else way.plain(name, row, "INT32")
            for number, (name, row) in enumerate(rows.items())
        ]
        wanted = [way.output("OUTPUT1", "out", ROW_BYTES, at=5), way.output("OUTPUT0", "out", 100, at=101)]
        answer = way.client.infer("add_sub", asked, outputs=wanted if outputs else None)
        if outputs:
            total = np.frombuffer(out.read(101, ROW_BYTES), np.int32).reshape(1, 16)
            difference = np.frombuffer(out.read(5, ROW_BYTES), np.int32).reshape(1, 16)
            untouched = out.read(0, 5) + out.read(69, 32) + out.read(165)
        else:
            total, difference = answer.as_numpy("OUTPUT0"), answer.as_numpy("OUTPUT1")
            untouched = out.read()
        np.testing.assert_array_equal(total, FIRST + SECOND)
        np.testing.assert_array_equal(difference, FIRST - SECOND)
        assert not any(untouched)


CHECKS: Final[Mapping[str, Callable[[Way, Gpu], None]]] = {
    "inputs_lie_on_a_gpu_at_their_offsets": partial(_rows_lie_on_a_gpu, inputs=True, outputs=False),
    "outputs_lie_on_a_gpu_at_their_offsets": partial(_rows_lie_on_a_gpu, inputs=False, outputs=True),
    "inputs_and_outputs_lie_on_a_gpu_at_their_offsets": partial(_rows_lie_on_a_gpu, inputs=True, outputs=True),
    "a_small_tensor_arrives_whole": partial(_tensor_arrives_whole, size=4),
    "a_tensor_of_100_kb_arrives_whole": partial(_tensor_arrives_whole, size=100_000),
    "a_tensor_of_64_mib_arrives_whole": partial(_tensor_arrives_whole, size=64 << 20),
    **{
        check.__name__: check
        for check in (
            regions_are_registered_listed_and_unregistered,
            what_is_no_memory_of_that_gpu_is_refused,
            what_no_registration_can_say_is_refused,
        )
    },
}
