import io
import json
import pickle
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runners.backends.torch.archive import Format, inspect, sample_inputs
from runners.errors import ConfigInvalid, KushiError, Unsupported

SCRIPT = dict.fromkeys(("data.pkl", "constants.pkl", "version", "code/__torch__.py"), "")
PROGRAM: dict[str, Any] = {
    "archive_format": "pt2",
    "models/model.json": {"graph_module": {"graph": {"nodes": []}}},
    "data/weights/model_weights_config.json": {"config": {}},
    "data/constants/model_constants_config.json": {"config": {}},
}


def form(kind: str, context: object) -> str:
    """A form of arguments, as pytree writes it"""
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    return json.dumps([1, {"type": kind, "context": json.dumps(context), "children_spec": [leaf]}])


def archive(path: Path, records: Mapping[str, object], folder: str = "model/") -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in records.items():
            file.writestr(folder + name, content if isinstance(content, str) else json.dumps(content))
    return path


def test_the_table_of_contents_tells_the_format(tmp_path: Path) -> None:
    assert inspect(archive(tmp_path / "model.pt", SCRIPT)) is Format.SCRIPT
    assert inspect(archive(tmp_path / "model.pt2", PROGRAM)) is Format.EXPORTED
    # the name of the file does not
    assert inspect(archive(tmp_path / "other.bin", PROGRAM, folder="anything/")) is Format.EXPORTED


def payload(**changes: object) -> dict[str, Any]:
    entry = {"path_name": "weight_0", "use_pickle": False} | changes
    return PROGRAM | {"data/weights/model_weights_config.json": {"config": {"layer.weight": entry}}}


@pytest.mark.parametrize(
    ("records", "error", "text"),
    [
        (
            {"data.pkl": "", "version": ""},
            ConfigInvalid,
            "was written by torch.save: a Python pickle, which can run any",
        ),
        (
            {"readme.txt": ""},
            ConfigInvalid,
            "is no PyTorch archive, expected TorchScript or an exported program: save it",
        ),
        ({"data/aotinductor/model/a.so": "", "archive_format": "pt2"}, Unsupported, "is a package of AOTInductor"),
        (PROGRAM | {"models/second.json": {}}, ConfigInvalid, "holds 2 programs, expected one"),
        (PROGRAM | {"models/model.json": "{"}, ConfigInvalid, "is damaged: models/model.json: "),
        ({k: v for k, v in PROGRAM.items() if "weights" not in k}, Unsupported, "has the form of PyTorch before 2.9"),
        (payload(use_pickle=True), Unsupported, "holds 'layer.weight' as a Python object"),
        (payload(path_name="custom_obj_0"), Unsupported, "holds 'layer.weight' as a Python object"),
        (payload(path_name="opaque_obj_0"), Unsupported, "holds 'layer.weight' as a Python object"),
    ],
    ids=str,
)
def test_what_is_more_than_data_and_operators_is_refused(
    tmp_path: Path, records: Mapping[str, object], error: type[KushiError], text: str
) -> None:
    path = archive(tmp_path / "model.pt", records)
    with pytest.raises(error) as raised:
        inspect(path)
    assert str(raised.value).startswith(f"'{path}' ")
    assert text in str(raised.value)


def test_plain_weights_pass(tmp_path: Path) -> None:
    assert inspect(archive(tmp_path / "model.pt2", payload())) is Format.EXPORTED


@pytest.mark.parametrize(("content", "kind"), [(pickle.dumps({}), "a Python pickle"), (b"", "no PyTorch archive")])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(
        ConfigInvalid, match=f"is {kind}, expected a TorchScript archive or an exported program: save it"
    ):
        inspect(path)


def test_a_program_in_the_form_of_old_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "model.pt2", {"serialized_exported_program.json": "{}", "version": "8.1"}, folder="")
    with pytest.raises(Unsupported, match=r"the form of PyTorch before 2\.8: load it with the PyTorch that wrote it"):
        inspect(path)


