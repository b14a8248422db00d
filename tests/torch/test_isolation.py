"""PyTorch models in processes of their own: `kushi.isolate`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from tritonclient.http import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from runners import Engine, EngineOptions
from runners.errors import ConfigInvalid
from tests.processes import children
from tests.serving import ROOT
from tests.torch.models import (
    NETWORK_INPUTS,
    NETWORK_OUTPUTS,
    Network,
    export,
    model_config,
    network_arguments,
    parameter,
    put,
)
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tests.conftest import StartServer
    from tests.models import Io
    from tests.serving import Server

ISOLATED: Final = parameter("kushi.isolate", "true")
ONE: Final[tuple[Sequence[Io], Sequence[Io]]] = [("x", "FP32", [1])], [("OUTPUT__0", "FP32", [1])]


def put_both(
    repository: Path,
    made: nn.Module | torch.export.ExportedProgram,
    tensors: tuple[Sequence[Io], Sequence[Io]],
    *,
    max_batch_size: int = 0,
    extra: str = "",
    fields: dict[str, str] | None = None,
) -> None:
    """The same model, isolated and not."""
    for name, more in (("isolated", ISOLATED), ("plain", "")):
        text = model_config(name, *tensors, max_batch_size=max_batch_size, extra=extra + more, fields=fields)
        put(repository, name, made, text)


@pytest.mark.parametrize("kind", ["script", "exported"])
def test_an_isolated_model_answers_as_one_that_is_not(repository: Path, kind: str) -> None:
    network = Network()
    made = network if kind == "script" else export(network, network_arguments(2))
    extra = f"dynamic_batching {{ }} instance_group {{ count: 2 }} {parameter('INTRA_OP_THREAD_COUNT', '1')}"
    put_both(repository, made, (NETWORK_INPUTS, NETWORK_OUTPUTS), max_batch_size=8, extra=extra)
    with Engine(repository) as engine:
        assert not engine.failures
        for rows in (1, 3, 8):
            sent = [tensor.numpy() for tensor in network_arguments(rows)]
            got, expected = engine.infer("isolated", *sent), engine.infer("plain", *sent)
            for name, array in expected.items():
                np.testing.assert_array_equal(got[name], array)


@pytest.mark.parametrize("kind", ["script", "exported"])
def test_a_self_test_holds_both_against_pytorch(repository: Path, kind: str) -> None:
    network = Network()
    made = network if kind == "script" else export(network, network_arguments(2))
    extra = f"dynamic_batching {{ }} instance_group {{ count: 2 }} {parameter('kushi.self_test', 'random')}"
    put_both(repository, made, (NETWORK_INPUTS, NETWORK_OUTPUTS), max_batch_size=8, extra=extra)
    with Engine(repository) as engine:
        for name in ("isolated", "plain"):
            said = engine.get_model_config(name)["parameters"]["kushi.self_tested"]["string_value"]
            assert said.startswith("64 requests are answered as by pytorch alone, 8 of them also in one batch and")


def test_a_model_that_keeps_a_state_has_no_self_test(repository: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            return x + self.count

    text = model_config("m", *ONE, extra=parameter("kushi.self_test", "random"))
    put(repository, "m", Counting().eval(), text)
    with Engine(repository, options=EngineOptions(exit_on_error=False)) as engine:
        assert "pytorch alone answers the same request in another way when it is asked again" in str(
            engine.failures["m"]
        )


def test_a_scalar_is_answered_as_by_one_that_is_not(repository: Path) -> None:
    class Total(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum()

    program = export(Total(), (torch.zeros(3),))
    for name, text in (("isolated", ISOLATED), ("plain", "")):
        put(repository, name, program, f"max_batch_size: 0 {text}")
    with Engine(repository) as engine:
        for name in ("isolated", "plain"):
            assert engine.infer(name, np.array([1, 2, 3], np.float32))["OUTPUT__0"].tolist() == [6.0]


def test_requests_that_wait_run_as_one_batch_and_a_file_completes_its_configuration(repository: Path) -> None:
    program = export(nn.Linear(4, 3), (torch.zeros(2, 4),))
    delayed = "dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 60000000 }"
    put(repository, "m", program, f"max_batch_size: 4 {delayed} {ISOLATED}")
    x = np.random.default_rng(7).random((4, 4), np.float32)
    got: dict[int, NDArray[np.float32]] = {}
    with Engine(repository) as engine:

        def ask(begin: int, end: int) -> None:
            got[begin] = engine.infer("m", x[begin:end])["OUTPUT__0"]

        askers = [threading.Thread(target=ask, args=part) for part in ((0, 1), (1, 4))]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        (statistics,) = engine.statistics()["model_stats"]
    assert statistics["execution_count"] == 1
    with torch.inference_mode():
        expected = program.module()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(np.concatenate([got[0], got[1]]), expected, rtol=1e-6)


class Optional(nn.Module):
    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return x if y is None else x + y


def test_optional_inputs_may_be_left_out(repository: Path) -> None:
    tensors = [("x", "FP32", [2]), ("y", "FP32", [2])], [("OUTPUT__0", "FP32", [2])]
    put_both(repository, Optional(), tensors, fields={"y": "optional: true"})
    with Engine(repository) as engine:
        assert not engine.failures
        x = np.ones(2, np.float32)
        for model in ("isolated", "plain"):
            assert engine.infer(model, {"x": x})["OUTPUT__0"].tolist() == [1, 1]
            assert engine.infer(model, {"x": x, "y": 2 * x})["OUTPUT__0"].tolist() == [3, 3]


class Louder(nn.Module):
    def forward(self, texts: list[str]) -> list[str]:
        return [text + "!" for text in texts]


def test_strings_pass(repository: Path) -> None:
    put_both(repository, Louder(), ([("texts", "STRING", [-1])], [("OUTPUT__0", "STRING", [-1])]))
    with Engine(repository) as engine:
        assert not engine.failures
        texts = np.array(["grüezi", ""], np.object_)
        for model in ("isolated", "plain"):
            assert engine.infer(model, texts)["OUTPUT__0"].tolist() == ["grüezi!".encode(), b"!"]


class Counting(nn.Module):
    """Answers how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x * 0 + self.count


