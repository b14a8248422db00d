"""The code of services that were written for ``bentoml.triton.Runner``, as its documentation and its users write it.

Nothing here knows whose runner it is. ``triton_runner`` is made by whoever runs the code.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from tritonclient.utils import np_to_triton_dtype

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

__all__ = ["GRPC", "HTTP"]

triton_runner: Any = None

ROW = np.arange(16, dtype=np.int32).reshape(1, 16)
ONES = np.ones((1, 16), dtype=np.int32)


async def predict() -> NDArray[Any]:
    InferResult = await triton_runner.add_sub.async_run(ROW, ONES)  # noqa: N806 - as their documentation has it
    output: NDArray[Any] = InferResult.as_numpy("OUTPUT0")
    return output


async def predict_by_name() -> NDArray[Any]:
    result = await triton_runner.add_sub.async_run(INPUT0=ROW, INPUT1=ONES)
    output: NDArray[Any] = result.as_numpy("OUTPUT1")
    return output


async def predict_with(model_name: str = "add_sub") -> NDArray[Any]:
    result = await getattr(triton_runner, model_name).async_run(ROW, ONES)
    output: NDArray[Any] = result.as_numpy("OUTPUT1")
    return output


async def predict_in_parallel() -> list[NDArray[Any]]:
    tasks = [asyncio.create_task(triton_runner.add_sub.async_run(ROW + n, ONES)) for n in range(4)]
    return [result.as_numpy("OUTPUT0") for result in await asyncio.gather(*tasks)]


async def predict_strings() -> list[bytes]:
    words = np.array([[b"fire", "串".encode()]], dtype=np.object_)
    result = await triton_runner.identity_bytes.async_run(words)
    return list(result.as_numpy("OUTPUT0").flatten())


async def predict_with_the_client(client: ModuleType) -> NDArray[Any]:
    inputs = []
    for name, array in (("INPUT0", ROW), ("INPUT1", ONES)):
        given = client.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
        given.set_data_from_numpy(array)
        inputs.append(given)
    outputs = [client.InferRequestedOutput("OUTPUT1")]
    result = await triton_runner.infer("add_sub", inputs=inputs, outputs=outputs, request_id="7")
    assert result.as_numpy("OUTPUT0") is None
    output: NDArray[Any] = result.as_numpy("OUTPUT1")
    return output


async def best_classes_with_the_client(client: ModuleType, **wanted: Any) -> list[list[bytes]]:  # noqa: ANN401 - what the client takes
    inputs = []
    for name, array in (("INPUT0", ROW), ("INPUT1", ONES)):
        given = client.InferInput(name, array.shape, "INT32")
        given.set_data_from_numpy(array)
        inputs.append(given)
    outputs = [client.InferRequestedOutput("OUTPUT0", class_count=2, **wanted), client.InferRequestedOutput("OUTPUT1")]
    result = await triton_runner.infer("add_sub", inputs=inputs, outputs=outputs)
    assert (result.as_numpy("OUTPUT1") == ROW - 1).all()
    best: list[list[bytes]] = result.as_numpy("OUTPUT0").tolist()
    return best


async def predict_with_inputs_of_the_client(client: ModuleType) -> NDArray[Any]:
    words = np.array([[b"fire", b""]], dtype=np.object_)
    given = client.InferInput("INPUT0", words.shape, "BYTES")
    given.set_data_from_numpy(words)
    result = await triton_runner.identity_bytes.async_run(given)
    output: NDArray[Any] = result.as_numpy("OUTPUT0")
    return output


async def mistakes() -> list[str]:
    said = []
    for model, inputs in (("add_sub", (ROW,)), ("missing", (ROW,)), ("add_sub", (ROW.astype(np.float32), ONES))):
        try:
            await getattr(triton_runner, model).async_run(*inputs)
        except Exception as error:  # noqa: BLE001 - whatever the runner raises
            said.append(type(error).__name__)
    return said


async def health() -> list[bool]:
    return [
        await triton_runner.is_server_live(),
        await triton_runner.is_server_ready(),
        await triton_runner.is_model_ready("add_sub"),
        await triton_runner.is_model_ready(model_name="add_sub", model_version="1"),
        await triton_runner.is_model_ready("missing"),
    ]


async def unload_and_load() -> list[bool]:
    ready = []
    await triton_runner.unload_model("add_sub")
    ready.append(await triton_runner.is_model_ready("add_sub"))
    await triton_runner.load_model("add_sub", headers=None)
    ready.append(await triton_runner.is_model_ready("add_sub"))
    return ready


async def messages() -> list[Any]:
    """The management calls as services write them for gRPC, which is BentoML's default."""
    index = await triton_runner.get_model_repository_index()
    config = await triton_runner.get_model_config("add_sub")
    metadata = await triton_runner.get_model_metadata("add_sub", as_json=False)
    statistics = await triton_runner.get_inference_statistics("add_sub")
    server = await triton_runner.get_server_metadata()
    return [
        sorted({model.name for model in index.models}),
        (config.config.name, config.config.max_batch_size, [tensor.name for tensor in config.config.input]),
        [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in metadata.inputs],
        [model.name for model in statistics.model_stats],
        server.name,
    ]


async def json_of_messages() -> list[Any]:
    index = await triton_runner.get_model_repository_index(as_json=True)
    config = await triton_runner.get_model_config("add_sub", as_json=True)
    metadata = await triton_runner.get_model_metadata("add_sub", as_json=True)
    json.dumps([index, config, metadata])
    return [
        sorted({model["name"] for model in index["models"]}),
        config["config"]["max_batch_size"],
        metadata["inputs"],
    ]


async def dictionaries() -> list[Any]:
    """The same as services write them for HTTP."""
    index = await triton_runner.get_model_repository_index(headers=None)
    config = await triton_runner.get_model_config("add_sub")
    metadata = await triton_runner.get_model_metadata("add_sub")
    statistics = await triton_runner.get_inference_statistics(model_name="add_sub")
    return [
        sorted({model["name"] for model in index}),
        (config["name"], config["max_batch_size"]),
        metadata["inputs"],
        [model["name"] for model in statistics["model_stats"]],
    ]


BOTH = [
    predict,
    predict_by_name,
    predict_with,
    predict_in_parallel,
    predict_strings,
    mistakes,
    health,
    unload_and_load,
]
GRPC = [*BOTH, messages, json_of_messages]
HTTP = [*BOTH, dictionaries]
