"""Where the instances of Python models are, with a driver that stands in for one that shows GPUs"""

from pathlib import Path

import pytest

from tests import placed
from tests.conftest import StartServer


@pytest.mark.parametrize(
    ("group", "places"),
    [
        ("", {"m_0": "GPU 0", "m_1": "GPU 1"}),
        ("instance_group { }", {"m_0_0": "GPU 0", "m_0_1": "GPU 1"}),
        ("instance_group { kind: KIND_GPU gpus: 1 }", {"m_0_0": "GPU 1"}),
        (
            "instance_group [ { kind: KIND_GPU count: 2 gpus: 1 }, { kind: KIND_CPU } ]",
            {"m_0_0": "GPU 1", "m_0_1": "GPU 1", "m_1_0": "CPU 0"},
        ),
        ("instance_group { kind: KIND_CPU }", {"m_0_0": "CPU 0"}),
        ("instance_group { kind: KIND_MODEL count: 2 }", {"m_0_0": "MODEL 0", "m_0_1": "MODEL 0"}),
    ],
)
def test_instances_are_placed_as_the_configuration_says(
    group: str, places: dict[str, str], two_gpus: None, repository: Path, start_server: StartServer
) -> None:
    placed.write(repository, "m", group)
    server = start_server(repository)
    placed.wait_for_instances(server, places)
    assert sum("is placed" in line for line in server.log.lines) == len(places)
    placed.ask(server, "m")


@pytest.mark.parametrize("elements", [0, 3, 300_000])
def test_an_output_on_a_gpu_is_copied_and_inputs_are_on_the_host(
    elements: int, two_gpus: None, repository: Path, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    memory = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }'
    placed.write(repository, "m", f"instance_group {{ kind: KIND_GPU gpus: 1 }} {memory}")
    told = placed.ask(start_server(repository), "m", elements)
    # the device is one of those that are visible, and which are is nobody's to change
    assert told == {"kind": "GPU", "visible": "5,7", "input_on_cpu": True, "output_on_cpu": False}


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ("kind: KIND_GPU gpus: 2", "instance group m_0 of model m specifies invalid or unsupported gpu id 2."),
        (
            "kind: KIND_MODEL gpus: 0",
            "instance group m_0 of model m has kind KIND_MODEL but specifies one or more GPUs",
        ),
    ],
)
def test_a_place_that_there_is_not_is_refused(
    group: str, reason: str, two_gpus: None, repository: Path, start_server: StartServer
) -> None:
    placed.write(repository, "m", f"instance_group {{ {group} }}")
    server = start_server(repository, "--exit-on-error=false", ready=False)
    assert reason in server.post("/v2/repository/index", b"").json()[0]["reason"]


def test_without_a_driver_a_gpu_is_refused_with_what_is_missing(
    repository: Path, start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one that cannot be loaded, whatever the machine has
    (tmp_path / "libcuda.so.1").write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    placed.write(repository, "m", "instance_group { kind: KIND_GPU }")
    server = start_server(repository, "--exit-on-error=false", ready=False)
    reason = server.post("/v2/repository/index", b"").json()[0]["reason"]
    refusal = "instance group m_0 of model m has kind KIND_GPU but server does not support GPUs"
    assert f"{refusal}: the driver of NVIDIA cannot be loaded: " in reason


def test_what_a_parameter_of_triton_must_say(repository: Path, start_server: StartServer) -> None:
    key = "FORCE_CPU_ONLY_INPUT_TENSORS"
    placed.write(repository, "m", f'parameters {{ key: "{key}" value {{ string_value: "maybe" }} }}')
    server = start_server(repository, "--exit-on-error=false", ready=False)
    reason = server.post("/v2/repository/index", b"").json()[0]["reason"]
    assert reason.endswith(f"Incorrect value for {key}: maybe'")