@pytest.mark.clock
def test_a_model_that_keeps_state_has_one_for_each_process(repository: Path, start_server: StartServer) -> None:
    put(repository, "m", Counting(), model_config("m", *ONE, max_batch_size=1, extra=ISOLATED))
    server = start_server(repository)
    assert [ask(server) for _ in range(3)] == [1, 2, 3]
    (process,) = children(server.pid)
    os.kill(process, signal.SIGKILL)
    server.log.wait_for(re.compile("m_0 has ended and is started again"), 30)
    assert [ask(server) for _ in range(2)] == [1, 2]


class Long(nn.Module):
    """Takes long where it is asked about something above 0."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.ones(512, 512)
        for _ in range(100_000 * int(x.max())):
            y = torch.mm(y, y).clamp(0, 1)
        return x + 0 * y.sum()


@pytest.mark.clock
def test_the_end_of_its_process_fails_its_batch_and_not_the_server(repository: Path, start_server: StartServer) -> None:
    put(repository, "m", Long(), model_config("m", *ONE, max_batch_size=1, extra=ISOLATED))
    server = start_server(repository)
    assert ask(server) == 0
    (process,) = children(server.pid)
    errors: list[str] = []

    def ask_for_long() -> None:
        try:
            ask(server, 1)
        except InferenceServerException as error:
            errors.append(error.message())

    asker = threading.Thread(target=ask_for_long)
    before = cpu_ticks(process)
    asker.start()
    # half a second of work: it executes the request
    eventually(lambda: cpu_ticks(process) > before + 50, "it is at work")
    os.kill(process, signal.SIGSEGV)
    asker.join(60)
    assert len(errors) == 1
    assert errors[0].startswith(
        "m_0 ended while it executed: it was killed by signal 11 (SIGSEGV: a segmentation fault)"
    )
    assert ask(server) == 0
    assert server.is_ready()


@pytest.mark.clock
def test_pytorch_is_not_in_the_process_of_the_server(repository: Path, start_server: StartServer) -> None:
    put(repository, "m", nn.Identity(), model_config("m", *ONE, max_batch_size=1, extra=ISOLATED))
    server = start_server(repository)
    (process,) = children(server.pid)
    assert "libtorch" in Path(f"/proc/{process}/maps").read_text(encoding="utf-8")
    assert "libtorch" not in Path(f"/proc/{server.pid}/maps").read_text(encoding="utf-8")


def test_processes_do_not_share_weights(repository: Path) -> None:
    sharing = parameter("ENABLE_WEIGHT_SHARING", "true") + "instance_group { count: 2 }"
    put(repository, "m", nn.Identity(), model_config("m", *ONE, max_batch_size=1, extra=ISOLATED + sharing))
    with Engine(repository, options=EngineOptions(exit_on_error=False)) as engine:
        (error,) = engine.failures.values()
    assert type(error) is ConfigInvalid
    text = (
        "its 2 instances have processes of their own ('kushi.isolate'), each with its own weights: remove one of them"
    )
    assert str(error).endswith(f"parameter 'ENABLE_WEIGHT_SHARING' of model 'm' is true, and {text}")


def test_check_loads_it_and_says_what_is_wrong_with_its_file(repository: Path) -> None:
    put(repository, "m", export(nn.Linear(4, 3), (torch.zeros(2, 4),)), ISOLATED)
    put(repository, "bad", nn.Identity(), model_config("bad", *ONE, max_batch_size=1, extra=ISOLATED))
    (repository / "bad" / "1" / "model.pt").write_bytes(b"\x80")
    command = [sys.executable, "-m", "runners", "check", "--load", str(repository)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "m: loads, pytorch, version 1: input FP32 [-1, 4] → OUTPUT__0 FP32 [-1, 3]" in done.stdout
    assert f"'{repository}/bad/1/model.pt' is a Python pickle, expected a TorchScript archive" in done.stdout


def ask(server: Server, x: float = 0) -> float:
    with InferenceServerClient(f"localhost:{server.http[1]}", network_timeout=60) as client:
        tensor = InferInput("x", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.array([[x]], np.float32))
        return float(client.infer("m", [tensor]).as_numpy("OUTPUT__0")[0, 0])


def cpu_ticks(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
