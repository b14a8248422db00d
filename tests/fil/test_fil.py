"""Forests of decision trees, equal to the libraries that have trained them."""

from __future__ import annotations

import platform
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
import pytest
import treelite
import xgboost
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn import ensemble
from tritonclient.http import InferenceServerClient, InferInput

from runners import Engine, EngineOptions, InvalidInput, KushiError, LogOptions, ModelOptions
from runners.cli import main
from tests.fil.forests import FEATURES, MAKERS, Trained, rows, targets, trained

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.conftest import StartServer

EXPLICIT = EngineOptions(models=ModelOptions(control="explicit"))
CLASSIFIERS = [name for name in MAKERS if any(word in name for word in (" binary", "classifier", " of ", "dart"))]


def answers(repository: Path, data: NDArray[np.float32], name: str = "m", output: str = "output__0") -> Any:  # noqa: ANN401 - an array of any shape
    with Engine(repository) as engine:
        return np.asarray(engine.infer(name, data)[output])


def refusal(repository: Path, name: str = "m") -> str:
    with Engine(repository, options=EXPLICIT) as engine, pytest.raises(KushiError) as raised:
        engine.load_model(name)
    return str(raised.value)


@pytest.mark.parametrize("name", MAKERS)
def test_values_are_those_of_its_own_library(tmp_path: Path, name: str) -> None:
    model = trained(name)
    model.put(tmp_path / "m", predict_proba="true")
    with Engine(tmp_path) as engine:
        for count in (1, 2, 5, 8, 13, 64, 71, len(model.rows)):
            answer = np.asarray(engine.infer("m", model.rows[:count])["output__0"])
            expected = model.values[:count].reshape(count, -1)
            np.testing.assert_allclose(answer, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_answers_the_number_of_the_class(tmp_path: Path, name: str) -> None:
    model = trained(name)
    model.put(tmp_path / "m")
    values = model.values
    expected = values.argmax(axis=1) if values.ndim > 1 else values > 0.5
    np.testing.assert_array_equal(answers(tmp_path, model.rows), expected.astype(np.float32)[:, None])


@pytest.mark.parametrize("parameters", [{"predict_proba": "true"}, {}], ids=["values", "classes"])
@pytest.mark.parametrize(
    "name", ["xgboost binary", "xgboost of five", "lightgbm regressor", "sklearn classifier of two"]
)
def test_a_self_test_holds_it_against_treelite(tmp_path: Path, name: str, parameters: dict[str, str]) -> None:
    trained(name).put(tmp_path / "m", **{"kushi.self_test": "random"}, **parameters)
    with Engine(tmp_path) as engine:
        said = engine.get_model_config("m")["parameters"]["kushi.self_tested"]["string_value"]
    assert said.startswith("64 requests are answered as by fil alone, 64 of them also in one batch and beside others")


def test_the_threshold_and_the_older_name_of_a_classifier(tmp_path: Path) -> None:
    model = trained("xgboost binary")
    model.put(tmp_path / "m", threshold="0.8", is_classifier="false", output_class="true")
    np.testing.assert_array_equal(answers(tmp_path, model.rows)[:, 0], (model.values > 0.8).astype(np.float32))


def test_without_a_word_the_model_says_whether_it_is_a_classifier(tmp_path: Path) -> None:
    model = trained("xgboost binary")
    for name, file in (("m", "xgboost.json"), ("n", "xgboost.ubj")):
        version = tmp_path / name / "1"
        version.mkdir(parents=True)
        xgboost.Booster(model_file=_saved(model, tmp_path)).save_model(version / file)
        (tmp_path / name / "config.pbtxt").write_text('backend: "fil"')
    with Engine(tmp_path) as engine:
        for name in ("m", "n"):
            config = engine.get_model_config(name)
            assert (config["max_batch_size"], "dynamic_batching" in config) == (4, True)
            assert config["input"][0]["dims"] == [FEATURES]
            assert engine.get_model_metadata(name)["platform"] == "fil"
            answer = np.asarray(engine.infer(name, model.rows[:4])["output__0"])
            np.testing.assert_array_equal(answer[:, 0], (model.values[:4] > 0.5).astype(np.float32))


def _saved(model: Trained, directory: Path) -> Path:
    path = directory / f"saved{len(list(directory.iterdir()))}.json"
    model.save(path)
    return path


def test_both_probabilities_where_there_is_room_for_them(tmp_path: Path) -> None:
    model = trained("lightgbm binary")
    config = model.put(tmp_path / "m", predict_proba="true")
    with config.open("a") as file:
        file.write('output [ { name: "output__0" data_type: TYPE_FP32 dims: [ 2 ] } ]\n')
        file.write(f'input [ {{ name: "input__0" data_type: TYPE_FP32 dims: [ {FEATURES} ] }} ]\n')
    expected = np.stack([1 - model.values, model.values], axis=1)
    np.testing.assert_allclose(answers(tmp_path, model.rows), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["xgboost binary", "xgboost of five", "lightgbm regressor", "xgboost categories"])
def test_contributions_are_those_of_its_own_library(tmp_path: Path, name: str) -> None:
    model = trained(name)
    path = tmp_path / f"original{model.file[-5:]}"
    model.save(path)
    if name.startswith("lightgbm"):
        expected = lightgbm.Booster(model_file=path).predict(model.rows, pred_contrib=True)
    else:
        booster = xgboost.Booster(model_file=path)
        types = ["c" if name.endswith("categories") and index < 4 else "q" for index in range(FEATURES)]
        matrix = xgboost.DMatrix(model.rows, feature_types=types, enable_categorical=True)
        expected = booster.predict(matrix, pred_contribs=True)
    dims = list(expected.shape[1:])
    config = model.put(tmp_path / "repository" / "m", predict_proba="true")
    with config.open("a") as file:
        file.write(
            f'input [ {{ name: "input__0" data_type: TYPE_FP32 dims: [ {FEATURES} ] }} ]\n'
            f'output [ {{ name: "treeshap_output" data_type: TYPE_FP32 dims: {dims} }},\n'
            f'{{ name: "output__0" data_type: TYPE_FP32 dims: [ {model.width} ] }} ]\n'
        )
    with Engine(tmp_path / "repository") as engine:
        both = engine.infer("m", model.rows)
        np.testing.assert_allclose(np.asarray(both["treeshap_output"]), expected, rtol=1e-3, atol=2e-5)
        np.testing.assert_allclose(
            np.asarray(both["output__0"]), model.values.reshape(len(model.rows), -1), rtol=2e-5, atol=2e-6
        )
        one = engine.infer("m", model.rows[:3], outputs=["treeshap_output"])
        assert list(one) == ["treeshap_output"]


def test_contributions_of_a_forest_add_up(tmp_path: Path) -> None:
    model = trained("sklearn classifier of three")
    config = model.put(tmp_path / "m", predict_proba="true")
    with config.open("a") as file:
        file.write(
            f'input [ {{ name: "input__0" data_type: TYPE_FP32 dims: [ {FEATURES} ] }} ]\n'
            'output [ { name: "output__0" data_type: TYPE_FP32 dims: [ 3 ] },\n'
            f'{{ name: "treeshap_output" data_type: TYPE_FP32 dims: [ 3, {FEATURES + 1} ] }} ]\n'
        )
    np.testing.assert_allclose(
        answers(tmp_path, model.rows, output="treeshap_output").sum(axis=2), model.values, atol=1e-5
    )


def test_a_large_batch_is_divided_among_threads(tmp_path: Path) -> None:
    """Some 15 million steps down trees, of which a thread takes four at least"""
    data = rows(16384, missing=True)
    matrix = xgboost.DMatrix(data, targets(data, 40))
    booster = xgboost.train({"max_depth": 8, "nthread": 2}, matrix, 100)
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    booster.save_model(version / "xgboost.json")
    answered = []
    for threads in ("1", "3"):
        (tmp_path / "m" / "config.pbtxt").write_text(
            'backend: "fil" max_batch_size: 16384 '
            f'parameters {{ key: "cpu_nthread" value {{ string_value: "{threads}" }} }}'
        )
        answered.append(answers(tmp_path, data))
    np.testing.assert_array_equal(*answered)
    np.testing.assert_allclose(answered[0][:, 0], booster.predict(matrix), rtol=2e-5, atol=1e-4)


TRITONS_PAGE = """
backend: "fil"
max_batch_size: 32768
input [
 {
    name: "input__0"
    data_type: TYPE_FP32
    dims: [ 9 ]
  }
]
output [
 {
    name: "output__0"
    data_type: TYPE_FP32
    dims: [ 5 ]
  }
]
instance_group [{ kind: KIND_AUTO }]
parameters [
  {
    key: "model_type"
    value: { string_value: "xgboost_ubj" }
  },
  {
    key: "is_classifier"
    value: { string_value: "true" }
  },
  {
    key: "predict_proba"
    value: { string_value: "true" }
  },
  {
    key: "algo"
    value: { string_value: "ALGO_AUTO" }
  },
  {
    key: "storage_type"
    value: { string_value: "AUTO" }
  }
]

dynamic_batching {}
"""


def test_a_configuration_as_triton_documents_it_over_http(tmp_path: Path, start_server: StartServer) -> None:
    model = trained("xgboost of five")
    config = model.put(tmp_path / "m")
    config.write_text(TRITONS_PAGE)
    server = start_server(tmp_path)
    client = InferenceServerClient(server.url.removeprefix("http://"))
    tensor = InferInput("input__0", [17, FEATURES], "FP32")
    tensor.set_data_from_numpy(model.rows[:17])
    answer = client.infer("m", [tensor]).as_numpy("output__0")
    np.testing.assert_allclose(answer, model.values[:17], rtol=2e-5, atol=2e-6)
    tensor = InferInput("input__0", [17, 4], "FP32")
    tensor.set_data_from_numpy(model.rows[:17, :4].copy())
    with pytest.raises(Exception, match="unexpected shape for input 'input__0'"):
        client.infer("m", [tensor])


def test_a_file_alone_is_served_and_made_a_model(tmp_path: Path) -> None:
    model = trained("xgboost of five")
    model.save(tmp_path / "flowers.ubj")
    with Engine(tmp_path / "flowers.ubj") as engine:
        answer = np.asarray(engine.infer("flowers", model.rows[:4])["output__0"])
    np.testing.assert_array_equal(answer[:, 0], model.values[:4].argmax(axis=1).astype(np.float32))
    assert main(["init", str(tmp_path / "flowers.ubj"), "--repository", str(tmp_path / "repository")]) == 0
    assert (tmp_path / "repository" / "flowers" / "1" / "xgboost.ubj").is_file()
    assert main(["check", str(tmp_path / "repository")]) == 0
    np.testing.assert_array_equal(answers(tmp_path / "repository", model.rows[:4], "flowers"), answer)


def test_a_checkpoint_needs_no_treelite(tmp_path: Path) -> None:
    model = trained("sklearn random forest")
    model.put(tmp_path / "repository" / "m")
    trained("xgboost regressor").put(tmp_path / "repository" / "n")
    np.save(tmp_path / "rows.npy", model.rows)
    program = """
import sys
sys.modules["treelite"] = None
import numpy as np
from runners import Engine, EngineOptions, KushiError, ModelOptions
with Engine(sys.argv[1], options=EngineOptions(models=ModelOptions(control="explicit"))) as engine:
    engine.load_model("m")
    np.save(sys.argv[2], np.asarray(engine.infer("m", np.load(sys.argv[3]))["output__0"]))
    try:
        engine.load_model("n")
    except KushiError as error:
        print(error)
"""
    arguments = [tmp_path / "repository", tmp_path / "answer.npy", tmp_path / "rows.npy"]
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "answer.npy")[:, 0], model.values, rtol=2e-5, atol=2e-6)
    assert "model_type 'xgboost_json' needs Treelite" in done.stdout
    assert "pip install 'kushi[fil]'" in done.stdout


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    model = trained("xgboost binary")
    for name, parameters, text in (
        (
            "type",
            {"model_type": "catboost"},
            "parameter 'model_type' of model 'type': expected one of treelite_checkpoint, xgboost_json",
        ),
        ("lightgbm", {"model_type": "lightgbm"}, "unable to find"),
        ("threshold", {"threshold": "high"}, "parameter 'threshold' of model 'threshold': expected a number, got"),
        ("switch", {"predict_proba": "perhaps"}, "parameter 'predict_proba' of model 'switch': expected"),
        ("threads", {"cpu_nthread": "all"}, "parameter 'cpu_nthread' of model 'threads': expected a non-negative"),
    ):
        model.put(tmp_path / name, **parameters)
        assert text in refusal(tmp_path, name)
    config = model.put(tmp_path / "gpu")
    config.write_text(config.read_text() + "instance_group { kind: KIND_GPU }")
    assert "forests are executed on CPUs" in refusal(tmp_path, "gpu")
    config = model.put(tmp_path / "dims")
    config.write_text(
        f'{config.read_text()} input {{ name: "input__0" data_type: TYPE_FP32 dims: 5 }}'
        'output { name: "output__0" data_type: TYPE_FP32 dims: 1 }'
    )
    assert "model 'dims', tensor 'input__0': the model expects 2 dimensions (shape [-1,9])" in refusal(tmp_path, "dims")


