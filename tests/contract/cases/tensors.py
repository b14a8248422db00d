"""Tensors that do not fit the model: datatypes, shapes, sizes, strings."""

from __future__ import annotations

from typing import Final

from tests.contract.cases.case import ROW, UNKNOWN_ID, Case, Code
from tests.contract.cases.inputs import add_sub, int32
from tests.contract.requests import Infer, Tensor, strings

BATCH_NOTE: Final = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)

TENSOR_CASES: Final = [
    Case(
        "wrong datatype",
        add_sub(Tensor("INPUT0", "FP32", (1, 16), raw=ROW), int32("INPUT1")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}inference input 'INPUT0' data-type is 'FP32', but model 'add_sub' expects 'INT32'",
    ),
    Case(
        "unknown datatype of a binary tensor",
        add_sub(Tensor("INPUT0", "INT33", (1, 16), raw=ROW), int32("INPUT1")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}inference input 'INPUT0' data-type is '<invalid>', but model 'add_sub' expects 'INT32'",
    ),
    Case(
        "wrong dimension",
        add_sub(int32("INPUT0", (1, 15), ROW[:60]), int32("INPUT1", (1, 15), ROW[:60])),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}unexpected shape for input 'INPUT0' for model 'add_sub'. Expected [-1,16], got [1,15]. "
        f"{BATCH_NOTE}",
    ),
    Case(
        "wrong rank",
        add_sub(int32("INPUT0", (1, 4, 4)), int32("INPUT1", (1, 4, 4))),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}unexpected shape for input 'INPUT0' for model 'add_sub'. Expected [-1,16], got [1,4,4]. "
        f"{BATCH_NOTE}",
    ),
    Case(
        "batch dimension left out",
        add_sub(int32("INPUT0", (1,)), int32("INPUT1", (1,))),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}unexpected shape for input 'INPUT0' for model 'add_sub'. Expected [-1,16], got [1]. {BATCH_NOTE}",
    ),
    Case(
        "wrong shape for a model that does not batch",
        Infer("add_sub_flat", [int32("INPUT0", (15,), ROW[:60]), int32("INPUT1", (15,), ROW[:60])]),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}unexpected shape for input 'INPUT0' for model 'add_sub_flat'. Expected [16], got [15]. ",
    ),
    Case(
        "rank 0 for a model that batches",
        add_sub(int32("INPUT0", (), b""), int32("INPUT1", (), b"")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input 'INPUT0' has no shape but model requires batch dimension for 'add_sub'",
    ),
    Case(
        "batch sizes that differ",
        add_sub(int32("INPUT0", (1, 16)), int32("INPUT1", (2, 16), ROW * 2)),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input 'INPUT1' batch size does not match other inputs for 'add_sub'",
    ),
    Case(
        "batch too large",
        add_sub(int32("INPUT0", (9, 16), ROW * 9), int32("INPUT1", (9, 16), ROW * 9)),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}inference request batch-size must be <= 8 for 'add_sub'",
    ),
    Case(
        "too few bytes",
        add_sub(int32("INPUT0", raw=ROW[:60]), int32("INPUT1")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input byte size mismatch for input 'INPUT0' for model 'add_sub'. Expected 64, got 60",
    ),
    Case(
        "too many bytes",
        add_sub(int32("INPUT0"), int32("INPUT1", raw=ROW + b"x")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input byte size mismatch for input 'INPUT1' for model 'add_sub'. Expected 64, got 65",
    ),
    Case(
        "binary tensor of no bytes",
        add_sub(int32("INPUT0", raw=b""), int32("INPUT1")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input byte size mismatch for input 'INPUT0' for model 'add_sub'. Expected 64, got 0",
    ),
    Case(
        "more bytes claimed by the shape than a tensor can have",
        Infer("image", [Tensor("INPUT0", "FP32", (1, 3, 2**31, 2**31), raw=b"\0" * 12)]),
        Code.INVALID_ARGUMENT,
        "byte size for tensor 'INPUT0' exceeds maximum size of 9223372036854775807",
    ),
]

STRING_CASES: Final = [
    Case(
        "too few strings",
        Infer("identity_bytes", [Tensor("INPUT0", "BYTES", (1, 3), raw=strings(b"a", b"b"))]),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}expected 3 string elements for inference input 'INPUT0' for model 'identity_bytes', got 2",
    ),
    Case(
        "too many strings",
        Infer("identity_bytes", [Tensor("INPUT0", "BYTES", (1, 2), raw=strings(b"a", b"b", b"c"))]),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}unexpected number of string elements 3 for inference input 'INPUT0' for model 'identity_bytes', "
        "expecting 2",
    ),
    Case(
        "a string's length cut short",
        Infer("identity_bytes", [Tensor("INPUT0", "BYTES", (1, 2), raw=strings(b"a") + b"\1\0")]),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}incomplete string length indicator for inference input 'INPUT0' for model 'identity_bytes', "
        "expecting 4 bytes but only 2 bytes available. Please make sure the string length indicator is in one buffer.",
    ),
    Case(
        "a string cut short",
        Infer("identity_bytes", [Tensor("INPUT0", "BYTES", (1, 2), raw=strings(b"a", b"0123456789")[:-7])]),
        Code.INVALID_ARGUMENT,
        "incomplete string data for inference input 'INPUT0', expecting string of length 10 but only 3 bytes available",
    ),
    Case(
        "a string that claims four gigabytes",
        Infer("identity_bytes", [Tensor("INPUT0", "BYTES", (1, 1), raw=b"\xff\xff\xff\xffabc")]),
        Code.INVALID_ARGUMENT,
        "incomplete string data for inference input 'INPUT0', expecting string of length 4294967295 but only 3 bytes "
        "available",
    ),
]
