"""Models whose files or configuration would harm the server that loads them: each fails alone and says why."""

from __future__ import annotations

import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests import hostile_models, models
from tests.bystander import undisturbed
from tests.held import hold_file
from tests.raw_http import frame
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Response
    from tests.serving import Server

EXPLICIT = ("--model-control-mode=explicit", "--load-model=add_sub")
CHANGE = "/v2/repository/models/{}/{}"
INDEX = "/v2/repository/index"


@pytest.fixture
def explicit(repository: Path, start_server: StartServer) -> Server:
    """One thread loads, so that a load that keeps it would keep out all others."""
    models.write_add_sub(repository)
    return start_server(repository, *EXPLICIT, "--model-load-thread-count=1")


def change(server: Server, name: str, action: str) -> Response:
    return server.post(CHANGE.format(name, action), b"")


def reasons(server: Server, name: str) -> list[tuple[str, str]]:
    rows = server.post(INDEX, b"").json()
    return [(row.get("state", ""), row.get("reason", "")) for row in rows if row["name"] == name]


def write_identity(repository: Path, text: str, name: str = "m") -> Path:
    return models.write(repository, name, models.identity("FP32"), text)


LABELLED = models.config(
    "m",
    [("INPUT0", "FP32", [-1])],
    [("OUTPUT0", "FP32", [-1])],
    max_batch_size=8,
    fields={"OUTPUT0": 'label_filename: "labels.txt"'},
).replace('name: "m"', "")


def with_labels(repository: Path) -> Path:
    return write_identity(repository, LABELLED) / "labels.txt"


def link_loop_as_labels(repository: Path) -> None:
    labels = with_labels(repository)
    labels.symlink_to(labels.name)


def link_loop_as_configuration(repository: Path) -> None:
    configuration = write_identity(repository, "") / "config.pbtxt"
    configuration.unlink()
    configuration.symlink_to(configuration.name)


def link_loop_as_operator_library(repository: Path) -> None:
    text = 'backend: "onnxruntime" model_operations { op_library_filename: "library.so" }'
    library = write_identity(repository, text) / "library.so"
    library.symlink_to(library.name)


def nul_in_the_path_of_labels(repository: Path) -> None:
    write_identity(repository, LABELLED.replace("labels.txt", r"a\000b"))


def nul_in_the_path_of_an_operator_library(repository: Path) -> None:
    write_identity(repository, r'backend: "onnxruntime" model_operations { op_library_filename: "a\000b" }')


def endless_configuration(repository: Path) -> None:
    configuration = write_identity(repository, "") / "config.pbtxt"
    configuration.unlink()
    configuration.symlink_to("/dev/zero")


def large_configuration(repository: Path) -> None:
    configuration = write_identity(repository, "") / "config.pbtxt"
    with configuration.open("wb") as file:
        file.truncate(1 << 40)


def one_long_line_that_is_no_configuration(repository: Path) -> None:
    write_identity(repository, 'name: "' + "a" * 500_000 + '" !')


def pipe_as_configuration(repository: Path) -> None:
    configuration = write_identity(repository, "") / "config.pbtxt"
    configuration.unlink()
    os.mkfifo(configuration)


def pipe_as_labels(repository: Path) -> None:
    os.mkfifo(with_labels(repository))


def endless_labels(repository: Path) -> None:
    with_labels(repository).symlink_to("/dev/zero")


def pipe_as_model(repository: Path) -> None:
    file = write_identity(repository, "") / "1/model.onnx"
    file.unlink()
    os.mkfifo(file)


def pipe_as_weights(repository: Path) -> None:
    file = models.write(repository, "m", hostile_models.with_weights_in("weights")) / "1/weights"
    os.mkfifo(file)


def pipe_as_environment(repository: Path) -> None:
    stated = "$$TRITON_MODEL_DIRECTORY/env.tar.gz"
    folder = repository / "m"
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text("class TritonPythonModel: pass\n")
    parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{stated}" }} }}'
    (folder / "config.pbtxt").write_text(f'backend: "python" {parameter}')
    os.mkfifo(folder / "env.tar.gz")