def test_what_treelite_cannot_express_is_refused(tmp_path: Path) -> None:
    for name, option, text in (
        ("zeros", "zero_as_missing", "was trained with zero_as_missing, which Treelite cannot express"),
        ("lines", "linear_tree", "LightGBM models with linear trees (linear_tree=True) are not supported"),
    ):
        data = rows()
        options = {"objective": "regression", "verbosity": -1, "num_threads": 1, option: True}
        booster = lightgbm.train(options, lightgbm.Dataset(data, targets(data, 40)), 3)
        (tmp_path / name / "1").mkdir(parents=True)
        booster.save_model(tmp_path / name / "1" / "model.txt")
        (tmp_path / name / "config.pbtxt").write_text('backend: "fil"')
        assert text in refusal(tmp_path, name)


@pytest.mark.parametrize("file", ["xgboost.json", "xgboost.ubj", "model.txt", "checkpoint.tl"])
@pytest.mark.parametrize("content", [b"nothing of the kind", b"\x04\0\0\0\x08\0\0\0\x01\0\0\0\x02\x02", b'{"learner":'])
def test_a_file_that_is_no_forest(tmp_path: Path, file: str, content: bytes) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / file).write_bytes(content)
    (tmp_path / "m" / "config.pbtxt").write_text('backend: "fil"')
    assert f"model '{tmp_path}/m/1/{file}': " in refusal(tmp_path)


