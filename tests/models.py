"""Small ONNX models and the repositories that hold them.

Every test that needs a model builds it here: nothing is downloaded and nothing is committed. A model is one
function that answers a ``ModelProto``; a repository is a directory that ``write`` fills.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import onnx
from onnx import TensorProto, helper

from tests.examples import built
from tests.gates import gate_name

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "DATATYPES",
    "SLOW_BASE_STEPS",
    "add_sub",
    "cast",
    "config",
    "fixed_identity",
    "gather",
    "identity",
    "large",
    "link_operators",
    "nonzero",
    "optional_inputs",
    "plus_constant",
    "scalar",
    "slow",
    "tensor",
    "write",
    "write_gated",
]

OPSET: Final = 17
IR_VERSION: Final = 8

DATATYPES: Final[Mapping[str, int]] = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING,
    "BF16": TensorProto.BFLOAT16,
}
"""Protocol name of every datatype and the ONNX element type behind it."""

Dim = int | str

SLOW_BASE_STEPS: Final = 300
"""Steps that the slow model takes for any request: enough milliseconds that it never runs on an io thread."""


def tensor(name: str, datatype: str, shape: Sequence[Dim]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, DATATYPES[datatype], list(shape))


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), list(initializers))
    domains = {"": OPSET, **{node.domain: 1 for node in nodes if node.domain}}
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*each) for each in domains.items()], ir_version=IR_VERSION
    )
    onnx.checker.check_model(made)
    return made


def add_sub(shape: Sequence[Dim], datatype: str = "INT32") -> onnx.ModelProto:
    """OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1."""
    nodes = [
        helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
        helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
    ]
    inputs = [tensor(name, datatype, shape) for name in ("INPUT0", "INPUT1")]
    outputs = [tensor(name, datatype, shape) for name in ("OUTPUT0", "OUTPUT1")]
    return model(nodes, inputs, outputs)


def identity(datatype: str, shape: Sequence[Dim] = ("batch", "n")) -> onnx.ModelProto:
    node = helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])
    return model([node], [tensor("INPUT0", datatype, shape)], [tensor("OUTPUT0", datatype, shape)])


def cast(source: str, target: str, shape: Sequence[Dim] = ("batch", "n")) -> onnx.ModelProto:
    """OUTPUT0 = INPUT0 as another datatype."""
    node = helper.make_node("Cast", ["INPUT0"], ["OUTPUT0"], to=DATATYPES[target])
    return model([node], [tensor("INPUT0", source, shape)], [tensor("OUTPUT0", target, shape)])


def fixed_identity(datatype: str, shape: Sequence[int]) -> onnx.ModelProto:
    """Identity whose every dimension is fixed: not able to batch."""
    return identity(datatype, tuple(shape))


def scalar(shape: Sequence[Dim] = ()) -> onnx.ModelProto:
    """OUTPUT0 = INPUT0 + INPUT0, of rank 0 unless a shape is given."""
    node = helper.make_node("Add", ["INPUT0", "INPUT0"], ["OUTPUT0"])
    return model([node], [tensor("INPUT0", "FP32", shape)], [tensor("OUTPUT0", "FP32", shape)])


def plus_constant(constant: int) -> onnx.ModelProto:
    """OUTPUT0 = INPUT0 + constant: tells the versions of a model apart."""
    value = helper.make_tensor("constant", TensorProto.INT32, [1], [constant])
    node = helper.make_node("Add", ["INPUT0", "constant"], ["OUTPUT0"])
    shape: tuple[Dim, ...] = ("batch", 1)
    return model([node], [tensor("INPUT0", "INT32", shape)], [tensor("OUTPUT0", "INT32", shape)], [value])


def large(byte_size: int) -> onnx.ModelProto:
    """OUTPUT0 = table[INDEX] of a table that takes that many bytes."""
    count = byte_size // 4
    table = helper.make_tensor("table", TensorProto.INT32, [count], bytes(4 * count), raw=True)
    node = helper.make_node("Gather", ["table", "INDEX"], ["OUTPUT0"])
    shape: tuple[Dim, ...] = ("batch", 1)
    return model([node], [tensor("INDEX", "INT64", shape)], [tensor("OUTPUT0", "INT32", shape)], [table])


def above_zero() -> onnx.ModelProto:
    """OUTPUT0 = those rows of INPUT0 that are above zero: how many there are depends on the data."""
    constants = [
        helper.make_tensor("zero", TensorProto.INT32, [1], [0]),
        helper.make_tensor("flat", TensorProto.INT64, [1], [-1]),
    ]
    nodes = [
        helper.make_node("Greater", ["INPUT0", "zero"], ["is_above"]),
        helper.make_node("Reshape", ["is_above", "flat"], ["rows_above"]),
        helper.make_node("Compress", ["INPUT0", "rows_above"], ["OUTPUT0"], axis=0),
    ]
    given, made = tensor("INPUT0", "INT32", ("batch", 1)), tensor("OUTPUT0", "INT32", ("rows", 1))
    return model(nodes, [given], [made], constants)


def gather() -> onnx.ModelProto:
    """OUTPUT0 = table[INDEX] of ten rows: an index outside them is an error of the engine while it runs."""
    table = helper.make_tensor("table", TensorProto.INT32, [10], [row * row for row in range(10)])
    node = helper.make_node("Gather", ["table", "INDEX"], ["OUTPUT0"])
    shape: tuple[Dim, ...] = ("batch", 1)
    return model([node], [tensor("INDEX", "INT64", shape)], [tensor("OUTPUT0", "INT32", shape)], [table])


def nonzero() -> onnx.ModelProto:
    """OUTPUT0 = positions of the elements that are not zero: its size depends on the data."""
    node = helper.make_node("NonZero", ["INPUT0"], ["OUTPUT0"])
    return model([node], [tensor("INPUT0", "INT32", ["n"])], [tensor("OUTPUT0", "INT64", [1, "found"])])


def optional_inputs() -> onnx.ModelProto:
    """OUTPUT0 = INPUT0 + INPUT1 + INPUT2, where the last two have defaults in the file (100 and 1000)."""
    defaults = [
        helper.make_tensor("INPUT1", TensorProto.INT32, [1], [100]),
        helper.make_tensor("INPUT2", TensorProto.INT32, [1], [1000]),
    ]
    nodes = [
        helper.make_node("Add", ["INPUT0", "INPUT1"], ["partial"]),
        helper.make_node("Add", ["partial", "INPUT2"], ["OUTPUT0"]),
    ]
    inputs = [tensor(name, "INT32", [1]) for name in ("INPUT0", "INPUT1", "INPUT2")]
    return model(nodes, inputs, [tensor("OUTPUT0", "INT32", [1])], defaults)


def slow(base_steps: int = SLOW_BASE_STEPS, size: int = 128, *, gate: str | None = None) -> onnx.ModelProto:
    """Multiplies a matrix ``base_steps`` + STEPS times, then answers OUTPUT0 = STEPS.

    The request decides how long it takes, and even a request for zero steps takes milliseconds. Where there is a gate
    of that name, a request of HELD steps waits there first.
    """
    unit = [1.0 if row == column else 0.0 for row in range(size) for column in range(size)]
    initializers = [
        helper.make_tensor("unit", TensorProto.FLOAT, [size, size], unit),
        helper.make_tensor("base", TensorProto.INT64, [], [base_steps]),
        helper.make_tensor("forever", TensorProto.BOOL, [], [True]),
        helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
    ]
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["condition"], ["condition_out"]),
            helper.make_node("MatMul", ["state", "unit"], ["state_out"]),
        ],
        "step",
        [
            tensor("step", "INT64", []),
            tensor("condition", "BOOL", []),
            tensor("state", "FP32", [size, size]),
        ],
        [tensor("condition_out", "BOOL", []), tensor("state_out", "FP32", [size, size])],
    )
    gates = [
        helper.make_node("Cast", ["STEPS"], ["given"], to=TensorProto.FLOAT),
        helper.make_node("Gate", ["given"], ["passed"], domain="kushi.test", at=gate),
        helper.make_node("Cast", ["passed"], ["steps"], to=TensorProto.INT64),
    ]
    nodes = [
        *(gates if gate else [helper.make_node("Identity", ["STEPS"], ["steps"])]),
        helper.make_node("ReduceMax", ["steps"], ["most"], keepdims=0),
        helper.make_node("Add", ["most", "base"], ["trips"]),
        helper.make_node("Loop", ["trips", "forever", "unit"], ["final"], body=body),
        helper.make_node("ReduceMax", ["final"], ["largest"], keepdims=0),
        helper.make_node("Mul", ["largest", "zero"], ["nothing"]),
        helper.make_node("Cast", ["nothing"], ["nothing64"], to=TensorProto.INT64),
        helper.make_node("Add", ["STEPS", "nothing64"], ["OUTPUT0"]),
    ]
    shape: tuple[Dim, ...] = ("batch", 1)
    return model(nodes, [tensor("STEPS", "INT64", shape)], [tensor("OUTPUT0", "INT64", shape)], initializers)


Io = tuple[str, str, Sequence[int]]


def config(
    name: str,
    inputs: Sequence[Io],
    outputs: Sequence[Io],
    *,
    max_batch_size: int,
    extra: str = "",
    fields: Mapping[str, str] | None = None,
) -> str:
    """Text of a ``config.pbtxt``; ``fields`` adds text inside the input or output of that name."""
    added = fields or {}

    def block(kind: str, io: Io) -> str:
        io_name, datatype, dims = io
        data_type = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
        listed = ", ".join(map(str, dims))
        return f'{kind} [ {{ name: "{io_name}" data_type: {data_type} dims: [ {listed} ] {added.get(io_name, "")} }} ]'

    lines = [f'name: "{name}"', 'platform: "onnxruntime_onnx"', f"max_batch_size: {max_batch_size}"]
    lines += [block("input", io) for io in inputs]
    lines += [block("output", io) for io in outputs]
    return "\n".join([*lines, extra, ""])


def write(
    repository: Path,
    name: str,
    versions: Mapping[int, onnx.ModelProto | bytes] | onnx.ModelProto | bytes,
    text: str | None = None,
) -> Path:
    """Puts a model into a repository: one file per version and, if given, its ``config.pbtxt``."""
    folder = repository / name
    files = versions if isinstance(versions, Mapping) else {1: versions}
    for version, content in files.items():
        (folder / str(version)).mkdir(parents=True)
        data = content if isinstance(content, bytes) else content.SerializeToString()
        (folder / str(version) / "model.onnx").write_bytes(data)
    if text is not None:
        (folder / "config.pbtxt").write_text(text)
    return folder


ONE_INSTANCE: Final = "instance_group [ { kind: KIND_CPU count: 1 } ]"
OPERATORS: Final = 'model_operations { op_library_filename: "operators.so" }'
ONE_THREAD: Final = 'parameters { key: "intra_op_thread_count" value { string_value: "1" } }'


def queue_policy(text: str) -> str:
    return f"dynamic_batching {{ default_queue_policy {{ {text} }} }}"


def write_add_sub(repository: Path, name: str = "add_sub", extra: str = "dynamic_batching { }") -> None:
    inputs: list[Io] = [("INPUT0", "INT32", [16]), ("INPUT1", "INT32", [16])]
    outputs: list[Io] = [("OUTPUT0", "INT32", [16]), ("OUTPUT1", "INT32", [16])]
    text = config(name, inputs, outputs, max_batch_size=8, extra=extra)
    write(repository, name, add_sub(["batch", 16]), text)


def write_slow(repository: Path, name: str = "slow", extra: str = "dynamic_batching { }") -> None:
    """The slow model, alone in its batches, on one thread of one instance."""
    text = config(
        name,
        [("STEPS", "INT64", [1])],
        [("OUTPUT0", "INT64", [1])],
        max_batch_size=1,
        extra=f"{extra}\n{ONE_INSTANCE}\n{ONE_THREAD}",
    )
    write(repository, name, slow(), text)


def write_gated(
    repository: Path,
    name: str = "slow",
    *,
    instances: int = 1,
    max_batch_size: int = 1,
    extra: str = "dynamic_batching { }",
) -> None:
    """The slow model with a gate, on one thread of each instance."""
    text = config(
        name,
        [("STEPS", "INT64", [1])],
        [("OUTPUT0", "INT64", [1])],
        max_batch_size=max_batch_size,
        extra=f"{extra}\ninstance_group [ {{ kind: KIND_CPU count: {instances} }} ]\n{ONE_THREAD}\n{OPERATORS}",
    )
    write(repository, name, slow(gate=gate_name(repository, name)), text)
    link_operators(repository / name)


def link_operators(folder: Path) -> None:
    """Puts the library of the operators `Triple` and `Gate` beside a model, which names it."""
    library = folder / "operators.so"
    try:
        library.hardlink_to(built("kushi_custom_op"))
    except OSError:
        # on another disk
        shutil.copy(built("kushi_custom_op"), library)


def write_gather(repository: Path, name: str = "gather") -> None:
    text = config(
        name,
        [("INDEX", "INT64", [1])],
        [("OUTPUT0", "INT32", [1])],
        max_batch_size=8,
        extra="dynamic_batching { }",
    )
    write(repository, name, gather(), text)


def write_identities(repository: Path) -> None:
    """``identity_<datatype>``: shape [batch, n], at most 8 rows, any n (zero included)."""
    for datatype in DATATYPES:
        name = f"identity_{datatype.lower()}"
        text = config(
            name,
            [("INPUT0", datatype, [-1])],
            [("OUTPUT0", datatype, [-1])],
            max_batch_size=8,
            extra="dynamic_batching { }",
        )
        write(repository, name, identity(datatype), text)