def test_a_record_that_is_cut_is_damage(tmp_path: Path) -> None:
    path = archive(tmp_path / "model.pt2", PROGRAM)
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"graph_module"', b'"graph_model" ', 1))
    with pytest.raises(ConfigInvalid, match="is damaged: Bad CRC-32"):
        inspect(path)


def test_weights_with_another_checksum_are_damage(tmp_path: Path) -> None:
    path = archive(tmp_path / "model.pt", SCRIPT | {"data/0": "the weights"})
    path.write_bytes(path.read_bytes().replace(b"the weights", b"the heights", 1))
    with pytest.raises(ConfigInvalid, match=r"is damaged: the checksum of its record 'model/data/0' is another one"):
        inspect(path)


@pytest.mark.parametrize("second", ["model/models/MODEL.json", "other/models/model.json", "models/model.json"])
def test_two_records_of_which_either_may_be_read_are_refused(tmp_path: Path, second: str) -> None:
    path = archive(tmp_path / "model.pt2", PROGRAM)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(second, "{}")
    with pytest.raises(ConfigInvalid, match="has records of the same name, or in several folders"):
        inspect(path)


def test_records_that_unpack_to_much_more_than_they_are_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        with file.open("model/models/model.json", "w", force_zip64=True) as record:
            for _ in range(256):
                record.write(bytes(1024 * 1024))
        for name in PROGRAM.keys() - {"models/model.json"}:
            file.writestr(f"model/{name}", json.dumps(PROGRAM[name]))
    assert path.stat().st_size < 1024 * 1024
    with pytest.raises(
        ConfigInvalid, match=r"compressed records that hold 2684\d{5} bytes, at most 67108864 are unpacked"
    ):
        inspect(path)


def test_a_program_that_is_too_long_is_refused_unread(tmp_path: Path) -> None:
    path = archive(tmp_path / "model.pt2", PROGRAM | {"models/model.json": " " * (64 * 1024 * 1024 + 1)})
    with pytest.raises(ConfigInvalid, match=r"models/model.json has 67108865 bytes, at most 67108864 are read"):
        inspect(path)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000])
def test_json_that_is_nested_too_deeply_is_damage(tmp_path: Path, text: str) -> None:
    path = archive(tmp_path / "model.pt2", PROGRAM | {"models/model.json": text})
    with pytest.raises(ConfigInvalid, match=r"is damaged: models/model.json is nested too deeply"):
        inspect(path)


def test_records_that_share_bytes_are_damage(tmp_path: Path) -> None:
    path = archive(tmp_path / "model.pt", SCRIPT | {"data/0": "x" * 4000})
    content = path.read_bytes()
    # the table says of each record that it lies where the first one does, and has the length of the longest
    at = content.index(b"PK\x01\x02")
    table = bytearray(content[at:])
    start = 0
    while (start := table.find(b"PK\x01\x02", start)) >= 0:
        table[start + 20 : start + 28] = (4000).to_bytes(4, "little") * 2
        start += 4
    path.write_bytes(content[:at] + table)
    with pytest.raises(ConfigInvalid, match="is damaged: its records overlap"):
        inspect(path)


def saved(path: Path, program: Mapping[str, object]) -> Path:
    """An exported program with this in its model.json"""
    return archive(path, PROGRAM | {"models/model.json": program})


@pytest.mark.parametrize(
    "record", ["data/weights/model.pt", "data/constants/model.pt", "data/weights/weight_x", "other"]
)
def test_records_that_pytorch_would_take_for_something_else_are_refused(tmp_path: Path, record: str) -> None:
    with pytest.raises(Unsupported, match=f"has a record '{record}', which is not read here"):
        inspect(archive(tmp_path / "model.pt2", PROGRAM | {record: ""}))


RUNS = "__import__('os').mkdir('x')"