def test_a_file_by_another_name_is_pointed_at(tmp_path: Path) -> None:
    config = trained("xgboost binary").put(tmp_path / "m")
    config.write_text('backend: "fil"')
    (tmp_path / "m" / "1" / "xgboost.json").rename(tmp_path / "m" / "1" / "model.json")
    assert 'say default_model_filename: "model.json"' in refusal(tmp_path)
    config.write_text('backend: "fil" default_model_filename: "model.json"')
    assert len(answers(tmp_path, rows(3))) == 3
    (tmp_path / "m" / "1" / "model.json").unlink()
    config.write_text('backend: "fil"')
    assert "checkpoint.tl', nor model.txt or xgboost.json or xgboost.model or xgboost.ubj" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("xgboost.json", b'{"learner": {"\xff": 1}}'),
        ("model.txt", b"tree\nversion=v4\ndecision_type=" + b"9" * 5000),
    ],
)
def test_a_text_that_python_cannot_read_is_the_fault_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, content: bytes
) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / file).write_bytes(content)
    (tmp_path / "m" / "config.pbtxt").write_text('backend: "fil"')
    assert f"model '{tmp_path}/m/1/{file}': Treelite cannot read it: " in refusal(tmp_path)
    assert capsys.readouterr().out == ""


def test_forests_that_are_read_at_the_same_time_print_nothing_and_leave_the_output_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(12):
        trained("xgboost regressor").put(tmp_path / f"m{number}")
    (tmp_path / "m3" / "1" / "xgboost.json").write_text('{"learner": {"unheard of": 1}}')
    (tmp_path / "m9" / "1" / "xgboost.json").write_text('{"learner": {"of unheard": 1}}')
    before = sys.stdout
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False, log=LogOptions(error=False))) as engine:
        assert {name: "unheard" in str(failure) for name, failure in engine.failures.items()} == {
            "m3": True,
            "m9": True,
        }
        assert '"unheard of" is not recognized' in str(engine.failures["m3"])
    assert sys.stdout is before
    assert capfd.readouterr().out == ""


