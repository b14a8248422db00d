"""All that is wrong with a configuration at once, with fields and lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from runners.cli import main
from runners.control import problems
from runners.repository.field_lines import field_lines
from tests import models

if TYPE_CHECKING:
    from pathlib import Path

Said = pytest.CaptureFixture[str]

MANY = """\
backend: "onnxruntime"
max_batch_size: 4
# a comment: { "
input [ {
    name: "INPUT0"
    data_type: TYPE_INT32
    dims: [ 1 ]
    is_shape_tensor: true } ]
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }
dynamic_batching <
  preferred_batch_size: [ 2,
    9 ]
>
instance_group [ { count: 1 },
  { count: -4 } ]
parameters: { key: "kushi.isolate", value { string_value: 'per' "haps" } };
parameters { key: "kushi.versions"
  value { string_value: "none" } }
"""


def check(repository: Path, capsys: Said) -> list[tuple[str, int]]:
    code = main(["check", "--format", "json", str(repository)])
    (row,) = json.loads(capsys.readouterr().out)
    assert (code, row["served"]) == (1 if row["problems"] else 0, not row["problems"])
    if row["problems"]:
        first = row["problems"][0]
        assert first["text"].replace(f".pbtxt:{first['line']}: ", ".pbtxt: ") in {row["reason"], first["text"]}
    return [(problem["field"], problem["line"]) for problem in row["problems"]]


def test_all_of_them_are_found_each_in_its_line(tmp_path: Path, capsys: Said) -> None:
    models.write(tmp_path, "m", models.plus_constant(1), MANY)
    found = check(tmp_path, capsys)
    assert sorted(found, key=lambda problem: problem[1]) == [
        ("input[0].is_shape_tensor", 8),
        ("dynamic_batching.preferred_batch_size", 11),
        ("instance_group[1].count", 15),
        ("parameters[kushi.isolate]", 16),
        ("parameters[kushi.versions]", 17),
    ]
    assert main(["check", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[0].startswith(f"m: not served: {tmp_path}/m/config.pbtxt:8: field 'input[0].is_shape_tensor' is not")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ('backend: "fastdeploy"\nmax_batch_size: -3', [("backend", 1)]),
        ('name: "other"\n', [("name", 1)]),
        ("max_batch_size: 1\nmax_batchsize: 2", [("", 2)]),
        ("\n\nmax_batch_size: -2", [("max_batch_size", 3)]),
        ("\nruntime: 'r'\nmetric_tags { key: 'a' value: 'b' }", [("runtime", 2)]),
        ("version_policy { specific { versions: [ 7 ] } }", [("version_policy", 1)]),
    ],
)
def test_what_is_one_problem_is_one(tmp_path: Path, capsys: Said, text: str, expected: list[tuple[str, int]]) -> None:
    models.write(tmp_path, "m", models.plus_constant(1), text)
    assert check(tmp_path, capsys) == expected


ENSEMBLE = """platform: "ensemble" max_batch_size: 2
instance_group {{ count: {} }}
input {{ name: "A" data_type: TYPE_INT32 dims: 1 }} output {{ name: "B" data_type: TYPE_INT32 dims: 1 }}
ensemble_scheduling {{ step {{ model_name: "p" model_version: {}
  input_map {{ key: "INPUT0" value: "A" }} output_map {{ key: "OUTPUT0" value: "B" }} }} }}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ENSEMBLE.format(1, -5), [("instance_group", 2), ("ensemble_scheduling.step[0].model_version", 4)]),
        (ENSEMBLE.format(-2, -1), [("instance_group", 2)]),
        (
            """max_batch_size: 4\ndynamic_batching { priority_levels: 2 default_priority_level: 1
            priority_queue_policy { key: 7 value { max_queue_size: 1 } } }""",
            [("dynamic_batching.priority_queue_policy", 3)],
        ),
        ('model_repository_agents { agents { name: "c" parameters { key: "m" value: "y" } } }', None),
    ],
)
def test_maps_inside_of_others_are_looked_at_too(
    tmp_path: Path, capsys: Said, text: str, expected: list[tuple[str, int]] | None
) -> None:
    models.write(tmp_path / "r", "m", models.plus_constant(1), text)
    if text.startswith("platform"):
        models.write(tmp_path / "r", "p", models.plus_constant(1), 'backend: "onnxruntime" max_batch_size: 2')
    assert main(["check", "--format", "json", str(tmp_path / "r")]) == 1
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    row = next(row for row in json.loads(captured.out) if row["name"] == "m")
    found = [(problem["field"], problem["line"]) for problem in row["problems"]]
    assert found
    assert expected is None or found == expected


def test_when_the_time_is_over_a_problem_is_about_no_field(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.write(tmp_path, "m", models.plus_constant(1), MANY)
    monkeypatch.setattr(problems, "_MOST_SECONDS", 0.0)
    assert check(tmp_path, capsys) == [("", 0)]


def test_a_missing_file_is_a_problem_of_no_field(tmp_path: Path, capsys: Said) -> None:
    models.write(tmp_path, "m", models.plus_constant(1), 'backend: "onnxruntime"\nmax_batch_size: -1')
    (tmp_path / "m" / "1" / "model.onnx").unlink()
    assert check(tmp_path, capsys) == [("max_batch_size", 2), ("", 0)]


def test_lines_of_fields_are_found_in_any_form_of_the_text() -> None:
    found = field_lines(MANY)
    assert found["input[0].dims"] == 7
    assert found["output[0].data_type"] == 9
    assert (found["instance_group[0].count"], found["instance_group[1].count"]) == (14, 15)
    assert found["parameters[kushi.versions]"] == 17
    # up to where it can be read
    assert field_lines('name: "m"\nwhat: 3\ninput { }') == {"name": 1}
    assert field_lines("") == {}
    assert field_lines("input { dims: [ 1, 2").keys() == {"input"}
