from pathlib import Path

import pytest

from runners.backends.pipeline import Loaded, load
from runners.errors import ConfigInvalid
from runners.repository.layout import scan
from runners.repository.resolve import resolve
from tests import models


def loaded(repository: Path, *, auto_complete: bool = True) -> Loaded:
    (source,) = scan([repository]).models
    model = resolve(source, auto_complete=auto_complete)
    return load(source, model.config, model.versions[-1], auto_complete=auto_complete)


def test_a_model_without_configuration_is_completed_from_its_file(tmp_path: Path) -> None:
    models.write(tmp_path, "m", models.add_sub(["batch", 16]))
    made = loaded(tmp_path)
    assert made.specification.max_batch_size == 4
    assert [(t.name, t.datatype, t.dims) for t in made.specification.inputs] == [
        ("INPUT0", "INT32", (16,)),
        ("INPUT1", "INT32", (16,)),
    ]
    assert made.specification.batching is not None
    assert made.specification.batching.preferred_batch_sizes == (4,)
    assert (made.specification.instances, len(made.sessions)) == (2, 1)
    assert made.specification.load_seconds > 0


def test_a_short_model_runs_on_one_thread_and_may_run_inline(tmp_path: Path) -> None:
    models.write(tmp_path, "m", models.add_sub(["batch", 16]))
    made = loaded(tmp_path)
    assert (made.intra_op_threads, made.specification.inline) == (1, True)


def test_a_model_with_threads_of_its_own_never_runs_inline(tmp_path: Path) -> None:
    text = 'parameters { key: "intra_op_thread_count" value { string_value: "3" } }'
    models.write(tmp_path, "m", models.add_sub(["batch", 16]), text)
    made = loaded(tmp_path)
    assert (made.intra_op_threads, made.specification.inline) == (3, False)
    assert len(made.sessions) == made.specification.instances == 2


def test_a_parallel_graph_never_runs_inline(tmp_path: Path) -> None:
    text = 'parameters { key: "execution_mode" value { string_value: "1" } }'
    models.write(tmp_path, "m", models.add_sub(["batch", 16]), text)
    assert not loaded(tmp_path).specification.inline


def test_a_scalar_is_reshaped_for_the_model(tmp_path: Path) -> None:
    models.write(tmp_path, "m", models.scalar())
    (tensor,) = loaded(tmp_path).specification.inputs
    assert (tensor.dims, tensor.reshape) == ((1,), ())


def test_a_misfit_names_the_configuration_file(tmp_path: Path) -> None:
    inputs = [("INPUT0", "FP32", [16]), ("INPUT1", "INT32", [16])]
    text = models.config("m", inputs, [("OUTPUT0", "INT32", [16])], max_batch_size=4)
    models.write(tmp_path, "m", models.add_sub(["batch", 16]), text)
    with pytest.raises(ConfigInvalid, match=r"config\.pbtxt: .*expects datatype TYPE_FP32 for input 'INPUT0'"):
        loaded(tmp_path)


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    models.write(tmp_path, "m", b"not a model")
    with pytest.raises(ConfigInvalid) as raised:
        loaded(tmp_path)
    path = tmp_path / "m" / "1" / "model.onnx"
    assert str(raised.value) == f"onnx model '{path}' cannot be loaded: Protobuf parsing failed."


def test_without_auto_completion_the_configuration_must_be_complete(tmp_path: Path) -> None:
    models.write(tmp_path, "m", models.add_sub(["batch", 16]), "max_batch_size: 4")
    with pytest.raises(ConfigInvalid, match="configuration expects 0 inputs, model provides 2"):
        loaded(tmp_path, auto_complete=False)