def test_models_that_nobody_vouches_for_are_tried_first(tmp_path: Path) -> None:
    model = trained("lightgbm of four")
    model.put(tmp_path / "m", predict_proba="true")
    with Engine(tmp_path, options=EngineOptions(models=ModelOptions(trust="none"))) as engine:
        answer = np.asarray(engine.infer("m", model.rows)["output__0"])
    np.testing.assert_allclose(answer, model.values, rtol=2e-5, atol=2e-6)


OPERATORS = ("<", "<=", ">", ">=", "==")
NUMBERS = st.sampled_from([-1.5, -1.0, -0.0, 0.0, 0.1, 0.5, 1.0, 1e-45, 3e38, 1e300, float("inf"), float("-inf")])


@st.composite
def grown(draw: st.DrawFn) -> tuple[Any, NDArray[Any]]:
    """A forest of Treelite's builder that no library would train, and rows near its thresholds"""
    double = draw(st.booleans())
    kind = "float64" if double else "float32"
    classes = draw(st.sampled_from([1, 3]))
    vector = classes > 1 and draw(st.booleans())
    trees = draw(st.integers(1, 11))
    builder = treelite.model_builder.ModelBuilder(
        threshold_type=kind,
        leaf_output_type=kind,
        metadata=treelite.model_builder.Metadata(
            num_feature=4,
            task_type="kMultiClf" if classes > 1 else "kRegressor",
            average_tree_output=draw(st.booleans()),
            num_target=1,
            num_class=[classes],
            leaf_vector_shape=(1, classes if vector else 1),
        ),
        tree_annotation=treelite.model_builder.TreeAnnotation(
            num_tree=trees,
            target_id=[0] * trees,
            class_id=[-1 if vector else index % classes for index in range(trees)],
        ),
        postprocessor=treelite.model_builder.PostProcessorFunc(
            name=draw(
                st.sampled_from(
                    ["identity_multiclass", "softmax"]
                    if classes > 1
                    else ["identity", "signed_square", "hinge", "logarithm_one_plus_exp", "exponential"]
                )
            )
        ),
        base_scores=[draw(st.floats(-1, 1)) for _ in range(classes)],
    )
    for _ in range(trees):
        builder.start_tree()
        free, inner = [0], draw(st.integers(0, 7))
        last = 0
        while free:
            builder.start_node(free.pop(0))
            if inner:
                inner -= 1
                left, right, last = last + 1, last + 2, last + 2
                free += [left, right]
                common = {
                    "feature_id": draw(st.integers(0, 3)),
                    "default_left": draw(st.booleans()),
                    "left_child_key": left,
                    "right_child_key": right,
                }
                if draw(st.integers(0, 4)):
                    threshold = draw(NUMBERS)
                    builder.numerical_test(
                        threshold=threshold if double or abs(threshold) != 1e300 else 0.25,
                        opname=draw(st.sampled_from(OPERATORS)),
                        **common,
                    )
                else:
                    builder.categorical_test(
                        category_list=draw(st.lists(st.integers(0, 3), max_size=3, unique=True)),
                        category_list_right_child=draw(st.booleans()),
                        **common,
                    )
            else:
                leaf = st.floats(-2, 2, width=32)
                builder.leaf([draw(leaf) for _ in range(classes)] if vector else draw(leaf))
            builder.end_node()
        builder.end_tree()
    near = NUMBERS.filter(lambda number: abs(number) != 1e300)
    values = st.one_of(near, st.just(float("nan")), st.sampled_from([2.0, 3.0, 2.7]))
    data = draw(st.lists(st.lists(values, min_size=4, max_size=4), min_size=1, max_size=20))
    return builder.commit(), np.array(data, np.float32)


