import random
import tracemalloc
from pathlib import Path

import pytest

from runners.errors import ConfigInvalid
from runners.repository.warm_up import WarmUpInput, warm_up_samples
from tests.unit.text import config


def inputs(directory: Path, given: str, *, max_batch_size: int = 4) -> list[WarmUpInput]:
    text = f"""
        name: "m" max_batch_size: {max_batch_size}
        model_warmup {{ name: "w" batch_size: 1 inputs {{ key: "A" value {{ {given} }} }} }}
    """
    (sample,) = warm_up_samples(directory, config(text))
    return list(sample.inputs)


def fault(directory: Path, given: str) -> str:
    with pytest.raises(ConfigInvalid) as raised:
        inputs(directory, given)
    return str(raised.value)


def with_file(directory: Path, content: bytes) -> str:
    (directory / "warmup").mkdir()
    (directory / "warmup" / "raw").write_bytes(content)
    return 'input_data_file: "raw"'


def test_a_model_without_samples_has_none(tmp_path: Path) -> None:
    assert warm_up_samples(tmp_path, config('name: "m"')) == ()


def test_a_sample_is_run_once_where_nothing_is_said_and_not_at_all_with_a_batch_of_none(tmp_path: Path) -> None:
    text = """
        name: "m"
        model_warmup { name: "nothing" }
        model_warmup { name: "once" batch_size: 1 }
        model_warmup { name: "often" batch_size: 8 count: 5 }
    """
    samples = warm_up_samples(tmp_path, config(text))
    assert [(sample.name, sample.batch_size, sample.times) for sample in samples] == [("once", 1, 1), ("often", 8, 5)]


def test_zeros_have_the_shape_of_a_request_of_one_row(tmp_path: Path) -> None:
    given = "data_type: TYPE_INT64 dims: [ 2, 3 ] zero_data: true"
    assert inputs(tmp_path, given) == [WarmUpInput("A", "INT64", (1, 2, 3), bytes(48))]
    assert inputs(tmp_path, given, max_batch_size=0) == [WarmUpInput("A", "INT64", (2, 3), bytes(48))]


def test_random_data_is_the_same_at_each_load(tmp_path: Path) -> None:
    given = "data_type: TYPE_FP16 dims: [ 1000 ] random_data: true"
    (first,), (second,) = inputs(tmp_path, given), inputs(tmp_path, given)
    assert first == second
    assert len(first.data) == 2000
    assert len(set(first.data)) > 200


def test_random_booleans_are_true_or_false(tmp_path: Path) -> None:
    (given,) = inputs(tmp_path, "data_type: TYPE_BOOL dims: [ 100 ] random_data: true")
    assert set(given.data) == {0, 1}


@pytest.mark.parametrize("datatype", ["TYPE_BOOL", "TYPE_UINT8"])
def test_random_data_is_drawn_in_pieces_and_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, datatype: str
) -> None:
    drawn: list[int] = []

    class Watched(random.Random):
        def randbytes(self, n: int) -> bytes:
            drawn.append(n)
            return super().randbytes(n)

    monkeypatch.setattr("runners.repository.warm_up.random.Random", Watched)
    size = 20 * 1024 * 1024 + 3
    tracemalloc.start()
    try:
        (given,) = inputs(tmp_path, f"data_type: {datatype} dims: [ {size} ] random_data: true")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(given.data), sum(drawn), max(drawn)) == (size, size, 1024 * 1024)
    assert peak < 1.5 * size


def test_more_texts_than_a_model_takes_are_not_made(tmp_path: Path) -> None:
    texts = "data_type: TYPE_STRING dims: [ 4097, 4096 ]"
    expected = "warmup sample 'w': input 'A' has more texts than 16777216, the most that a sample has"
    assert fault(tmp_path, f"{texts} zero_data: true") == expected
    assert fault(tmp_path, f"{texts} random_data: true") == expected
    assert fault(tmp_path, f'{texts} input_data_file: "raw"') == expected


@pytest.mark.parametrize("kind", ["zero_data", "random_data"])
def test_texts_are_empty_ones(tmp_path: Path, kind: str) -> None:
    (given,) = inputs(tmp_path, f"data_type: TYPE_STRING dims: [ 3 ] {kind}: true")
    assert (given.datatype, given.data) == ("BYTES", bytes(12))


