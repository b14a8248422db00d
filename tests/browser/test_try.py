"""Any model can be asked by a form, and what was sent can be sent again from a shell and from Python."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tritonclient.http as httpclient
from PIL import Image

from tests import models
from tests.e2e.pictures import encoded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.conftest import OpenPage
    from tests.serving import Server


def opened(open_page: OpenPage, server: Server, model: str, **options: Any) -> Any:  # noqa: ANN401 - of Playwright
    page = open_page(f"{server.url}/#models/{model}", **options)
    page.get_by_role("button", name="Send").wait_for()
    return page


def send(page: Any) -> None:  # noqa: ANN401 - of Playwright
    page.get_by_role("button", name="Send").click()
    page.get_by_text("Answered by version").wait_for()


def code(page: Any, language: str) -> str:  # noqa: ANN401 - of Playwright
    shown = page.locator("details", has_text=f"The same with {language}")
    shown.locator("summary").click()
    text: str = shown.locator("code").inner_text()
    return text


def run(program: list[str], folder: Path, text: str | None = None) -> str:
    done = subprocess.run(program, cwd=folder, input=text, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def test_numbers_are_sent_and_answered(open_page: OpenPage, server: Server, tmp_path: Path) -> None:
    page = opened(open_page, server, "add_sub")
    page.get_by_label("INPUT0: numbers").fill(json.dumps(list(range(16))))
    page.get_by_label("INPUT1: numbers").fill(" ".join(["2"] * 16))
    send(page)
    sums = page.locator(".output", has_text="OUTPUT0").inner_text()
    assert "INT32 [1, 16]" in sums
    # of many columns the largest: the last one is 15 + 2
    assert "15: 17" in sums
    assert "queue" in page.get_by_role("list", name="Time of the request").inner_text()
    answer = json.loads(run(["sh"], tmp_path, code(page, "curl")))
    assert answer["outputs"][0]["data"] == [number + 2 for number in range(16)]
    printed = run([sys.executable, "-"], tmp_path, code(page, "Python"))
    assert "OUTPUT0 [[ 2  3  4" in printed


def test_large_inputs_go_as_bytes(open_page: OpenPage, server: Server, tmp_path: Path) -> None:
    page = opened(open_page, server, "identity_fp32")
    page.get_by_label("Size of dimension 2 of INPUT0").fill("5000")
    page.get_by_label("Values of INPUT0").select_option("random numbers")
    send(page)
    assert "5,000 values from" in page.locator(".output").inner_text()
    command = code(page, "curl")
    with page.expect_download() as found:
        page.get_by_role("button", name="Save request.bin").click()
    found.value.save_as(tmp_path / "request.bin")
    answer = json.loads(run(["sh"], tmp_path, command))
    sent = np.frombuffer((tmp_path / "request.bin").read_bytes()[-20_000:], np.float32)
    assert np.array(answer["outputs"][0]["data"], np.float32).tolist() == sent.tolist()
    assert "OUTPUT0 [[0." in run([sys.executable, "-"], tmp_path, code(page, "Python"))


@pytest.mark.parametrize("datatype", [name for name in models.DATATYPES if name != "BYTES"])
@pytest.mark.parametrize("rows", [1, 600], ids=["as JSON where it can", "as bytes"])
def test_values_of_each_type_come_back_as_they_went(
    open_page: OpenPage, server: Server, datatype: str, rows: int
) -> None:
    page = opened(open_page, server, f"identity_{datatype.lower()}")
    values = {
        "BOOL": ["true", "false"],
        "UINT64": ["18446744073709551615", "0"],
        "INT64": ["-9223372036854775807", "5"],
    }
    least = "0" if datatype.startswith("U") else "-7"
    first, second = values.get(datatype, [least, "1.5" if datatype.startswith(("FP", "BF")) else "3"])
    page.get_by_label("Size of dimension 2 of INPUT0").fill(str(2 * rows))
    page.get_by_label("INPUT0: numbers").fill(f"[{', '.join([first, second] * rows)}]")
    send(page)
    if rows == 1:
        assert [cell.replace(",", "") for cell in page.locator(".output td").all_inner_texts()] == [first, second]
        return
    with page.expect_download() as found:
        page.get_by_role("button", name="Save all of it").click()
    assert found.value.path().read_text().split("\n") == [first, second] * rows


def test_texts_and_files_are_sent(open_page: OpenPage, server: Server, tmp_path: Path) -> None:
    page = opened(open_page, server, "string")
    page.get_by_label("INPUT0: a text for each line").fill('Grüße <b>&amp;</b> "串"')
    send(page)
    assert page.locator(".output pre").inner_text() == 'Grüße <b>&amp;</b> "串"'
    assert "串" in run(["sh"], tmp_path, code(page, "curl"))
    page.get_by_label("Values of INPUT0").select_option("a file, byte by byte")
    page.get_by_role("button", name="Send").click()
    page.get_by_text("INPUT0: choose a file first").wait_for()
    (tmp_path / "note.txt").write_text("from a file")
    page.get_by_label("INPUT0: a file, byte by byte").set_input_files(tmp_path / "note.txt")
    send(page)
    assert page.locator(".output pre").inner_text() == "from a file"
    assert "from a file" in run([sys.executable, "-"], tmp_path, code(page, "Python"))


def test_a_picture_becomes_the_tensor_that_python_makes_of_it(
    open_page: OpenPage, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "dots.png").write_bytes(encoded(Image.effect_noise((12, 10), 90).convert("RGB")))
    page = opened(open_page, server, "image")
    for dimension, size in ((3, 10), (4, 12)):
        page.get_by_label(f"Size of dimension {dimension} of INPUT0").fill(str(size))
    page.get_by_label("INPUT0: a picture").set_input_files(tmp_path / "dots.png")
    page.get_by_label("Range of the pixels of INPUT0").select_option("as for ImageNet")
    send(page)
    program = code(page, "Python").replace("print(", "result.as_numpy(output['name']).tofile('values') or print(")
    run([sys.executable, "-"], tmp_path, program)
    with page.expect_download() as found:
        page.get_by_role("button", name="Save all of it").click()
    shown = [float(line) for line in found.value.path().read_text().split("\n")]
    np.testing.assert_allclose(shown, np.fromfile(tmp_path / "values", np.float32), atol=1e-5)


def test_optional_inputs_may_be_left_out(open_page: OpenPage, server: Server) -> None:
    page = opened(open_page, server, "optional")
    for box in page.get_by_role("checkbox").all():
        assert box.is_checked()
    page.get_by_role("checkbox").last.uncheck()
    send(page)
    # what the model takes in its place
    assert page.locator(".output td").all_inner_texts() == ["1,000"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("[1, 2, 3]", "INPUT0: expected 16 values for [1, 16], got 3"),
        ("one two", "INPUT0: expected numbers such as [1, 2, 3]"),
        (json.dumps([1.5] * 16), "INPUT0: expected numbers such as"),
        (json.dumps([2**31] * 16), "INPUT0: 2147483648 does not fit into INT32"),
    ],
)
def test_what_cannot_be_sent_is_said_before_it_is_sent(
    open_page: OpenPage, server: Server, typed: str, said: str
) -> None:
    page = opened(open_page, server, "add_sub")
    page.get_by_label("INPUT0: numbers").fill(typed)
    page.get_by_role("button", name="Send").click()
    assert said in page.get_by_role("alert").inner_text()


def test_what_the_server_refuses_is_said_in_its_words(open_page: OpenPage, server: Server) -> None:
    page = opened(open_page, server, "add_sub")
    page.get_by_label("Size of dimension 1 of INPUT0").fill("9")
    page.get_by_label("Size of dimension 1 of INPUT1").fill("9")
    page.get_by_role("button", name="Send").click()
    assert "batch-size must be <= 8" in page.get_by_role("alert").inner_text()


def test_a_model_that_is_not_there_is_said(open_page: OpenPage, server: Server) -> None:
    page = open_page(f"{server.url}/#models/nobody")
    assert "unknown model: 'nobody'" in page.get_by_role("alert").inner_text()


def test_halves_are_what_numpy_says(open_page: OpenPage, server: Server) -> None:
    page = open_page(server.url)
    every = np.arange(2**16, dtype=np.uint16)
    decoded = page.evaluate(
        "async bytes => { const { decode } = await import('/playground/tensors.js');"
        " return decode('FP16', new Uint8Array(bytes)).map(String); }",
        list(every.tobytes()),
    )
    expected = every.view(np.float16).astype(np.float64)
    found = np.array([float(value) for value in decoded])
    np.testing.assert_array_equal(found, expected)
    numbers = np.concatenate([expected[np.isfinite(expected)], np.linspace(-70_000, 70_000, 9_999), [1e-9, 65519.9]])
    encoded_bytes = page.evaluate(
        "async values => { const { encode } = await import('/playground/tensors.js');"
        " return [...encode('FP16', values)]; }",
        numbers.tolist(),
    )
    with np.errstate(over="ignore"):
        single = numbers.astype(np.float32).astype(np.float16)
    assert bytes(encoded_bytes) == single.tobytes()


def test_versions_are_asked_as_they_are_named(open_page: OpenPage, server: Server) -> None:
    with httpclient.InferenceServerClient(f"{server.http[0]}:{server.http[1]}") as client:
        index = client.get_model_repository_index()
    (name, version) = next((one["name"], one["version"]) for one in index if one.get("version") == "2")
    page = opened(open_page, server, f"{name}/{version}")
    page.get_by_label("INPUT0: numbers").fill("[40]")
    send(page)
    assert page.locator(".output td").all_inner_texts() == ["42"]
    assert f'model_version="{version}"' in code(page, "Python")


def test_what_is_cut_says_so_and_can_be_saved(open_page: OpenPage, server: Server) -> None:
    page = opened(open_page, server, "identity_fp32")
    page.get_by_label("Size of dimension 1 of INPUT0").fill("8")
    page.get_by_label("Size of dimension 2 of INPUT0").fill("100")
    page.get_by_label("Values of INPUT0").select_option("zeros")
    send(page)
    assert "800 values from 0 to 0" in page.locator(".output").inner_text()
    page.get_by_role("button", name="Save all of it").wait_for()


@pytest.mark.parametrize("size", ["1.5", "-1", "9999999"])
def test_sizes_that_make_no_sense_are_said(open_page: OpenPage, server: Server, size: str) -> None:
    page = opened(open_page, server, "identity_fp32")
    page.get_by_label("Values of INPUT0").select_option("zeros")
    page.get_by_label("Size of dimension 2 of INPUT0").fill(size)
    page.get_by_role("button", name="Send").click()
    assert (
        page.get_by_role("alert").inner_text().startswith(("INPUT0: expected whole sizes", "INPUT0: this page sends"))
    )