def dangling_configuration(repository: Path) -> None:
    configuration = write_identity(repository, "") / "config.pbtxt"
    configuration.unlink()
    configuration.symlink_to("nowhere/config.pbtxt")


def dangling_labels(repository: Path) -> None:
    with_labels(repository).symlink_to("nowhere/labels.txt")


def dangling_version(repository: Path) -> None:
    (write_identity(repository, "") / "2").symlink_to("nowhere/2")


def dangling_model_file(repository: Path) -> None:
    file = write_identity(repository, 'backend: "onnxruntime"') / "1/model.onnx"
    file.unlink()
    file.symlink_to("nowhere/model.onnx")


def dangling_model(repository: Path) -> None:
    (repository / "m").symlink_to("nowhere/m")


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "link_loop_as_labels": (link_loop_as_labels, r"m/labels\.txt' is a link to 'labels\.txt', which leads to itself"),
    "link_loop_as_configuration": (
        link_loop_as_configuration,
        r"m/config\.pbtxt' is a link to .*, which leads to itself",
    ),
    "link_loop_as_operator_library": (link_loop_as_operator_library, r"library\.so"),
    "nul_in_the_path_of_labels": (nul_in_the_path_of_labels, r"label file path"),
    "nul_in_the_path_of_an_operator_library": (nul_in_the_path_of_an_operator_library, r"op_library_filename"),
    "endless_configuration": (endless_configuration, r"m/config\.pbtxt' is a device, expected a regular file"),
    "large_configuration": (large_configuration, r"m/config\.pbtxt' has more than \d+ bytes"),
    "one_long_line_that_is_no_configuration": (one_long_line_that_is_no_configuration, r"m/config\.pbtxt:1:"),
    "pipe_as_configuration": (pipe_as_configuration, r"m/config\.pbtxt' is a pipe, expected a regular file"),
    "pipe_as_labels": (pipe_as_labels, r"m/labels\.txt' is a pipe, expected a regular file"),
    "endless_labels": (endless_labels, r"m/labels\.txt|label file path"),
    "pipe_as_model": (pipe_as_model, r"m/1/model\.onnx' is a pipe, expected a regular file"),
    "pipe_as_weights": (pipe_as_weights, r"m/1/weights' is a pipe, expected a regular file"),
    "pipe_as_environment": (pipe_as_environment, r"m/env\.tar\.gz' is a pipe, expected a regular file"),
    "dangling_configuration": (
        dangling_configuration,
        r"m/config\.pbtxt' is a link to 'nowhere/config\.pbtxt', which is not there",
    ),
    "dangling_labels": (dangling_labels, r"m/labels\.txt' is a link to 'nowhere/labels\.txt', which is not there"),
    "dangling_version": (dangling_version, r"m/2' is a link to 'nowhere/2', which is not there"),
    "dangling_model_file": (
        dangling_model_file,
        r"m/1/model\.onnx' is a link to 'nowhere/model\.onnx', which is not there",
    ),
    "dangling_model": (dangling_model, r"/m' is a link to 'nowhere/m', which is not there"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_cannot_be_read_fails_alone_and_the_index_keeps_its_reason(
    name: str, explicit: Server, repository: Path
) -> None:
    make, reason = REFUSED[name]
    make(repository)
    with undisturbed(explicit):
        refused = change(explicit, "m", "load")
        assert refused.status in {400, 500}, refused
        assert re.search(reason, refused.error), refused.error
        assert "Traceback" not in explicit.log.text()
        assert len(refused.error) < 2000
        (state, kept) = reasons(explicit, "m")[-1]
        assert state == "UNAVAILABLE"
        assert re.search(reason, kept), kept
        remove(repository / "m")
        write_identity(repository, "")
        assert change(explicit, "m", "load").status == 200
    assert explicit.is_ready()


def remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path)


