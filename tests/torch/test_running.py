"""One batch: the arrays that a model sees, the settings of PyTorch around it, its faults, its threads."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from runners import Engine
from runners.backends import ModelFailed
from runners.backends.torch.engine import Plan, TorchEngine
from runners.backends.torch.exported import _unwrap_guards, load
from runners.backends.torch.modes import WithoutCudnn, modes
from runners.backends.torch.names import Leaf, Signature
from runners.backends.torch.options import read_options
from runners.backends.torch.program import Program
from runners.repository.config import parse
from tests.serving import ROOT
from tests.torch.models import budget, export, model_config, parameter, put

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.conftest import StartServer

CPU: Final = torch.device("cpu")
ONE: Final = [("x", "FP32", [1])], [("OUTPUT__0", "FP32", [1])]


def around(run: Callable[[Sequence[Any]], Sequence[Any]], extra: str = "", datatype: str = "FP32") -> TorchEngine:
    """An engine whose program is a function of Python's, which can look around."""
    signature = Signature("forward(x)", (Leaf(("x",)),), results=(Leaf(()),))
    program = Program(signature, run, defaults=(None,), writes=frozenset(), stateful=False)
    options = read_options(parse(model_config("m", *ONE, extra=extra), "config.pbtxt"))
    plan = Plan((0,), (datatype,), (0,), ("OUTPUT__0",))
    return TorchEngine(program, plan, CPU, options, threads=1, concurrent=True, budget=budget())


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint64, np.bool_, ml_dtypes.bfloat16])
def test_the_model_sees_the_memory_of_the_request(dtype: type[np.generic]) -> None:
    seen: list[Tensor] = []

    def run(arguments: Sequence[Any]) -> Sequence[Any]:
        seen.extend(arguments)
        return arguments

    given = np.arange(24).reshape(2, 3, 4).astype(dtype)
    given.flags.writeable = False
    engine = around(run, datatype="BF16" if dtype is ml_dtypes.bfloat16 else "")
    (got,) = engine.execute([given], [True])
    assert seen[0].data_ptr() == given.__array_interface__["data"][0]
    np.testing.assert_array_equal(got.astype(np.float64), given.astype(np.float64))


@pytest.mark.parametrize(
    ("extra", "inference", "optimized"),
    [
        ("", True, True),
        (parameter("INFERENCE_MODE", "true"), True, True),
        (parameter("INFERENCE_MODE", "false"), False, True),
        (parameter("DISABLE_OPTIMIZED_EXECUTION", "true"), True, False),
    ],
)
def test_parameters_decide_under_which_settings_a_model_runs(extra: str, inference: bool, optimized: bool) -> None:
    seen: list[tuple[bool, bool, bool]] = []

    def run(arguments: Sequence[Any]) -> Sequence[Any]:
        executor = torch._C._get_graph_executor_optimize()
        seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled(), executor))
        return arguments

    around(run, extra).execute([np.zeros(1, np.float32)], [True])
    assert seen == [(inference, False, optimized)]
    # and nothing of it stays
    assert torch.is_grad_enabled()
    assert torch._C._get_graph_executor_optimize()


