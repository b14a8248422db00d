"""Asks other models, in the WAY it is told"""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils

X = np.array([[3, 4, 5, 6]], np.int32)


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        way = pb_utils.get_input_tensor_by_name(request, "WAY").as_numpy()[0].decode()
        told = WAYS[way]()
        told = await told if asyncio.iscoroutine(told) else told
        return pb_utils.InferenceResponse([pb_utils.Tensor("TOLD", np.array([told], np.object_))])


def add_sub(**others):
    asked = {
        "model_name": "add_sub",
        "requested_output_names": ["OUTPUT0", "OUTPUT1"],
        "inputs": [pb_utils.Tensor("INPUT0", X), pb_utils.Tensor("INPUT1", X)],
    }
    return pb_utils.InferenceRequest(**{**asked, **others})


def repeat(count):
    n = pb_utils.Tensor("N", np.array([count], np.int32))
    return pb_utils.InferenceRequest(model_name="repeat", requested_output_names=["I"], inputs=[n])


def misbehaving(what):
    tensor = pb_utils.Tensor("WHAT", np.array([what], np.object_))
    return pb_utils.InferenceRequest(
        model_name="misbehaving", requested_output_names=["SAID", "NUMBER"], inputs=[tensor]
    )


def told(response):
    if response.has_error():
        return f"error {response.error().code()}: {response.error().message()}"
    outputs = sorted(response.output_tensors(), key=lambda tensor: tensor.name())
    return "; ".join(f"{tensor.name()} {tensor.shape()} {tensor.as_numpy().tolist()}" for tensor in outputs)


def raised(function):
    try:
        return f"nothing was raised: {function()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


async def asked():
    return told(await add_sub().async_exec())


async def many():
    responses = await asyncio.gather(*(add_sub(request_id=str(number)).async_exec() for number in range(5)))
    return " | ".join(told(response) for response in responses)


async def async_streamed():
    return " | ".join(told(response) for response in await repeat(3).async_exec(decoupled=True))


def cancelled():
    responses = repeat(100).exec(decoupled=True)
    first = next(responses)
    responses.cancel()
    return told(first)


WAYS = {
    "plainly": lambda: told(add_sub().exec()),
    "async": asked,
    "many": many,
    "one output": lambda: told(add_sub(requested_output_names=["OUTPUT1"]).exec()),
    "a version": lambda: told(add_sub(model_version=1).exec()),
    "no output": lambda: told(add_sub(requested_output_names=[]).exec()),
    "a version that there is not": lambda: told(add_sub(model_version=7).exec()),
    "an output that there is not": lambda: told(add_sub(requested_output_names=["NONE"]).exec()),
    "a model that there is not": lambda: told(add_sub(model_name="none").exec()),
    "a model that is broken": lambda: told(add_sub(model_name="raising").exec()),
    "an input too few": lambda: told(add_sub(inputs=[pb_utils.Tensor("INPUT0", X)]).exec()),
    "another type": lambda: told(
        add_sub(inputs=[pb_utils.Tensor("INPUT0", X), pb_utils.Tensor("INPUT1", X.astype(np.float32))]).exec()
    ),
    "another shape": lambda: told(
        add_sub(inputs=[pb_utils.Tensor(name, X[0]) for name in ("INPUT0", "INPUT1")]).exec()
    ),
    "raise": lambda: told(misbehaving("raise empty").exec()),
    "code": lambda: told(misbehaving("code UNAVAILABLE").exec()),
    "strings": lambda: told(misbehaving("str").exec()),
    "streamed": lambda: " | ".join(told(response) for response in repeat(3).exec(decoupled=True)),
    "streamed to nothing": lambda: " | ".join(told(response) for response in repeat(0).exec(decoupled=True)),
    "streamed to an error": lambda: " | ".join(told(response) for response in repeat(-1).exec(decoupled=True)),
    "streamed from a plain model": lambda: " | ".join(told(response) for response in add_sub().exec(decoupled=True)),
    "streamed and awaited": async_streamed,
    "a decoupled model plainly": lambda: raised(lambda: told(repeat(1).exec())),
    "cancelled": cancelled,
    "is ready": lambda: str([pb_utils.is_model_ready(name) for name in ("add_sub", "none", "raising")]),
    "version is ready": lambda: str([pb_utils.is_model_ready("add_sub", version) for version in ("1", "2")]),
    "no model": lambda: raised(lambda: pb_utils.InferenceRequest(requested_output_names=[], inputs=[])),
    "no inputs": lambda: raised(lambda: told(add_sub(inputs=[]).exec())),
    "itself by a wrong type": lambda: raised(lambda: add_sub(model_name=3)),
    "response of a request": lambda: raised(lambda: add_sub().get_response_sender()),
}