def test_a_server_that_may_start_without_all_models_starts_without_those(
    repository: Path, start_server: StartServer
) -> None:
    models.write_add_sub(repository)
    for name, (make, _) in REFUSED.items():
        make(repository)
        (repository / "m").rename(repository / name)
    server = start_server(repository, "--exit-on-error=false", "--strict-readiness=false")
    with undisturbed(server):
        for name in REFUSED:
            ((state, reason),) = reasons(server, name)
            assert (state, bool(reason)) == ("UNAVAILABLE", True), name
        assert "Traceback" not in server.log.text()


def test_rows_too_large_to_allocate_are_not_tried(explicit: Server, repository: Path) -> None:
    text = models.config(
        "m",
        [("INPUT0", "FP32", [1 << 36])],
        [("OUTPUT0", "FP32", [-1])],
        max_batch_size=4,
        extra="instance_group [ { kind: KIND_CPU count: 1 } ]",
    )
    write_identity(repository, text)
    with undisturbed(explicit):
        assert change(explicit, "m", "load").status == 200
    assert explicit.is_ready()


def test_a_model_that_never_ends_a_run_is_loaded_without_being_measured(explicit: Server, repository: Path) -> None:
    models.write(repository, "m", hostile_models.endless(), models.ONE_INSTANCE)
    with undisturbed(explicit) as bystander:
        assert change(explicit, "m", "load").status == 200
        bystander.is_still_answered()
        assert change(explicit, "m", "unload").status == 200


def test_a_load_that_takes_too_long_is_given_up_and_leaves_its_thread_to_the_next(
    repository: Path, start_server: StartServer
) -> None:
    models.write_add_sub(repository)
    file = write_identity(repository, "") / "1/model.onnx"
    models.write(repository, "other", models.identity("FP32"))
    server = start_server(repository, *EXPLICIT, "--model-load-thread-count=1", "--model-load-timeout-secs=3")
    with undisturbed(server), hold_file(file):
        refused = change(server, "m", "load")
        text = "not loaded after 3 s (--model-load-timeout-secs): it is given up"
        assert (refused.status, text in refused.error) == (400, True), refused
        assert reasons(server, "m") == [("UNAVAILABLE", text)]
        for _ in range(9):
            again = change(server, "m", "load")
            assert "an earlier load of this model was given up and still stands" in again.error
        assert change(server, "other", "load").status == 200
    eventually(lambda: change(server, "m", "load").status == 200, "the earlier load has ended, and another begins")
    assert server.is_ready()


