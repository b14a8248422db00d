from pathlib import Path
from typing import cast

import pytest
from kushi_native import OnnxModel

from runners.backends import Loaded, backend
from runners.backends.onnxruntime import backend as onnxruntime
from runners.backends.onnxruntime.backend import load
from runners.backends.onnxruntime.options import SessionOptions
from runners.backends.onnxruntime.values import Provider
from runners.errors import ConfigInvalid, EngineFailed, Unsupported
from runners.repository.layout import scan
from runners.repository.resolve import resolve
from tests import models
from tests.unit.text import config, fp32


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


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("max_batch_size: 4 input { name: 'X' dims: [ 3, -1 ] }", [1, 3, 32]),
        ("max_batch_size: 0 input { name: 'X' dims: [ 3, -1 ] }", [3, 32]),
        ("max_batch_size: 4 input { name: 'X' dims: [ 6 ] reshape { shape: [ 2, 3 ] } }", [1, 2, 3]),
        ("max_batch_size: 4 input { name: 'X' dims: [ 1 ] reshape { } }", [1]),
    ],
)
def test_a_model_is_measured_on_one_row_of_the_shape_that_it_sees(text: str, shape: list[int]) -> None:
    assert onnxruntime._example_shapes(config(text), [fp32("X", -1, -1)], 32) == {"X": shape}


def test_a_scalar_is_measured_as_a_scalar_and_an_optional_input_not_at_all() -> None:
    text = "input { name: 'X' dims: 1 } input { name: 'Z' dims: 1 optional: true }"
    assert onnxruntime._example_shapes(config(text), [fp32("X")], 32) == {"X": []}


class Refusing:
    """A model that refuses variable dimensions of more than `largest`"""

    def __init__(self, largest: int) -> None:
        self.largest = largest

    def measure(self, shapes: dict[str, list[int]], runs: int) -> float:
        if max(shapes["X"]) > self.largest:
            raise EngineFailed("too large")
        return 0.25


@pytest.mark.parametrize(("largest", "seconds"), [(32, 0.25), (1, 0.25), (0, None)])
def test_a_refused_measurement_is_tried_with_ones_and_then_given_up(largest: int, seconds: float | None) -> None:
    variable = config("input { name: 'X' dims: -1 }")
    model = cast("OnnxModel", Refusing(largest))
    assert onnxruntime._measure(model, variable, [fp32("X", -1)]) == seconds


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(Unsupported, match="backend 'torch' is not supported by this version, expected one of onnxru"):
        backend("torch")


class Opened:
    """Takes the place of a session: what it was opened with"""

    def __init__(self, options: SessionOptions) -> None:
        self.options = options


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    """Every session that is opened, without one"""
    sessions: list[Opened] = []

    def open_(options: SessionOptions, _: Path) -> Opened:
        sessions.append(Opened(options))
        return sessions[-1]

    monkeypatch.setattr(SessionOptions, "open", open_)
    return sessions


def assembled(
    places: list[int | None], *, threads: int = 0, probe: int | None = None, profile: str | None = None
) -> list[tuple[int, tuple[str, ...], str | None]]:
    """Which session each instance has, on which providers, and where its profile goes"""
    options = SessionOptions(threads, 0, parallel=False, graph_level=99, profile=profile)
    providers = {gpu: () if gpu is None else (Provider("cuda", (("device_id", str(gpu)),)),) for gpu in places}
    sessions = onnxruntime._Sessions(Path("m.onnx"), options, providers, own_threads=threads > 1)
    sessions.probe(probe)
    made = cast("list[Opened]", sessions.open(places, threads or 1))
    numbers = {id(session): number for number, session in enumerate(dict.fromkeys(made))}
    return [
        (
            numbers[id(session)],
            tuple(value for provider in session.options.providers for _, value in provider.options),
            session.options.profile,
        )
        for session in made
    ]


def test_instances_on_the_cpu_share_the_session_that_looked_at_the_model(opened: list[Opened]) -> None:
    assert assembled([None, None, None]) == [(0, (), None)]
    assert len(opened) == 1


def test_instances_with_threads_of_their_own_have_a_session_each(opened: list[Opened]) -> None:
    assert assembled([None, None], threads=3) == [(0, (), None), (1, (), None)]
    assert [session.options.intra_op_threads for session in opened] == [3, 3]


def test_each_instance_on_a_gpu_has_a_session_beside_the_one_of_the_cpu(opened: list[Opened]) -> None:
    made = assembled([0, 0, 1, None, None])
    assert made == [(0, ("0",), None), (1, ("0",), None), (2, ("1",), None), (3, (), None), (3, (), None)]
    assert len(opened) == 4


def test_the_session_that_looked_at_the_model_on_a_gpu_serves_there(opened: list[Opened]) -> None:
    assert assembled([0, 0], probe=0) == [(0, ("0",), None), (1, ("0",), None)]
    assert len(opened) == 2


def test_profiles_are_of_the_sessions_that_serve(opened: list[Opened]) -> None:
    assert assembled([None, 0], profile="/p/m_1") == [(0, (), "/p/m_1_0"), (1, ("0",), "/p/m_1_1")]
    assert opened[0].options.profile is None