def test_a_file_gives_as_many_bytes_as_the_input_has(tmp_path: Path) -> None:
    name = with_file(tmp_path, bytes(range(10)))
    (given,) = inputs(tmp_path, f"data_type: TYPE_FP32 dims: [ 2 ] {name}")
    assert given.data == bytes(range(8))


def test_texts_of_a_file_are_taken_whole(tmp_path: Path) -> None:
    name = with_file(tmp_path, b"\x02\0\0\0hi")
    (given,) = inputs(tmp_path, f"data_type: TYPE_STRING dims: [ 1 ] {name}")
    assert given.data == b"\x02\0\0\0hi"


def test_a_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    name = with_file(tmp_path, b"123")
    assert fault(tmp_path, f"data_type: TYPE_FP32 dims: [ 2 ] {name}") == (
        "warmup setting expects 8 bytes, but the data provided from raw only has 3 bytes"
    )


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    text = fault(tmp_path, 'data_type: TYPE_FP32 dims: [ 2 ] input_data_file: "nowhere"')
    assert text == f"failed to open text file for read {tmp_path}/warmup/nowhere: No such file or directory"


@pytest.mark.parametrize("name", ["../config.pbtxt", "/../../etc/passwd", "a/../../b"])
def test_a_file_outside_of_its_directory_is_not_read(tmp_path: Path, name: str) -> None:
    text = fault(tmp_path, f'data_type: TYPE_FP32 dims: [ 2 ] input_data_file: "{name}"')
    assert text.endswith(f"for input 'A' is outside directory '{tmp_path}/warmup'")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            "data_type: TYPE_FP32 dims: [ 2, -1 ] zero_data: true",
            "warmup setting expects all variable-size dimensions are specified for input 'A'",
        ),
        (
            "data_type: TYPE_FP32 dims: [ 2 ]",
            "warmup setting expects input 'A' to have input_data_type set",
        ),
        ("dims: [ 2 ] zero_data: true", "warmup sample 'w': input 'A' must specify 'data_type'"),
        (
            "data_type: TYPE_FP64 dims: [ 1000000000, 9 ] zero_data: true",
            "warmup sample 'w': input 'A' has 72000000000 bytes, expected at most 1073741824",
        ),
        (
            "data_type: TYPE_FP64 zero_data: true" + 48_000 * f" dims: {2**63 - 1}",
            f"warmup sample 'w': input 'A' has more than {2**63 - 1} bytes, expected at most 1073741824",
        ),
    ],
)
def test_an_input_that_cannot_be_made_is_refused(tmp_path: Path, given: str, text: str) -> None:
    assert fault(tmp_path, given) == text


@pytest.mark.parametrize(
    "samples",
    [
        'model_warmup { name: "w" batch_size: 1000 inputs { key: "A" value { HALF } } }',
        'model_warmup { name: "w" batch_size: 4 inputs { key: "A" value { HALF } } } ' * 3,
    ],
)
def test_all_samples_with_all_rows_have_a_bound(tmp_path: Path, samples: str) -> None:
    half = "data_type: TYPE_UINT8 dims: [ 536870912 ] zero_data: true"
    with pytest.raises(ConfigInvalid, match="with all rows of their batches, expected at most 4294967296"):
        warm_up_samples(tmp_path, config(f'name: "m" max_batch_size: 1000 {samples.replace("HALF", half)}'))


def test_texts_of_files_count_as_they_are(tmp_path: Path) -> None:
    text = b"".join([(1 << 20).to_bytes(4, "little"), bytes(1 << 20)])
    name = with_file(tmp_path, text)
    given = f"data_type: TYPE_STRING dims: [ 1 ] {name}"
    sample = f'model_warmup {{ name: "w" batch_size: 2048 inputs {{ key: "A" value {{ {given} }} }} }} '
    assert len(warm_up_samples(tmp_path, config(f'name: "m" max_batch_size: 2048 {sample}'))) == 1
    with pytest.raises(ConfigInvalid, match="expected at most 4294967296"):
        warm_up_samples(tmp_path, config(f'name: "m" max_batch_size: 2048 {sample * 2}'))


def test_much_random_data_is_made(tmp_path: Path) -> None:
    size = (256 << 20) + 7
    (given,) = inputs(tmp_path, f"data_type: TYPE_UINT8 dims: [ {size} ] random_data: true")
    assert len(given.data) == size