def test_loads_that_stand_still_are_bounded_in_number(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    names = [f"m{number}" for number in range(8)]
    files = [write_identity(repository, "", name) / "1/model.onnx" for name in names]
    models.write(repository, "other", models.identity("FP32"))
    server = start_server(repository, *EXPLICIT, "--model-load-timeout-secs=3", "--model-load-thread-count=8")
    with undisturbed(server), ExitStack() as held, ThreadPoolExecutor(len(names)) as pool:
        for file in files:
            held.enter_context(hold_file(file))
        loading = [pool.submit(change, server, name, "load") for name in names]
        assert all("is given up" in load.result().error for load in loading)
        refused = change(server, "other", "load")
        assert "8 loads that were given up still stand" in refused.error
    eventually(lambda: change(server, "other", "load").status == 200, "the threads have ended")
    eventually(lambda: change(server, "m0", "load").status == 200, "the earlier load of m0 has ended")


def test_loads_and_unloads_that_alternate_leave_no_load_behind(explicit: Server, repository: Path) -> None:
    write_identity(repository, "")
    with undisturbed(explicit), ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            loading = pool.submit(change, explicit, "m", "load")
            unloading = pool.submit(change, explicit, "m", "unload")
            assert b"still stand" not in loading.result().body
            unloading.result()
        assert change(explicit, "m", "load").status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_load_that_stands_still_does_not_hold_up_the_end(
    number: signal.Signals, explicit: Server, repository: Path
) -> None:
    file = write_identity(repository, "") / "1/model.onnx"
    with hold_file(file) as held, explicit.connect() as loading:
        loading.send(frame("POST", CHANGE.format("m", "load")))
        held.wait_until_asked_for()
        explicit.process.send_signal(number)
        given_up = loading.receive()
        assert (given_up.status, "Server not ready" in given_up.error) == (503, True), given_up
        # while the library still stands
        assert explicit.wait() == 0


def test_an_unload_gives_up_the_load_that_goes_on(explicit: Server, repository: Path) -> None:
    file = write_identity(repository, "") / "1/model.onnx"
    with undisturbed(explicit), hold_file(file) as held, explicit.connect() as loading:
        loading.send(frame("POST", CHANGE.format("m", "load")))
        held.wait_until_asked_for()
        assert reasons(explicit, "m") == [("LOADING", "")]
        assert explicit.get("/v2/health/ready").status == 400
        assert change(explicit, "m", "unload").status == 200
        given_up = loading.receive()
        assert given_up.status == 400
        assert "given up: the model is to be unloaded" in given_up.error
        assert reasons(explicit, "m") == [("UNAVAILABLE", "unloaded")]
        assert explicit.is_ready()
    assert change(explicit, "m", "load").status == 200


def test_a_model_that_grows_without_bound_while_it_is_opened_is_given_up(explicit: Server, repository: Path) -> None:
    models.write(repository, "m", hostile_models.doubling(22))
    with undisturbed(explicit) as bystander, explicit.connect() as loading:
        loading.send(frame("POST", CHANGE.format("m", "load")))
        eventually(lambda: reasons(explicit, "m") == [("LOADING", "")], "the load goes on")
        assert change(explicit, "m", "unload").status == 200
        assert "given up" in loading.receive().error
        bystander.is_still_answered()
        assert explicit.is_ready()
    # what was given up goes on, and does not hold up the end
    assert explicit.stop() == 0


def test_a_repository_that_is_gone_does_not_hide_what_serves(explicit: Server, repository: Path) -> None:
    away = repository.with_name("away")
    with undisturbed(explicit):
        repository.rename(away)
        row = {"name": "add_sub", "version": "1", "state": "READY"}
        for _ in range(3):
            assert explicit.post(INDEX, b"").json() == [row]
            assert explicit.post(INDEX, b'{"ready":true}').json() == [row]
        refused = change(explicit, "add_sub", "load")
        assert (refused.status, "failed to poll from model repository" in refused.error) == (500, True)
        assert explicit.is_ready()
        away.rename(repository)
        assert change(explicit, "add_sub", "load").status == 200
    complaint = re.compile("model repository '.*' cannot be read: No such file or directory")
    explicit.log.wait_for(complaint, 10)
    assert len(complaint.findall(explicit.log.text())) == 1


@pytest.mark.parametrize("what", ["config.pbtxt", "model.onnx", "a link"])
def test_names_of_files_need_not_be_text(repository: Path, start_server: StartServer, what: str) -> None:
    models.write_add_sub(repository)
    models.write_add_sub(repository, "odd")
    version = repository / "odd/1"
    if what == "config.pbtxt":
        (repository / "odd/config.pbtxt").unlink()
        (repository / "odd/config.pbtxt").symlink_to(os.fsdecode(b"\xff"))
    elif what == "model.onnx":
        (version / "model.onnx").rename(version / os.fsdecode(b"\xff.onnx"))
    else:
        (version / "model.onnx").unlink()
        (version / "model.onnx").symlink_to(os.fsdecode(b"\xff.onnx"))
    server = start_server(repository, "--exit-on-error=false", "--strict-readiness=false")
    assert reasons(server, "add_sub") == [("READY", "")]
    ((state, reason), *_) = reasons(server, "odd")
    assert state == "UNAVAILABLE"
    assert reason
    assert change(server, "odd", "load").status in {400, 503}
    assert "Traceback" not in server.log.text()