ZEROING = """
import ctypes, sys
ctypes.CDLL(sys.argv[1]).take_smallest_for_zero()
import numpy as np
from runners import Engine
with Engine(sys.argv[2]) as engine:
    rows = np.array([[0.0], [-0.0], [1.0], [-1.0]], np.float32)
    print(np.asarray(engine.infer("m", rows)["output__0"])[:, 0].tolist())
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the switch is one of x86-64")
def test_zero_is_zero_where_a_library_has_told_the_processor_to_take_the_smallest_numbers_for_it(
    tmp_path: Path,
) -> None:
    forest = ensemble.RandomForestRegressor(n_estimators=1, bootstrap=False, random_state=0)
    forest.fit([[-1.0], [1.0]], [0, 1])
    (tmp_path / "repository" / "m" / "1").mkdir(parents=True)
    treelite.sklearn.import_model(forest).serialize(tmp_path / "repository" / "m" / "1" / "checkpoint.tl")
    (tmp_path / "repository" / "m" / "config.pbtxt").write_text('backend: "fil" max_batch_size: 8')
    source, library = tmp_path / "zeroing.c", tmp_path / "zeroing.so"
    source.write_text(
        "#include <xmmintrin.h>\nvoid take_smallest_for_zero(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    command = [sys.executable, "-c", ZEROING, str(library), str(tmp_path / "repository")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[0.0, 0.0, 1.0, 0.0]"), done.stderr


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(grown())
def test_any_forest_answers_as_treelite_does(
    tmp_path_factory: pytest.TempPathFactory, forest: tuple[Any, NDArray[np.float32]]
) -> None:
    model, data = forest
    directory = tmp_path_factory.mktemp("grown")
    (directory / "m" / "1").mkdir(parents=True)
    model.serialize(directory / "m" / "1" / "checkpoint.tl")
    (directory / "m" / "config.pbtxt").write_text(
        'backend: "fil" max_batch_size: 64 parameters { key: "is_classifier" value { string_value: "false" } }'
    )
    expected = treelite.gtil.predict(model, data.astype(model.input_type), nthread=1)
    with np.errstate(over="ignore"):
        expected = expected.reshape(len(data), -1).astype(np.float32)
    np.testing.assert_allclose(answers(directory, data), expected, rtol=1e-4, atol=1e-5)


def test_rows_of_a_request_have_all_features(tmp_path: Path) -> None:
    model = trained("xgboost regressor")
    config = model.put(tmp_path / "m")
    config.write_text(
        config.read_text().replace("max_batch_size: 4096", "max_batch_size: 0")
        + f'input {{ name: "input__0" data_type: TYPE_FP32 dims: [ -1, {FEATURES} ] }}'
        + 'output { name: "output__0" data_type: TYPE_FP32 dims: [ -1, 1 ] }'
    )
    with Engine(tmp_path) as engine:
        answer = np.asarray(engine.infer("m", model.rows)["output__0"])
        np.testing.assert_allclose(answer[:, 0], model.values, rtol=2e-5, atol=2e-6)
        with pytest.raises(InvalidInput):
            engine.infer("m", model.rows[:, :5].copy())
