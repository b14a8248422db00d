"""The codecs of MLServer: arrays and texts, encoded by them and read by them, over HTTP and gRPC"""

import json
import sys
import urllib.request

import grpc
import numpy as np
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.grpc import converters, dataplane_pb2_grpc
from mlserver.types import InferenceRequest, InferenceResponse

FIRST = np.arange(16, dtype=np.int32)[None]
SECOND = np.ones((1, 16), np.int32)
TEXTS = ["one", "zwei", "三"]


def over_http(http: str, model: str, request: InferenceRequest) -> InferenceResponse:
    body = request.model_dump_json(exclude_none=True).encode()
    asked = urllib.request.Request(f"http://{http}/v2/models/{model}/infer", body, {"content-type": "application/json"})
    with urllib.request.urlopen(asked) as answered:
        return InferenceResponse(**json.load(answered))


def over_grpc(address: str, model: str, request: InferenceRequest) -> InferenceResponse:
    with grpc.insecure_channel(address) as channel:
        stub = dataplane_pb2_grpc.GRPCInferenceServiceStub(channel)
        message = converters.ModelInferRequestConverter.from_types(request, model_name=model, model_version="")
        return converters.ModelInferResponseConverter.to_types(stub.ModelInfer(message))


def main(http: str, address: str) -> None:
    numbers = InferenceRequest(
        inputs=[NumpyCodec.encode_input(name, values) for name, values in (("INPUT0", FIRST), ("INPUT1", SECOND))]
    )
    for ask, at in ((over_http, http), (over_grpc, address)):
        answer = ask(at, "add_sub", numbers)
        found = {one.name: NumpyCodec.decode_output(one) for one in answer.outputs}
        assert (found["OUTPUT0"] == FIRST + SECOND).all()
        # JSON has texts, and a message bytes
        texts = StringCodec.encode_input("INPUT0", TEXTS, use_bytes=ask is over_grpc)
        answer = ask(at, "identity_bytes", InferenceRequest(inputs=[texts]))
        assert StringCodec.decode_output(answer.outputs[0]) == TEXTS


main(*sys.argv[1:])
