"""Does WHAT it is told, as models do by mistake"""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        whats = [pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()[0].decode() for request in requests]
        return RETURNS[whats[0]](whats) if whats[0] in RETURNS else [RESPONSES[what](what) for what in whats]


def response(**tensors):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in tensors.items()])


def said(what):
    return np.array([what], np.object_)


def raises(error):
    raise error


def deep(what):
    return raises(ValueError(what))


ONE = np.array([1], np.int32)
CODES = ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED")
RETURNS = {
    "none": lambda whats: None,
    "no list": lambda whats: response(SAID=said("no list"), NUMBER=ONE),
    "tuple": lambda whats: tuple(response(SAID=said(what), NUMBER=ONE) for what in whats),
    "too few": lambda whats: [],
    "too many": lambda whats: [response(SAID=said(what), NUMBER=ONE) for what in [*whats, "more"]],
    "list of none": lambda whats: [None for _ in whats],
    "list of text": list,
}
RESPONSES = {
    "good": lambda what: response(SAID=said(what), NUMBER=ONE),
    "raise": deep,
    "raise empty": lambda what: raises(ValueError()),
    "raise lines": lambda what: raises(ValueError("first\nsecond")),
    "raise model error": lambda what: raises(pb_utils.TritonModelException(what)),
    "raise key error": lambda what: {}[what],
    "raise not implemented": lambda what: raises(NotImplementedError()),
    "raise non-ASCII": lambda what: raises(ValueError("grüezi")),
    "error": lambda what: pb_utils.InferenceResponse(error=pb_utils.TritonError("on purpose")),
    "error of old": lambda what: pb_utils.InferenceResponse([], pb_utils.TritonError("on purpose")),
    "error beside outputs": lambda what: pb_utils.InferenceResponse(
        [pb_utils.Tensor("NUMBER", ONE)], pb_utils.TritonError("on purpose")
    ),
    **{
        f"code {code}": lambda what: pb_utils.InferenceResponse(
            error=pb_utils.TritonError(what, getattr(pb_utils.TritonError, what.split()[1]))
        )
        for code in CODES
    },
    "missing output": lambda what: response(SAID=said(what)),
    "no output": lambda what: response(),
    "surplus output": lambda what: response(SAID=said(what), NUMBER=ONE, MORE=ONE),
    "wrong name": lambda what: response(SAYS=said(what), NUMBER=ONE),
    "same output twice": lambda what: pb_utils.InferenceResponse(
        [pb_utils.Tensor("SAID", said(what)), pb_utils.Tensor("NUMBER", ONE), pb_utils.Tensor("NUMBER", ONE + 1)]
    ),
    "other order": lambda what: response(NUMBER=ONE, SAID=said(what)),
    "other shape": lambda what: response(SAID=said(what), NUMBER=np.array([[1, 2], [3, 4]], np.int32)),
    "empty shape": lambda what: response(SAID=said(what), NUMBER=np.zeros((0,), np.int32)),
    "scalar": lambda what: response(SAID=said(what), NUMBER=np.array(7, np.int32)),
    "not contiguous": lambda what: response(SAID=said(what), NUMBER=np.arange(6, dtype=np.int32).reshape(2, 3).T),
    "other type": lambda what: response(SAID=said(what), NUMBER=np.array([1.5])),
    "half precision": lambda what: response(SAID=said(what), NUMBER=np.array([1.5], np.float16)),
    "text for a number": lambda what: response(SAID=said(what), NUMBER=said("one")),
    "number for a text": lambda what: response(SAID=ONE, NUMBER=ONE),
    "str": lambda what: response(SAID=np.array(["grüezi"], np.object_), NUMBER=ONE),
    "bytes of NumPy": lambda what: response(SAID=np.array([b"bytes"]), NUMBER=ONE),
    "str of NumPy": lambda what: response(SAID=np.array(["text"]), NUMBER=ONE),
    "numbers as objects": lambda what: response(SAID=np.array([1], np.object_), NUMBER=ONE),
    "number of NumPy": lambda what: response(SAID=said(what), NUMBER=np.int32(1)),
    "complex": lambda what: response(SAID=said(what), NUMBER=np.array([1j])),
    "list for an array": lambda what: response(SAID=said(what), NUMBER=[1]),
    "nameless": lambda what: pb_utils.InferenceResponse([pb_utils.Tensor("", ONE)]),
    "outputs that are none": lambda what: pb_utils.InferenceResponse([ONE]),
    "parameters": lambda what: pb_utils.InferenceResponse(
        [pb_utils.Tensor("SAID", said(what)), pb_utils.Tensor("NUMBER", ONE)],
        parameters={"text": "é", "count": 3, "flag": True},
    ),
    "undecodable": lambda what: response(SAID=np.array([b"\xff\xfe"], np.object_), NUMBER=ONE),
}
