"""A model whose own form has to be made first: another one serves until then, and nobody notices the change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from runners import Engine
from runners.backends import Backend, Bound, Descriptor, NotYet, Opened, Placed, Prepared, TensorInfo, complete
from runners.repository import discovery
from tests import models
from tests.gates import Gate, gate_name
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from runners.repository.messages import ModelConfig

DESCRIPTOR: Final = Descriptor(name="slowly", loads=f"{__name__}:SlowlyBackend", kinds=(("slowly_made", "model.made"),))
TENSORS: Final = {
    role: [TensorInfo(f"{role}{number}", "INT32", (-1, 16)) for number in (0, 1)] for role in ("INPUT", "OUTPUT")
}


class SlowlyBackend(Backend):
    """Adds and subtracts as the ONNX file beside it, and ten to each"""

    def prepare(self, model: Placed) -> Prepared:
        return Prepared(lambda path: Made(path, model.config))

    def locate(self, directory: Path, name: str) -> Path:
        return directory / name


class Made(Opened):
    def __init__(self, path: Path, config: ModelConfig) -> None:
        if path.exists():
            if path.read_text() == "broken":
                path.unlink()
            else:
                return
        meanwhile = type(config)()
        meanwhile.CopyFrom(config)
        meanwhile.backend, meanwhile.platform = "onnxruntime", ""
        meanwhile.default_model_filename = "model.onnx"
        raise NotYet("it is to be made", meanwhile=meanwhile, works=[Making(path)])

    def complete(self, config: ModelConfig, default_max_batch_size: int) -> ModelConfig:
        return complete(config, TENSORS["INPUT"], TENSORS["OUTPUT"], default_max_batch_size)

    def bind(self, config: ModelConfig) -> Bound:
        from kushi_native import PythonModel  # noqa: PLC0415 - of this test

        return Bound(lambda _threads: [PythonModel(AddTen())], inputs=TENSORS["INPUT"], outputs=TENSORS["OUTPUT"])


class AddTen:
    concurrent = True

    def execute(self, inputs: list[Any], wanted: list[bool]) -> Sequence[Any]:
        return [inputs[0] + inputs[1] + 10, inputs[0] - inputs[1] + 10]


class Making:
    made = "right"

    def __init__(self, path: Path) -> None:
        self.key = str(path)
        self._path = path

    def run(self) -> None:
        _stand_at(gate_name(self._path.parents[2], "m"))
        self._path.write_text(self.made)

    def cancel(self) -> None:
        pass


def _stand_at(gate: str) -> None:
    import socket  # noqa: PLC0415 - of this function
    from contextlib import suppress  # noqa: PLC0415 - as above

    with socket.socket(socket.AF_UNIX) as stood, suppress(ConnectionRefusedError):
        stood.connect(f"\0{gate}")
        stood.recv(1)


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(discovery, "_entry_points", lambda: [discovery._Brought("slowly", "tests", lambda: DESCRIPTOR)])
    discovery.found.cache_clear()
    yield
    discovery.found.cache_clear()


def put(repository: Path) -> Path:
    models.write_add_sub(repository, "m")
    config = repository / "m/config.pbtxt"
    text = config.read_text()
    config.write_text(
        "\n".join([line for line in text.splitlines() if "platform" not in line and "backend" not in line])
    )
    with config.open("a") as file:
        file.write('\nbackend: "slowly"\n')
    return repository / "m/1/model.made"


def total(engine: Engine) -> int:
    ones = np.ones((1, 16), np.int32)
    return int(np.asarray(engine.infer("m", {"INPUT0": ones, "INPUT1": ones})["OUTPUT0"])[0, 0])


def test_another_form_serves_until_its_own_is_made(repository: Path) -> None:
    put(repository)
    with Gate(repository, "m") as gate, Engine(repository) as engine:
        gate.until_reached()
        config = engine.get_model_config("m")
        assert config["backend"] == "onnxruntime"
        assert config["parameters"]["kushi.alternative"] == {"string_value": "onnxruntime: it is to be made"}
        assert total(engine) == 2
        gate.let_through()
        # each request is answered by one form or the other
        answers = {2}

        def own_form_answers() -> bool:
            answers.add(total(engine))
            return 12 in answers

        eventually(own_form_answers, "its own form serves")
        assert answers == {2, 12}
        assert engine.get_model_config("m")["backend"] == "slowly"


def test_what_was_made_is_there_at_the_next_start(repository: Path) -> None:
    path = put(repository)
    path.write_text("right")
    with Engine(repository) as engine:
        assert total(engine) == 12


def test_what_was_made_wrong_is_not_made_again_and_the_other_form_goes_on(
    repository: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(repository)
    monkeypatch.setattr(Making, "made", "broken")
    with Engine(repository) as engine:
        eventually(lambda: "what was made for it cannot be served" in caplog.text, "the log says so")
        assert total(engine) == 2


def test_an_unload_gives_it_up(repository: Path) -> None:
    path = put(repository)
    with Gate(repository, "m") as gate, Engine(repository) as engine:
        gate.until_reached()
        engine.unload_model("m")
        gate.let_through()
        eventually(path.exists, "it is made all the same, since this work does not listen")
        assert not engine.is_model_ready("m")
