"""
Where Kushi answers otherwise than tritonserver 2.51 with the same models, and why.

A row holds both answers, each as a status and a regular expression that is found in the body, so that it fails when one
of the two changes.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np
import pytest

from tests.peer.pair import Pair, Request, generate, get, infer
from tests.peer.test_python_asking import ask
from tests.peer.test_python_errors import misbehave
from tests.raw_http import Connection

pytestmark = pytest.mark.timeout(400)

SILENCE_S: Final = 2.0
FORGOTTEN: Final = (0, "")
"""No answer, ever"""


class Difference(NamedTuple):
    request: Request
    triton: tuple[int, str]
    kushi: tuple[int, str]
    why: str


ROW: Final = np.array([[3, 4, 5, 6]], np.int32)
X: Final = np.array([[0.5]], np.float32)
ONE: Final = np.array([1], np.int32)
NOTHING_SET: Final = "unexpected deadlock, at least one output is not set"
WHOLE_ERROR: Final = "the code and the text are those that a client would get"


def texts(model: str, text: str, *outputs: str) -> Request:
    return infer(model, {"TEXT": np.array([[text]], object)}, outputs=outputs)


def told(text: str) -> tuple[int, str]:
    """By the model `asking`"""
    return 200, re.escape(text)


DIFFERENCES: Final = {
    "execute returns None": Difference(
        misbehave("none"),
        FORGOTTEN,
        (500, "Expected a list in the execute return, found type '<class 'NoneType'>'"),
        "a client that waits for ever is no answer",
    ),
    "execute returns a None for a response": Difference(
        misbehave("list of none"),
        FORGOTTEN,
        (500, "Expected an 'InferenceResponse' object in the execute function return list, found type"),
        "a client that waits for ever is no answer",
    ),
    "an output twice": Difference(
        misbehave("same output twice"),
        (200, '"NUMBER".*"data":\\[1\\].*"NUMBER".*"data":\\[2\\]'),
        (200, '"NUMBER"[^}]*"data":\\[1\\]\\}\\]\\}$'),
        "an answer has each output once: the first, which clients take of Triton's",
    ),
    "a list for an array": Difference(
        misbehave("list for an array"),
        (500, "TypeError: __init__\\(\\): incompatible constructor arguments"),
        (500, "TypeError: expected an array of NumPy's for tensor 'NUMBER', got list"),
        "it says what is wrong",
    ),
    "a number of NumPy's for an array": Difference(
        misbehave("number of NumPy"),
        (500, "TypeError: __init__\\(\\): incompatible constructor arguments"),
        (500, "TypeError: expected an array of NumPy's for tensor 'NUMBER', got int32"),
        "it says what is wrong",
    ),
    "arrays for tensors": Difference(
        misbehave("outputs that are none"),
        (500, "TypeError: __init__\\(\\): incompatible constructor arguments"),
        (500, "TypeError: expected a Tensor in output_tensors, got ndarray"),
        "it says what is wrong",
    ),
    "strings of NumPy's": Difference(
        misbehave("str of NumPy"),
        (500, "TritonModelException: NumPy dtype is not supported\\."),
        (200, '"data":\\["text"\\]'),
        "they can be sent",
    ),
    "a type that cannot be sent": Difference(
        misbehave("complex"),
        (500, "NumPy dtype is not supported\\."),
        (500, "NumPy dtype is not supported: complex128"),
        "it names the type",
    ),
    "parameters of a response": Difference(
        misbehave("parameters"),
        (500, "incompatible constructor arguments"),
        (200, '"parameters":\\{.*"count":3'),
        "newer than 2.51",
    ),
    "an exception in a coroutine": Difference(
        infer("gather", {"X": np.array([-1], np.float32)}),
        (500, 'X must not be negative\\\\n\\\\nAt:\\\\n  [^ ]*: answer\\\\n"}$'),
        (500, 'X must not be negative\\\\n\\\\nAt:\\\\n  [^ ]*: answer\\\\n  [^ ]*: execute\\\\n"}$'),
        "all the lines that it has passed",
    ),
    "a required input that is missing beside an optional one": Difference(
        infer("optional", {"SECOND": ONE}),
        (200, '"data":\\["'),
        (400, "missing required input\\(s\\) \\['FIRST'\\]"),
        "2.51 counts the inputs and does not look at their names",
    ),
    "generate that gives more": Difference(
        generate("repeat", {"N": 3}),
        (200, "generate expects model to produce exactly 1 response"),
        (500, "generate expects model to produce exactly 1 response"),
        "an error has the status of one",
    ),
    "generate that ends with an error": Difference(
        generate("shout", {"TEXT": ""}),
        (400, "there is nothing to shout"),
        (500, "there is nothing to shout"),
        "the status is that of the error, as by infer",
    ),
    "generate_stream that begins with an error": Difference(
        generate("shout", {"TEXT": ""}, stream=True),
        (400, "there is nothing to shout"),
        (500, "there is nothing to shout"),
        "the status is that of the error, as by infer",
    ),
    "a model that streams an error to another one": Difference(
        generate("asking_decoupled", {"N": -1}, stream=True),
        (200, '^data: \\{"I":99,[^\n]*\n\n$'),
        (200, '^data: \\{"I":99,[^\n]*\n\ndata: \\{"error":"N must not be negative"\\}\n\n$'),
        "2.51 loses the error",
    ),
    "a stream that another model reads": Difference(
        ask("streamed"),
        told("I [1] [0] | I [1] [1] | I [1] [2] | "),
        told('I [1] [0] | I [1] [1] | I [1] [2]"'),
        "an end without outputs is no response",
    ),
    "a stream that another model awaits": Difference(
        ask("streamed and awaited"),
        told("I [1] [0] | I [1] [1] | I [1] [2] | "),
        told('I [1] [0] | I [1] [1] | I [1] [2]"'),
        "an end without outputs is no response",
    ),
    "a stream that another model reads to an error": Difference(
        ask("streamed to an error"),
        told('I [1] [-1] | "'),
        told("I [1] [-1] | error __ErrorCode.INVALID_ARG: N must not be negative"),
        "2.51 loses the error",
    ),
    "a stream that another model gives up": Difference(
        ask("cancelled"), (500, "has no attribute 'cancel'"), told("I [1] [0]"), "newer than 2.51"
    ),
    "a decoupled model that another one asks plainly": Difference(
        ask("a decoupled model plainly"),
        told("__ErrorCode.INTERNAL: Model repeat - Error when running inference: Model repeat is using the decoupled."),
        told(
            "__ErrorCode.UNSUPPORTED: Model repeat is using the decoupled. The current BLS request call doesn't support"
        ),
        WHOLE_ERROR,
    ),
    "a model that another one does not find": Difference(
        ask("a model that there is not"),
        told("error __ErrorCode.INTERNAL: Model none - Error when running inference: Failed for execute the inference"),
        told("error __ErrorCode.NOT_FOUND: Request for unknown model: 'none' is not found"),
        WHOLE_ERROR,
    ),
    "a version that another model does not find": Difference(
        ask("a version that there is not"),
        told("__ErrorCode.INTERNAL: Model add_sub - Error when running inference: Failed for execute the inference"),
        told("__ErrorCode.NOT_FOUND: Request for unknown model: 'add_sub' version 7 is not found"),
        WHOLE_ERROR,
    ),
    "a broken model that another one asks": Difference(
        ask("a model that is broken"),
        told("Model raising - Error when running inference: Failed for execute the inference request. Model 'raising'"),
        told("Request for unknown model: 'raising' has no available versions"),
        WHOLE_ERROR,
    ),
    "an output that another model does not find": Difference(
        ask("an output that there is not"),
        told("__ErrorCode.INTERNAL: Model add_sub - Error when running inference: unexpected inference output 'NONE'"),
        told("error __ErrorCode.INVALID_ARG: unexpected inference output 'NONE' for model 'add_sub'"),
        WHOLE_ERROR,
    ),
    "an input too few for another model": Difference(
        ask("an input too few"),
        told(
            "__ErrorCode.INTERNAL: Model add_sub - Error when running inference: [request id: <id_unknown>] expected 2"
        ),
        told("error __ErrorCode.INVALID_ARG: [request id: <id_unknown>] expected 2 inputs but got 1 inputs for model"),
        WHOLE_ERROR,
    ),
    "another type for another model": Difference(
        ask("another type"),
        told(
            "__ErrorCode.INTERNAL: Model add_sub - Error when running inference: [request id: <id_unknown>] inference"
        ),
        told("error __ErrorCode.INVALID_ARG: [request id: <id_unknown>] inference input 'INPUT1' data-type is 'FP32'"),
        WHOLE_ERROR,
    ),
    "the code of another model's error": Difference(
        ask("code"),
        told("error __ErrorCode.INTERNAL: code UNAVAILABLE"),
        told("error __ErrorCode.UNAVAILABLE: code UNAVAILABLE"),
        "what is handed on keeps its status",
    ),
    "a request that a model makes without a model": Difference(
        ask("no model"),
        told("TypeError: __init__(): incompatible constructor arguments"),
        told("TypeError: an InferenceRequest needs model_name"),
        "it says what is wrong",
    ),
    "the response sender of a request that a model makes": Difference(
        ask("response of a request"),
        told("nothing was raised: <c_python_backend_utils.InferenceResponseSender object"),
        told("TritonModelException: a request that a model has made itself has no response sender"),
        "nobody would get its responses",
    ),
    "the readiness of a broken model": Difference(
        get("/v2/models/raising/ready"),
        (400, "Model version not ready"),
        (404, "Request for unknown model: 'raising' has no available versions"),
        "it says that waiting is of no use",
    ),
    "what an ensemble adds to its answers": Difference(
        infer("not_all_mapped", {"ONE": ONE}),
        (200, '"parameters":\\{"sequence_id":0,"sequence_start":false,"sequence_end":false\\}'),
        (200, '"model_version":"1","outputs"'),
        "they belong to no sequence",
    ),
    "an output of an ensemble that is asked for alone": Difference(
        texts("both_lengths", "x" * 30, "LOUD"),
        (400, NOTHING_SET),
        (200, "XXXXX"),
        "2.51 counts steps that nobody needs",
    ),
    "an ensemble in an ensemble that leaves an output unused": Difference(
        texts("nested", "abc"),
        (400, f"in ensemble 'nested', in ensemble 'both_lengths', .*{NOTHING_SET}"),
        (200, '"data":\\[3\\]'),
        "2.51 counts steps that nobody needs",
    ),
    "an output of an ensemble that no step has made": Difference(
        infer("sometimes_answered", {"X": ONE * 0}),
        (200, '"outputs":\\[\\{"name":"A"[^}]*\\}\\]'),
        (400, f"in ensemble 'sometimes_answered', .*{NOTHING_SET}"),
        "whoever asks for an output gets it, or an error",
    ),
    "an input of an ensemble that is missing beside an optional one": Difference(
        infer("optional_input", {"TWO": ONE}),
        (400, NOTHING_SET),
        (400, "missing required input\\(s\\) \\['ONE'\\]"),
        "2.51 counts the inputs and does not look at their names",
    ),
}


@pytest.mark.parametrize("difference", DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_known_difference(pair: Pair, difference: Difference) -> None:
    for address, (status, text) in ((pair.triton, difference.triton), (pair.kushi, difference.kushi)):
        request = difference.request
        with Connection(address, SILENCE_S if status == 0 else 30.0) as connection:
            if status == 0:
                with pytest.raises(TimeoutError):
                    connection.ask(request.method, request.path, request.headers, request.body)
                continue
            answer = connection.ask(request.method, request.path, request.headers, request.body)
        body = answer.body.decode()
        assert answer.status == status, body
        assert re.search(text, body), body