@pytest.mark.parametrize(
    "program",
    [
        {"guards_code": [RUNS]},
        {"guards_code": ["L['x'].size()[0] == 3", "L.__class__"]},
        {"guards_code": ["open('x')"]},
        {"guards_code": ["'a' * 999999999 == L"]},
        {"guards_code": ["len(max('a', 'b') * 3000000000) > 5"]},
        {"guards_code": ["len(('a' or 'b') * 3000000000) > 5"]},
        {"guards_code": ["len(L['x'].shape * 3000000000) > 5"]},
        {"guards_code": ["len(L['x'].size() * 3000000000) > 5"]},
        {"guards_code": ["len(max(L['x'].shape, L['y'].shape) * 3000000000) > 5"]},
        {"guards_code": ["len(L['args'] * 3000000000) > 5"]},
        {"guards_code": ["len('abc'[0] * 3000000000) > 5"]},
        {"guards_code": ["len(L['x'].size(None) * 3000000000) > 5"]},
        {"guards_code": ["len(L['x'].stride(None) * 3000000000) > 5"]},
        {"guards_code": ["1" + "0" * 5000 + " > L['x'].size()[0]"]},
        {"guards_code": ["(1+1)*" * 1500 + "1 > 0"]},
        {"guards_code": ["9 ** 9 ** 9 > L['x'].size()[0]"]},
        {"guards_code": ["(lambda: 1)() == 1"]},
        {"guards_code": ["""'"); open(chr(120)) #' == 'x'"""]},
        {"guards_code": ["'''a'b''' == 'x'"]},
        {"guards_code": ["L['x'] == 1 # more"]},
        {"guards_code": ["L['x'] == b''"]},
        {"guards_code": ["L['x'].size()[0] =="]},
        {"graph_module": {"graph": {"inputs": [{"as_tensor": {"name": f"x={RUNS}"}}]}}},
        {"graph_module": {"graph": {"outputs": [{"as_sym_int": {"as_name": f"x={RUNS}"}}]}}},
        {"graph_module": {"graph": {"nodes": [{"inputs": [{"name": f"b={RUNS},c", "arg": {"as_int": 1}}]}]}}},
        {"graph_module": {"signature": {"input_specs": [{"parameter": {"parameter_name": f'w") or {RUNS}'}}]}}},
        {"graph_module": {"graph": {"tensor_values": {f"x={RUNS}": {}}}}},
        {"module_call_graph": [{"signature": {"forward_arg_names": [f"x={RUNS}"]}}]},
        {"as_operator": "torch.serialization.os.system"},
        {"in_spec": form("builtins.dict", [f"a':{RUNS},'b"])},
        {"out_spec": form("collections.defaultdict", {"default_factory_module": "idlelib.idle"})},
        {"out_spec": form("builtins.dict", [{"__enum__": True, "fqn": "idlelib.idle:main"}])},
        {"out_spec": "[1, {}]"},
        {"out_spec": 7},
    ],
    ids=str,
)
def test_texts_that_would_become_source_code_are_refused(tmp_path: Path, program: Mapping[str, object]) -> None:
    with pytest.raises(ConfigInvalid, match=r"which is (not read here|no operator of PyTorch)"):
        inspect(saved(tmp_path / "model.pt2", program))