class Long(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.ones(512, 512)
        for _ in range(50):
            y = torch.mm(y, y).clamp(0, 1)
        return x + 0 * y.sum()


@pytest.mark.parametrize("kind", ["script", "exported"])
def test_other_threads_of_python_run_while_a_model_computes(repository: Path, kind: str) -> None:
    made = Long() if kind == "script" else export(Long(), (torch.zeros(2, 1),))
    put(repository, "m", made, model_config("m", *ONE, max_batch_size=1, extra=parameter("INTRA_OP_THREAD_COUNT", "1")))
    answered = threading.Event()
    pause = threading.Event()
    with Engine(repository) as engine:
        assert not engine.failures

        def ask() -> None:
            engine.infer("m", np.zeros((1, 1), np.float32))
            answered.set()

        asking = threading.Thread(target=ask)
        asking.start()
        turns = 0
        while not answered.is_set():
            pause.wait(0.0005)
            turns += 1
        asking.join()
    # one that waits for the lock until the answer is there has two or three
    assert turns >= 10


class Halves(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(16, 4, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@pytest.mark.parametrize("kind", ["script", "exported"])
@pytest.mark.parametrize(
    ("datatype", "dtype", "array"),
    [("FP16", torch.float16, np.float16), ("BF16", torch.bfloat16, ml_dtypes.bfloat16)],
)
def test_half_precision_passes_in_16_bits(
    repository: Path, kind: str, datatype: str, dtype: torch.dtype, array: type[np.generic]
) -> None:
    module = Halves(dtype).eval()
    sample = torch.linspace(-1, 1, 48, dtype=dtype).reshape(3, 16)
    made = module if kind == "script" else export(module, (sample,))
    tensors = [("x", datatype, [16])], [("OUTPUT__0", datatype, [4])]
    put(repository, "m", made, model_config("m", *tensors, max_batch_size=8))
    with Engine(repository) as engine:
        assert not engine.failures
        got = engine.infer("m", sample.float().numpy().astype(array))["OUTPUT__0"]
    with torch.inference_mode():
        expected = module(sample).float().numpy()
    assert got.dtype == array
    np.testing.assert_allclose(got.astype(np.float32), expected, rtol=1e-2, atol=1e-2)


class Exhausting(nn.Module):
    """Takes as much memory as it is asked for."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.zeros([int(x[0, 0])])[:1]


class Lookup(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(8.0))

    def forward(self, x: Tensor) -> Tensor:
        return torch.index_select(self.table, 0, x.to(torch.int64).flatten()).reshape(x.shape)


class Swollen(nn.Module):
    """Takes 4 TiB for each row."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.unsqueeze(1).expand(x.shape[0], 1 << 40, 1) + 1)[:, 0]


@pytest.mark.parametrize(
    ("make", "given", "text"),
    [
        (Exhausting, 1e15, r"PyTorch execute failure: [\s\S]*can't allocate memory"),
        (Lookup, 94, r"PyTorch execute failure: [\s\S]*index out of range"),
        (lambda: export(Swollen(), (torch.zeros(2, 1),)), 1, r"PyTorch execute failure: [\s\S]*can't allocate memory"),
        (lambda: export(Lookup(), (torch.zeros(2, 1),)), 94, r"PyTorch execute failure: [\s\S]*index out of range"),
    ],
)
def test_want_of_memory_and_errors_of_pytorch_fail_their_request_and_not_the_server(
    repository: Path, start_server: StartServer, make: Callable[[], Any], given: float, text: str
) -> None:
    put(repository, "m", make(), model_config("m", *ONE, max_batch_size=4))
    put(repository, "fine", Lookup(), model_config("fine", *ONE, max_batch_size=4))
    server = start_server(repository)
    inputs = '{{"inputs": [{{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [{}]}}]}}'
    for _ in range(3):
        answer = server.post("/v2/models/m/infer", inputs.format(given).encode())
        assert answer.status == 500
        assert re.search(text, answer.error)
        fine = server.post("/v2/models/fine/infer", inputs.format(5).encode())
        assert (fine.status, fine.json()["outputs"][0]["data"]) == (200, [5])
    assert server.get("/v2/models/m/ready").status == 200


INTER_OP: Final = """
import logging, sys, torch
from runners import Engine
from runners.backends import ModelFailed
logging.basicConfig()
with Engine(sys.argv[1]) as engine:
    assert not engine.failures
    print("threads:", torch.get_num_interop_threads())
"""


def test_threads_check_the_inputs_of_an_exported_program_at_the_same_time(repository: Path) -> None:
    network = nn.Linear(4, 4)
    folder = put(repository, "m", export(network, (torch.zeros(2, 4),)))
    path = folder / "1" / "model.pt2"
    program = load(path, CPU)
    faults: list[Exception] = []

    def run() -> None:
        try:
            for _ in range(2000):
                program.run([torch.zeros(2, 4)])
        except Exception as error:  # noqa: BLE001 - judged below
            faults.append(error)

    # so that each gives way in the midst of its checks
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert faults == []
    # PyTorch 2.15 would pass this anyway: what 2.11 fails by is not there
    module = torch.export.load(str(path)).module()
    wrapped = module._guards_fn.forward
    _unwrap_guards(module)
    assert (wrapped.__name__, module._guards_fn.forward.__name__) == ("inner", "_")


def test_inter_op_threads_are_those_of_the_first_model_that_states_them(repository: Path) -> None:
    said = []
    for name, count in (("m", 5), ("n", 7)):
        extra = parameter("INTER_OP_THREAD_COUNT", str(count))
        put(repository, name, Lookup(), model_config(name, *ONE, max_batch_size=4, extra=extra))
        command = [sys.executable, "-c", INTER_OP, str(repository)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        warnings = done.stderr.count("PyTorch takes it once, from the first model that states it")
        said.append((done.stdout.strip(), warnings))
    # both load at the same time: either may be first
    assert said[0] == ("threads: 5", 0)
    assert said[1] in [("threads: 5", 1), ("threads: 7", 1)]


FUSERS: Final = """
import logging, sys
from runners import Engine, EngineOptions, ModelOptions
logging.basicConfig()
with Engine(sys.argv[1], options=EngineOptions(models=ModelOptions(control="explicit"))) as engine:
    for name in sys.argv[2:]:
        engine.load_model(name)
"""


def test_a_model_that_contradicts_another_about_the_interpreter_is_warned_about(repository: Path) -> None:
    for name, value in (("on", "true"), ("on_too", "true"), ("off", "false")):
        extra = parameter("ENABLE_TENSOR_FUSER", value)
        put(repository, name, Lookup(), model_config(name, *ONE, max_batch_size=4, extra=extra))
    command = [sys.executable, "-c", FUSERS, str(repository), "on", "on_too", "on", "off"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    text = "parameter 'ENABLE_TENSOR_FUSER' of model 'off' is False and that of 'on' True: PyTorch has it once"
    assert (done.stderr.count("PyTorch has it once"), done.stderr.count(text)) == (1, 1)


def test_cudnn_is_on_again_when_the_last_run_without_it_ends() -> None:
    without = WithoutCudnn()
    assert torch.backends.cudnn.enabled
    with ExitStack() as second:
        with without:
            second.enter_context(without)
        assert not torch.backends.cudnn.enabled
    assert torch.backends.cudnn.enabled


class Broken(AbstractContextManager[None]):
    """A GPU whose stream cannot be had."""

    def __enter__(self) -> None:
        raise RuntimeError("the GPU is lost")

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("inference", ["true", "false"])
def test_no_setting_stays_on_the_thread_where_the_stream_of_an_instance_cannot_be_had(inference: str) -> None:
    others = parameter("DISABLE_OPTIMIZED_EXECUTION", "true") + parameter("DISABLE_CUDNN", "true")
    text = model_config("m", *ONE, extra=parameter("INFERENCE_MODE", inference) + others)
    options = read_options(parse(text, "config.pbtxt"))
    # whoever has the error has what was entered, which would otherwise be left when it goes
    with pytest.raises(RuntimeError, match="the GPU is lost") as failed, modes(options, Broken(), uses_gpu=True):
        pass
    assert failed.value.__traceback__
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    assert torch._C._get_graph_executor_optimize()
    assert torch.backends.cudnn.enabled


def test_want_of_memory_on_a_gpu_is_not_the_fault_of_a_request() -> None:
    def run(_: Sequence[Any]) -> Sequence[Any]:
        raise RuntimeError("The following operation failed in the TorchScript interpreter.\nCUDA out of memory.")

    with pytest.raises(ModelFailed, match=r"PyTorch execute failure: [\s\S]*CUDA out of memory"):
        around(run).execute([np.zeros(1, np.float32)], [True])
