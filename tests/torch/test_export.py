"""`kushi export`: what is written is served, and answers as the original; what cannot be exported leaves nothing."""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from runners import Engine
from runners.cli import main
from runners.errors import ConfigInvalid, EngineFailed, InvalidInput, KushiError, Unsupported
from runners.export import Input, Tolerance, export, onnx_weights
from tests.torch.models import BATCH, Network, network_arguments, save_exported, save_script, script
from tests.torch.models import export as as_program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

NETWORK = [Input("image", "FP32", (3, 8, 8)), Input("scale", "FP32", (1,))]
VECTOR = [Input("x", "FP32", (4,))]


class Fixed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(2, 4) * 2


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


class Centred(nn.Module):
    """A row's answer depends on the rows beside it."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0, keepdim=True)


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean()


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return x + self.count


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Halves(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"low": x[:, :2] * 2, "high": x[:, 2:] + 1}


class Tokens(nn.Module):
    """Sentences of any length → one vector each, and the number of words."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(10, 6)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        words = self.table(ids) * mask.unsqueeze(2)
        weights = torch.softmax(words @ words.transpose(1, 2), 2)
        return (weights @ words).mean(1), mask.sum(1)


class Recurrent(nn.Module):
    """The same interface; PyTorch exports it with any length only as TorchScript."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(10, 6)
        self.mix = nn.LSTM(6, 5, batch_first=True)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        states, _ = self.mix(self.table(ids) * mask.unsqueeze(2))
        return states[:, -1], mask.sum(1)


class Types(nn.Module):
    def forward(self, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return a * 2, b + 1, ~c, d * 2


TOKENS = [Input("ids", "INT64", (-1,)), Input("mask", "FP32", (-1,))]


def answers(repository: Path, name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    with Engine(repository) as engine:
        assert not engine.failures
        return dict(engine.infer(name, inputs))


def check_network(repository: Path, module: nn.Module, name: str, outputs: Sequence[str]) -> None:
    """What is served equals PyTorch, for one row and for as many as a batch takes"""
    for rows in (1, 8):
        values = network_arguments(rows)
        got = answers(repository, name, dict(zip(("image", "scale"), (v.numpy() for v in values), strict=True)))
        with torch.no_grad():
            expected = module(*values)
        assert list(got) == list(outputs)
        for output, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(got[output], wanted.numpy(), atol=1e-5, rtol=1e-5)


def test_a_module_is_exported_from_a_program(repository: Path) -> None:
    module = Network()
    module.features[1].running_mean.fill_(0.25)
    module.features.eval()
    images, scales = network_arguments(20)
    written = export(module, repository / "net", inputs=[images, scales], output_names=["scores", "features"])
    assert module.training
    assert not module.features[1].training
    assert (written.path, written.version) == (repository / "net" / "1" / "model.onnx", 1)
    assert (written.max_batch_size, written.batch_sizes) == (8, (1, 2, 5, 8))
    assert list(written.differences) == ["scores", "features"]
    assert all(0 <= difference.absolute < 1e-5 for difference in written.differences.values())
    check_network(repository, module.eval(), "net", ["scores", "features"])


@pytest.mark.parametrize("kind", ["script", "traced"])
def test_torchscript_is_exported(repository: Path, tmp_path: Path, kind: str) -> None:
    module = Network().eval()
    if kind == "script":
        save_script(module, tmp_path / "model.pt")
    else:
        with pytest.warns(FutureWarning):
            torch.jit.trace(module, network_arguments(2)).save(str(tmp_path / "model.pt"))
    export(tmp_path / "model.pt", repository / "net", inputs=NETWORK, output_names=["scores", "features"])
    check_network(repository, module, "net", ["scores", "features"])


def test_an_exported_program_says_its_inputs_itself(repository: Path, tmp_path: Path) -> None:
    module = Network().eval()
    save_exported(as_program(module, network_arguments(2)), tmp_path / "model.pt2")
    export(tmp_path / "model.pt2", repository / "net")
    check_network(repository, module, "net", ["OUTPUT__0", "OUTPUT__1"])


@pytest.mark.parametrize("make", [Halves, lambda: script(Halves()), lambda: as_program(Halves(), (torch.zeros(2, 4),))])
def test_outputs_go_by_the_keys_of_a_dictionary(repository: Path, make: Callable[[], Any]) -> None:
    export(make(), repository / "m", inputs=VECTOR)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    got = answers(repository, "m", {"x": x})
    assert list(got) == ["low", "high"]
    np.testing.assert_array_equal(got["low"], x[:, :2] * 2)
    np.testing.assert_array_equal(got["high"], x[:, 2:] + 1)


@pytest.mark.parametrize(("kind", "wrap"), [(Tokens, nn.Module.eval), (Tokens, script), (Recurrent, script)])
@pytest.mark.parametrize("order", [1, -1])
def test_dimensions_beside_the_batch_may_vary(
    repository: Path, kind: type[nn.Module], wrap: Callable[[nn.Module], Any], order: int
) -> None:
    export(wrap(kind()), repository / "m", inputs=TOKENS[::order], output_names=["vector", "words"])
    for rows, length in ((1, 3), (4, 200)):
        ids = torch.arange(rows * length).reshape(rows, length) % 10
        mask = torch.ones(rows, length)
        got = answers(repository, "m", {"ids": ids.numpy(), "mask": mask.numpy()})
        with torch.no_grad():
            vector, words = kind()(ids, mask)
        np.testing.assert_allclose(got["vector"], vector.numpy(), atol=1e-5)
        np.testing.assert_array_equal(got["words"], words.unsqueeze(1).numpy())


def test_inputs_of_other_names_are_in_the_order_of_the_arguments(repository: Path) -> None:
    first, second = (Input(name, "FP32", (3, 8, 8) if name == "picture" else (1,)) for name in ("picture", "factor"))
    export(Network(), repository / "m", inputs=[first, second])
    images, scales = network_arguments(2)
    got = answers(repository, "m", {"picture": images.numpy(), "factor": scales.numpy()})
    np.testing.assert_allclose(got["OUTPUT__1"], Network().eval()(images, scales)[1].detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("order", [1, -1])
def test_inputs_with_numbers_are_the_arguments_of_these_numbers(repository: Path, order: int) -> None:
    class Apart(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return a - b

    inputs = [Input("INPUT__0", "FP32", (4,)), Input("INPUT__1", "FP32", (4,))]
    export(Apart(), repository / "m", inputs=inputs[::order])
    got = answers(
        repository, "m", {"INPUT__0": np.full((1, 4), 3, np.float32), "INPUT__1": np.ones((1, 4), np.float32)}
    )
    assert got["OUTPUT__0"].tolist() == [[2.0] * 4]


def test_each_data_type_is_kept(repository: Path) -> None:
    inputs = [Input("a", "FP64", (2,)), Input("b", "INT32", (2,)), Input("c", "BOOL", (2,)), Input("d", "FP16")]
    export(Types(), repository / "m", inputs=inputs)
    with Engine(repository) as engine:
        config = engine.get_model_config("m")
        assert [t["data_type"] for t in config["output"]] == ["TYPE_FP64", "TYPE_INT32", "TYPE_BOOL", "TYPE_FP16"]
        assert config["input"][3]["reshape"] == {"shape": []}


def test_without_batches_shapes_are_those_of_the_examples(repository: Path) -> None:
    written = export(Fixed(), repository / "m", inputs=[torch.rand(2, 4)], max_batch_size=0)
    assert (written.max_batch_size, written.batch_sizes) == (0, ())
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(answers(repository, "m", {"x": x})["OUTPUT__0"], 2 * x)
    assert "dynamic_batching" not in (repository / "m" / "config.pbtxt").read_text()


def test_a_large_model_has_its_weights_in_a_file_beside_it(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_weights, "_SINGLE_FILE_BYTES", 100)
    module = nn.Sequential(nn.Linear(4, 512), nn.Linear(512, 4)).eval()
    export(module, repository / "m", inputs=VECTOR)
    model, weights = sorted((repository / "m" / "1").iterdir())
    assert (model.name, weights.name) == ("model.onnx", "model.onnx.data")
    assert model.stat().st_mode == weights.stat().st_mode
    x = torch.rand(3, 4)
    got = answers(repository, "m", {"x": x.numpy()})["OUTPUT__0"]
    np.testing.assert_allclose(got, module(x).detach().numpy(), atol=1e-5)


def test_the_file_says_nothing_of_the_machine_that_made_it(repository: Path) -> None:
    for name, source in (("module", Network()), ("script", script(Network()))):
        export(source, repository / name, inputs=NETWORK)
        content = (repository / name / "1" / "model.onnx").read_bytes()
        assert b".py" not in content
        model = onnx.load_from_string(content)
        tensors = [*model.graph.input, *model.graph.output]
        assert {tensor.type.tensor_type.shape.dim[0].dim_param for tensor in tensors} == {"batch"}


def test_the_next_version_goes_by_the_configuration_that_is_there(repository: Path) -> None:
    export(nn.Linear(4, 2), repository / "m", inputs=VECTOR, max_batch_size=4)
    config = repository / "m" / "config.pbtxt"
    config.write_text(config.read_text() + "# edited\n")
    with pytest.raises(InvalidInput, match="--version next takes 2"):
        export(nn.Linear(4, 2), repository / "m", inputs=VECTOR)
    written = export(nn.Linear(4, 2), repository / "m", inputs=VECTOR, version="next")
    assert (written.version, written.max_batch_size, written.batch_sizes) == (2, 4, (1, 2, 4))
    with pytest.raises(ConfigInvalid, match=r"does not fit the configuration that is there: .*/m/config.pbtxt: unexp"):
        export(nn.Linear(4, 2), repository / "m", inputs=VECTOR, output_names=["other"], version=3)
    assert sorted(path.name for path in (repository / "m").iterdir()) == ["1", "2", "config.pbtxt"]
    before = (repository / "m" / "1" / "model.onnx").read_bytes()
    export(nn.Linear(4, 2), repository / "m", inputs=VECTOR, force=True)
    assert (repository / "m" / "1" / "model.onnx").read_bytes() != before
    assert config.read_text().endswith("# edited\n")


def hidden_pickle(folder: Path) -> Path:
    (folder / "model.pt").write_bytes(pickle.dumps({"weight": 1}))
    return folder / "model.pt"


def saved_module(folder: Path) -> Path:
    torch.save(Network(), folder / "model.pt")
    return folder / "model.pt"


def fixed_program(folder: Path) -> Path:
    save_exported(as_program(Fixed(), (torch.zeros(2, 4),), ({},)), folder / "model.pt2")
    return folder / "model.pt2"


REFUSED: list[tuple[Any, dict[str, Any], type[KushiError], str]] = [
    (
        Fixed,
        {"inputs": VECTOR},
        Unsupported,
        r"a constant \(2\): take sizes from the inputs, as in x.shape\[0\], inste",
    ),
    (fixed_program, {}, Unsupported, r"'x' has the shape \[2,4\], however many rows there are"),
    (Mean, {"inputs": VECTOR}, Unsupported, r"'OUTPUT__0' has the shape \[\], however many rows there are"),
    (Noise, {"inputs": VECTOR}, Unsupported, "'OUTPUT__0' is another one each time for the same inputs"),
    (Centred, {"inputs": VECTOR}, Unsupported, "'OUTPUT__0' of a row changes with the other rows of its batch, by up"),
    (Counting, {"inputs": VECTOR}, Unsupported, "Counting changes its own weights or attributes"),
    (Network, {}, InvalidInput, r"only forward\(image, scale\): state each as --input NAME:DATATYPE:DIMS"),
    (lambda: script(Network()), {}, InvalidInput, r"forward\(image: Tensor, scale: Tensor\) -> Tuple"),
    (lambda: script(Network()), {"inputs": VECTOR}, InvalidInput, "1 inputs are stated, the model has 2: forward"),
    (Network, {"inputs": [*NETWORK, *VECTOR]}, InvalidInput, "3 inputs are stated, the model has 2: forward"),
    (Network, {"inputs": VECTOR * 2}, Unsupported, "Network cannot be exported: "),
    (lambda: script(Halves()), {"inputs": [Input("x", "FP32")]}, Unsupported, "ScriptModule cannot be exported"),
    (Halves, {"inputs": VECTOR, "output_names": ["x", "y"]}, InvalidInput, "'x' is an input and an output of Halves"),
    (Halves, {"inputs": VECTOR, "output_names": ["a"]}, InvalidInput, "1 names of outputs are given, the model has 2"),
    (Halves, {"inputs": VECTOR, "output_names": ["a", "a"]}, InvalidInput, "names of outputs are not unique: a, a"),
    (hidden_pickle, {}, ConfigInvalid, "is a Python pickle, expected a TorchScript archive or an exported program"),
    (saved_module, {}, ConfigInvalid, "was written by torch.save: a Python pickle, which can run any code"),
    (lambda folder: folder / "model.pt", {}, InvalidInput, "/model.pt' not found: expected a TorchScript file"),
]


@pytest.mark.parametrize("case", REFUSED, ids=[case[3][:30] for case in REFUSED])
def test_what_cannot_be_exported_leaves_nothing_behind(
    repository: Path, tmp_path: Path, case: tuple[Any, dict[str, Any], type[KushiError], str]
) -> None:
    make, arguments, kind, message = case
    source = make(tmp_path) if getattr(make, "__code__", None) and make.__code__.co_argcount else make()
    with pytest.raises(kind, match=message):
        export(source, repository / "m", **arguments)
    assert list(repository.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: script(Attentive()),
            "'aten::is_autocast_enabled' .* export the module itself, or what torch.export.s",
        ),
        (Branching, "Branching cannot be exported: Could not guard on data-dependent expression"),
    ],
)
def test_only_the_error_is_told_of_what_pytorch_cannot_export(
    repository: Path, make: Callable[[], Any], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Unsupported, match=message):
        export(make(), repository / "m", inputs=[Input("x", "FP32", (5, 16))])
    assert capfd.readouterr() == ("", "")
    assert list(repository.iterdir()) == []


def test_a_difference_from_the_original_leaves_nothing_behind(repository: Path) -> None:
    class Chaotic(nn.Module):
        """Magnifies rounding, which is not the same in two libraries."""

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(20):
                x = torch.sin(3.9 * x) * 3
            return x

    with pytest.raises(EngineFailed, match=r"'OUTPUT__0' of the exported model differs from the original's by up to"):
        export(Chaotic(), repository / "m", inputs=VECTOR)
    assert list(repository.iterdir()) == []
    written = export(Chaotic(), repository / "m", inputs=VECTOR, tolerance=Tolerance(absolute=10.0))
    assert written.differences["OUTPUT__0"].absolute > 1e-3


def test_a_program_that_states_another_type_is_refused(repository: Path) -> None:
    program = as_program(Halves(), (torch.zeros(2, 4),))
    for stated in (Input("x", "FP16", (4,)), Input("x", "FP32", (5,)), Input("x", "FP32", (4, 1))):
        with pytest.raises(InvalidInput, match=r"in the file it is FP32 \[4\]"):
            export(program, repository / "m", inputs=[stated])
    export(program, repository / "m", inputs=[Input("renamed", "FP32", (4,))])
    assert list(answers(repository, "m", {"renamed": np.ones((1, 4), np.float32)})) == ["low", "high"]
    # the caller's program is as it was
    assert torch.equal(program.module()(torch.ones(1, 4))["low"], torch.full((1, 2), 2.0))


def test_a_fixed_size_may_stand_for_one_that_varies(repository: Path) -> None:
    class Bounded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    shapes = ({0: BATCH, 1: torch.export.Dim("width", min=2, max=32)},)
    program = as_program(Bounded(), (torch.zeros(2, 16),), shapes)
    with pytest.raises(InvalidInput, match=r"cannot be run with inputs of the shapes \[2,64\]"):
        export(program, repository / "m")
    export(program, repository / "m", inputs=[Input("x", "FP32", (16,))])
    assert answers(repository, "m", {"x": np.ones((1, 20), np.float32)})["OUTPUT__0"].shape == (1, 20)


def test_the_command_exports_what_a_callable_makes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "our_models.py").write_text(
        "from tests.torch.models import Network\n\ndef small():\n    return Network()\n\nready = Network()\n"
    )
    for attribute in ("small", "ready", "Network"):
        code = main(
            [
                *("export", f"our_models:{attribute}", "--output", f"models/{attribute}", "--max-batch-size=4"),
                *("--input", "image:FP32:3,8,8", "--input", "scale:FP32:1", "--output-name=a", "--output-name=b"),
            ]
        )
        shown = capsys.readouterr()
        assert code == 0
        assert shown.out.startswith(f"wrote models/{attribute}/1/model.onnx (0.0")
        assert "compared with PyTorch in batches of 1, 2, 4 rows:\n  output" in shown.out
        assert shown.out.endswith("serve it with: kushi serve --model-repository models\n")
        progress = shown.err.splitlines()
        assert [line.split()[0] for line in progress] == ["opening", "writing", "comparing"]
        check_rows = answers(
            tmp_path / "models",
            attribute,
            {"image": np.ones((4, 3, 8, 8), np.float32), "scale": np.ones((4, 1), np.float32)},
        )
        assert [check_rows[name].shape for name in ("a", "b")] == [(4, 5), (4, 32)]


def test_the_command_says_in_one_line_what_is_wrong(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved_module(repository.parent)
    assert main(["export", str(path), "--output", str(repository / "m")]) == 1
    error = capsys.readouterr().err.splitlines()
    assert error[-1].startswith(f"kushi export: error: '{path}' was written by torch.save: a Python pickle")
    assert list(repository.iterdir()) == []