def test_texts_as_pytorch_writes_them_pass(tmp_path: Path) -> None:
    nodes = [
        {
            "target": "torch.ops.aten.linear.default",
            "inputs": [{"name": "", "arg": {"as_string": "any text ' \" ("}}, {"name": "weight", "arg": {"as_int": 3}}],
            "outputs": [{"as_tensor": {"name": "linear"}}],
            "metadata": {"stack_trace": "File 'x.py', line 8\n    z = s.l(x)", "nn_module_stack": "L__self__,,M"},
        }
    ]
    specs = [{"parameter": {"arg": {"name": "p_l_weight"}, "parameter_name": "layers.0.weight"}}]
    program = {
        "graph_module": {
            "graph": {"nodes": nodes, "tensor_values": {"linear": {"dtype": 7}}},
            "signature": {"input_specs": specs},
            "module_call_graph": [
                {
                    "fqn": "layers.0@1",
                    "signature": {
                        "forward_arg_names": ["x", "y"],
                        "in_spec": form("builtins.tuple", None),
                        "out_spec": form("collections.OrderedDict", ["last-hidden state", 3]),
                    },
                }
            ],
        },
        "guards_code": [
            "L['x'].size()[0] == L['y']['k'].size()[0]",
            "not (L['x'].shape[1] % 8 != 0) and max(1, 2) < 4",
            "2*L['x'].size(0) + L['x'].stride()[1] * -3 + 1 == max(L['y']['k'].size()[0], 3) * L['args'][2]",
        ],
        "torch_version": "2.15.0+cu132",
    }
    assert inspect(saved(tmp_path / "model.pt2", program)) is Format.EXPORTED


def test_a_record_that_is_called_a_directory_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as file:
        for name in SCRIPT:
            info = zipfile.ZipInfo(f"model/{name}")
            info.external_attr = 0x10 if name == "data.pkl" else 0
            file.writestr(info, "")
    with pytest.raises(ConfigInvalid, match=r"is damaged: its record 'model/data\.pkl' is called a directory"):
        inspect(path)


@pytest.mark.parametrize(("before", "behind"), [(b"#!/bin/sh", b""), (b"", b"more")])
def test_what_lies_before_or_behind_the_records_is_damage(tmp_path: Path, before: bytes, behind: bytes) -> None:
    path = archive(tmp_path / "model.pt", SCRIPT)
    path.write_bytes(before + path.read_bytes() + behind)
    with pytest.raises(ConfigInvalid, match="there is something before or behind its records"):
        inspect(path)


def test_the_table_of_contents_lies_where_its_larger_end_says(tmp_path: Path) -> None:
    """PyTorch writes a second end for large archives into all of them, and finds it by an offset"""
    path = archive(tmp_path / "model.pt", SCRIPT)
    whole = path.read_bytes()
    count, size, start = struct.unpack("<HII", whole[-12:-2])
    larger = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start)
    for offset, is_good in ((len(whole) - 22, True), (0, False)):
        locator = struct.pack("<4sIQI", b"PK\6\7", 0, offset, 1)
        path.write_bytes(whole[:-22] + larger + locator + whole[-22:])
        if is_good:
            assert inspect(path) is Format.SCRIPT
        else:
            with pytest.raises(ConfigInvalid, match="there is something before or behind its records"):
                inspect(path)


def test_a_weight_of_nothing_is_damage(tmp_path: Path) -> None:
    sized = payload(tensor_meta={"sizes": [{"as_int": 600_000_000}]}) | {"data/weights/weight_0": ""}
    with pytest.raises(ConfigInvalid, match=r"is damaged: 'layer\.weight' has a size and no content"):
        inspect(archive(tmp_path / "model.pt2", sized))
    for sizes in ([10**60] * 2, [1] * 20_000):
        long = payload(tensor_meta={"sizes": [{"as_int": size} for size in sizes]}) | {"data/weights/weight_0": ""}
        with pytest.raises(ConfigInvalid, match=r"is damaged: 'layer\.weight' has a size and no content"):
            inspect(archive(tmp_path / "model.pt2", long))
    empty = payload(tensor_meta={"sizes": [{"as_int": 0}, {"as_int": 7}]}) | {"data/weights/weight_0": ""}
    assert inspect(archive(tmp_path / "model.pt2", empty)) is Format.EXPORTED


@pytest.mark.parametrize(
    "text",
    [
        "[" + ",".join(["[]"] * 2_000_001) + "]",
        "[" + "0," * 8_000_001 + "0]",
        "{" + ",".join(f'"{number}" :0' for number in range(1_000_001)) + "}",
    ],
    ids=["lists", "values", "members"],
)
def test_a_program_of_too_many_parts_is_not_read(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"is damaged: models/model\.json has more parts than a program has"):
        inspect(archive(tmp_path / "model.pt2", PROGRAM | {"models/model.json": text}))


