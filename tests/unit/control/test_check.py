import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runners.cli import main
from tests.serving import ROOT
from tests.unit.control.test_ensembles import ensemble, step, two
from tests.unit.controlled import plus

WARM_UP = """model_warmup {
    batch_size: 1
    inputs { key: "A" value { data_type: TYPE_FP32 dims: 1 input_data_file: "x" } }
}"""


def repository(path: Path) -> None:
    two(path)
    (path / "tokens" / "1").mkdir(parents=True)
    (path / "tokens" / "config.pbtxt").write_text('backend: "mine" parameters { key: "free" }')
    ensemble(path, "f", step("a", "A", "B"), step("tokens", "B", "C"))
    ensemble(path, "g", step("nowhere", "A", "C"))


def stated(key: str, value: str) -> str:
    return f'parameters {{ key: "kushi.{key}" value {{ string_value: "{value}" }} }}\n'


def test_every_model_has_a_line_that_says_whether_it_would_be_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository(tmp_path)
    assert main(["check", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "a: served, onnxruntime, version 1",
        "b: served, onnxruntime, version 1",
        "e: served, ensemble, version 1",
    ]
    assert lines[3:5] == [
        "f: not served: its model 'tokens' would not be served",
        "g: not served: ensemble g contains models that are not available or ambiguous: nowhere",
    ]
    assert "config.pbtxt:1: backend 'mine' is not supported by this version" in lines[5]


def test_the_same_is_there_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plus(tmp_path, "a")
    assert main(["check", "--format", "json", str(tmp_path)]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row == {
        "name": "a",
        "served": True,
        "backend": "onnxruntime",
        "versions": [1],
        "reason": "",
        "problems": [],
        "notes": [],
    }


def test_a_file_that_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plus(tmp_path, "a", text='backend: "pytorch"')
    assert main(["check", str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"a: not served: unable to find '{tmp_path}/a/1/model.pt'\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('output { name: "B" label_filename: "none.txt" }', "none.txt"),
        (WARM_UP, "warmup/x"),
        (stated("alternatives", "openvino if intell"), "got 'openvino if intell'"),
        (
            stated("alternatives", "openvino") + stated("samples", "none.npz"),
            "expected an .npz file inside the directory of the model, got 'none.npz'",
        ),
    ],
)
def test_what_a_configuration_names_beside_the_model_is_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    plus(tmp_path, "a", text=text)
    assert main(["check", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("a: not served: ")
    assert reason in said


def python_model(path: Path, *, code: str = "", batch: int = 4) -> None:
    (path / "p" / "1").mkdir(parents=True)
    (path / "p" / "1" / "model.py").write_text(f"class TritonPythonModel:\n    {code}pass\n")
    tensors = (
        f'{side} {{ name: "{side.upper()}0" data_type: TYPE_INT32 dims: [ 1 ] }}' for side in ("input", "output")
    )
    (path / "p" / "config.pbtxt").write_text(f'backend: "python" max_batch_size: {batch} {" ".join(tensors)}')


@pytest.mark.parametrize(
    ("batch", "mapped", "reason"),
    [
        (4, "INPUT0", ""),
        (4, "NONE", "in ensemble e, ensemble tensor A is mapping to non-existing input NONE in model p"),
        (
            2,
            "INPUT0",
            (
                "ensemble e allows maximum batch size 4, but it contains model p which only allows maximum batch size "
                "to be 2"
            ),
        ),
    ],
)
def test_an_ensemble_is_held_against_what_its_models_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], batch: int, mapped: str, reason: str
) -> None:
    python_model(tmp_path, batch=batch)
    ensemble(tmp_path, "e", step("p", "A", "C").replace("INPUT0", mapped))
    assert main(["check", str(tmp_path)]) == (1 if reason else 0)
    line = capsys.readouterr().out.splitlines()[0]
    refused = f"e: not served: {tmp_path}/e/config.pbtxt: {reason}"
    assert line == (refused if reason else "e: served, ensemble, version 1")


@pytest.mark.parametrize("what", ["directory", "pipe", "circle"])
def test_what_is_no_file_is_the_failure_of_its_model_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    python_model(tmp_path)
    plus(tmp_path, "a")
    file = tmp_path / "p/1/model.py"
    file.unlink()
    if what == "circle":
        file.symlink_to(file.name)
    else:
        file.mkdir() if what == "directory" else os.mkfifo(file)
    assert main(["check", str(tmp_path)]) == 1
    good, bad = capsys.readouterr().out.splitlines()
    assert good == "a: served, onnxruntime, version 1"
    assert bad.startswith("p: not served: ")


@pytest.mark.parametrize("what", ["pipe", "circle", "nowhere"])
def test_what_is_no_file_of_a_model_is_seen_without_opening_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    plus(tmp_path, "a")
    file = tmp_path / "a/1/model.onnx"
    file.unlink()
    os.mkfifo(file) if what == "pipe" else file.symlink_to(file.name if what == "circle" else "nowhere")
    assert main(["check", str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith("a: not served: ")


def test_what_a_model_says_of_itself_when_it_is_loaded_is_not_guessed(tmp_path: Path) -> None:
    python_model(tmp_path, code="def auto_complete_config(config): return config\n    ")
    plus(tmp_path, "a")
    ensemble(
        tmp_path, "e", step("p", "A", "B").replace("INPUT0", "NONE"), step("a", "B", "C").replace("INPUT0", "NONE")
    )
    assert main(["check", str(tmp_path)]) == 0


def test_what_means_nothing_here_and_what_is_other_in_triton_is_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        'backend: "onnxruntime"\n'
        "response_cache { enable: true }\n"
        'parameters { key: "kushi.versions" value { string_value: "{\\"labels\\": {\\"stable\\": 1}}" } }\n'
        'parameters { key: "kushi.inline" value { string_value: "never" } }\n'
        'parameters { key: "intra_op_threads_count" value { string_value: "1" } }\n'
        'instance_group { kind: KIND_CPU rate_limiter { resources { name: "r" count: 1 } } }\n'
        "instance_group { kind: KIND_CPU rate_limiter { priority: 2 } }\n"
    )
    plus(tmp_path, "a", text=text)
    assert main(["check", str(tmp_path)]) == 0
    file = tmp_path / "a" / "config.pbtxt"
    served, *notes = capsys.readouterr().out.splitlines()
    assert served == "a: served, onnxruntime, version 1"
    assert [note.removeprefix(f"a: note: {file}:").partition(", ")[0] for note in notes] == [
        "4: parameter 'kushi.inline' is Kushi's own",
        "3: parameter 'kushi.versions' is Kushi's own",
        "2: field 'response_cache' has no effect: the server has no response cache",
        "5: parameter 'intra_op_threads_count' is not known here and has no effect",
        "7: field 'instance_group[1].rate_limiter.priority' has no effect without resources",
        "6: field 'instance_group[0].rate_limiter.resources' counts on a device of the CPU's own",
    ]
    assert main(["check", "--format", "json", str(tmp_path)]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert [(note["field"], note["line"]) for note in row["notes"]][:3] == [
        ("parameters[kushi.inline]", 4),
        ("parameters[kushi.versions]", 3),
        ("response_cache", 2),
    ]


def test_a_model_that_is_not_served_has_no_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plus(tmp_path, "a", text='backend: "onnxruntime"\nresponse_cache { enable: true }\nmax_batch_size: -1\n')
    assert main(["check", str(tmp_path)]) == 1
    assert "note:" not in capsys.readouterr().out


def test_a_warning_that_is_no_note_is_in_the_log(tmp_path: Path) -> None:
    parameter = 'parameters { key: "kushi.max_queue_bytez" value { string_value: "1" } }'
    plus(tmp_path, "served", text=f'backend: "onnxruntime"\n{parameter}\n')
    plus(tmp_path, "refused", text=f'backend: "onnxruntime"\nmax_batch_size: -4\n{parameter}\n')
    command = [sys.executable, "-m", "runners", "check", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    note = f"served: note: {tmp_path}/served/config.pbtxt:2: parameter 'kushi.max_queue_bytez' is not known"
    assert note in done.stdout
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert [line.partition(" is not known")[0] for line in warnings] == [
        "WARNING: model 'refused': parameter 'kushi.max_queue_bytez'"
    ]