@pytest.mark.parametrize("number", ["9" * 65, "-" + "9" * 64, "0." + "1" * 63, "1e" + "0" * 63])
@pytest.mark.parametrize("record", ["models/model.json", "data/weights/model_weights_config.json"])
def test_a_number_that_takes_long_to_read_is_not_read(tmp_path: Path, record: str, number: str) -> None:
    text = f'{{"config": {{}}, "a": [{number}]}}'
    with pytest.raises(ConfigInvalid, match=f"is damaged: {record}: a number has 65 characters, expected at most 64"):
        inspect(archive(tmp_path / "model.pt2", PROGRAM | {record: text}))


def test_a_form_of_arguments_with_a_long_number_is_refused(tmp_path: Path) -> None:
    good = form("builtins.dict", [7])
    assert inspect(saved(tmp_path / "model.pt2", {"out_spec": good})) is Format.EXPORTED
    for short in ("[1,", "[7]"):
        with pytest.raises(ConfigInvalid, match=r"as 'out_spec' the text '.*', which is not read here"):
            inspect(
                saved(tmp_path / "model.pt2", {"out_spec": good.replace(short, f"{short[:1]}{'9' * 65}{short[2:]}")})
            )


def test_sample_inputs_hold_no_more_than_there_is(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("m/data/0", bytes(100 << 20))
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("m/data/sample_inputs/model.pt", inner.getvalue())
    with pytest.raises(ConfigInvalid, match="has sample inputs that hold 104857600 bytes in"):
        sample_inputs(path)


@pytest.mark.parametrize(("record", "most"), [("archive_format", 1024), ("data/sample_inputs/model.pt", 1 << 30)])
def test_a_record_that_is_larger_than_any_is_not_read(tmp_path: Path, record: str, most: int) -> None:
    path = archive(tmp_path / "model.pt2", PROGRAM | {record: "x" * 2000})
    content = path.read_bytes()
    # what the table says of it: where it lies is behind the last of its sizes
    at = content.rindex(b"PK\1\2", 0, content.rindex(f"model/{record}".encode()))
    stated = struct.pack("<I", 3 << 30)
    path.write_bytes(content[: at + 24] + stated + content[at + 28 :])
    read = inspect if record == "archive_format" else sample_inputs
    with pytest.raises(ConfigInvalid, match=f"is damaged: {record} has 3221225472 bytes, at most {most} are read"):
        read(path)


def test_what_an_archive_holds_is_not_read_beside_a_table_of_contents_without_end(tmp_path: Path) -> None:
    table = 64 << 20
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, table, 0, 0)
    path, inner = tmp_path / "model.pt2", tmp_path / "inner"
    for one in (path, inner):
        with one.open("wb") as hole:
            hole.seek(table)
            hole.write(end)
    with pytest.raises(ConfigInvalid, match=f"^'{path}' has a table of contents of more than 33554432 bytes$"):
        inspect(path)
    with zipfile.ZipFile(path, "w") as file:
        file.write(inner, "m/data/sample_inputs/model.pt")
    of_inner = "data/sample_inputs/model.pt has a table of contents of more than 33554432 bytes"
    with pytest.raises(ConfigInvalid, match=f"^'{path}': {of_inner}$"):
        sample_inputs(path)


def test_a_graph_in_another_coding_is_damage(tmp_path: Path) -> None:
    """Nobody has counted its members"""
    path = saved(tmp_path / "model.pt2", {})
    with zipfile.ZipFile(path) as archive:
        records = {record.filename: archive.read(record) for record in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            is_graph = name.endswith("models/model.json")
            archive.writestr(name, content.decode().encode("utf-16") if is_graph else content)
    with pytest.raises(ConfigInvalid, match=r"is damaged: models/model\.json"):
        inspect(path)
