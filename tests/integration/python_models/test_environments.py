"""Python models that run in an environment of their own"""

from __future__ import annotations

import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tritonclient.http import InferenceServerClient
from tritonclient.utils import InferenceServerException

from runners import Engine, EngineOptions, ModelOptions
from runners.backends.python import progress
from runners.errors import KushiError
from tests.integration.python_models.environments import environment, packed, requirements, where, write
from tests.processes import lives
from tests.serving import Server
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.conftest import StartServer

KEPT = EngineOptions(exit_on_error=False)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where environments are made: empty at first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kushi" / "environments"


def made(cache: Path) -> list[Path]:
    """The environments that are there, without their names."""
    return [path for path in sorted(cache.iterdir()) if path.is_dir() and not path.is_symlink()]


def why(repository: Path) -> str:
    """The reason why `m` is not served"""
    with Engine(repository, options=KEPT) as engine:
        return str(engine.failures["m"])


@pytest.mark.parametrize(
    "stated", ["$$TRITON_MODEL_DIRECTORY/env", "{directory}/env"], ids=["beside_the_model", "absolute"]
)
def test_a_directory_is_an_environment(repository: Path, stated: str) -> None:
    directory = repository / "m"
    write(repository, EXECUTION_ENV_PATH=stated.format(directory=directory))
    environment(directory / "env")
    with Engine(repository) as engine:
        said = where(engine)
    assert said["prefix"] == str(directory / "env")
    assert said["variables"]["VIRTUAL_ENV"] == str(directory / "env")
    assert said["variables"]["PATH"].startswith(f"{directory}/env/bin:")


@pytest.mark.parametrize("inside", ["{directory}/", "$$TRITON_MODEL_DIRECTORY/", ""])
def test_a_model_may_name_its_interpreter(repository: Path, inside: str) -> None:
    directory = repository / "m"
    environment(directory / "env")
    write(repository, kushi__python=f"{inside.format(directory=directory)}env/bin/python")
    with Engine(repository) as engine:
        assert where(engine)["prefix"] == str(directory / "env")


def test_a_name_of_a_program_is_looked_for_in_path(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = environment(tmp_path / "env")
    (made / "bin" / "our-own-python").symlink_to("python")
    monkeypatch.setenv("PATH", str(made / "bin"), prepend=":")
    write(repository, kushi__python="our-own-python")
    with Engine(repository) as engine:
        assert where(engine)["prefix"] == str(made)


def test_an_archive_is_unpacked_and_activated_as_conda_does(repository: Path, tmp_path: Path, cache: Path) -> None:
    packed(tmp_path, tmp_path / "env.tar.gz")
    write(repository, EXECUTION_ENV_PATH=str(tmp_path / "env.tar.gz"))
    with Engine(repository) as engine:
        said = where(engine)
    (place,) = made(cache)
    variables = said["variables"]
    assert said["prefix"] == variables["CONDA_PREFIX"] == str(place)
    assert variables["PATH"].startswith(f"{place}/bin:")
    assert variables["LD_LIBRARY_PATH"].startswith(f"{place}/lib")
    assert variables["EXTRA_DATA"] == f"{place}/share/extra data"
    assert (place / "unpacked").read_text() == f"{place}\n", "conda-unpack ran once, where the environment stays"


def test_two_models_with_one_archive_unpack_it_once(repository: Path, tmp_path: Path, cache: Path) -> None:
    packed(tmp_path, tmp_path / "env.tar.gz")
    for name in ("m", "n"):
        write(repository, name, EXECUTION_ENV_PATH=str(tmp_path / "env.tar.gz"))
    with Engine(repository) as engine:
        (place,) = made(cache)
        assert {where(engine, name)["prefix"] for name in ("m", "n")} == {str(place)}
    assert (place / "unpacked").read_text() == f"{place}\n"


def test_two_servers_with_one_archive_unpack_it_once(
    repository: Path, tmp_path: Path, cache: Path, start_server: StartServer
) -> None:
    packed(tmp_path, tmp_path / "env.tar.gz")
    write(repository, EXECUTION_ENV_PATH=str(tmp_path / "env.tar.gz"))
    servers: list[Server] = []
    starting = [threading.Thread(target=lambda: servers.append(start_server(repository))) for _ in range(2)]
    for thread in starting:
        thread.start()
    for thread in starting:
        thread.join()
    assert [server.is_ready() for server in servers] == [True, True]
    (place,) = made(cache)
    assert (place / "unpacked").read_text() == f"{place}\n"


def test_an_archive_that_was_replaced_is_unpacked_again(repository: Path, tmp_path: Path, cache: Path) -> None:
    write(repository, EXECUTION_ENV_PATH=str(tmp_path / "env.tar.gz"))
    for _ in range(2):
        packed(tmp_path, tmp_path / "env.tar.gz")
        with Engine(repository) as engine:
            where(engine)
    assert len(made(cache)) == 2


@pytest.mark.parametrize("broken", [b"this is no archive", None], ids=["garbage", "cut_off"])
def test_an_archive_that_is_broken_is_named_and_leaves_nothing(
    repository: Path, tmp_path: Path, cache: Path, broken: bytes | None
) -> None:
    archive = packed(tmp_path, tmp_path / "env.tar.gz")
    archive.write_bytes(broken or archive.read_bytes()[:-2000])
    write(repository, EXECUTION_ENV_PATH=str(archive))
    assert f"'{archive}' cannot be unpacked: " in why(repository)
    assert not made(cache)


def test_an_archive_whose_paths_cannot_be_changed_is_named(repository: Path, tmp_path: Path, cache: Path) -> None:
    archive = packed(tmp_path, tmp_path / "env.tar.gz", unpack="raise SystemExit('no prefix to replace')")
    write(repository, EXECUTION_ENV_PATH=str(archive))
    reason = why(repository)
    assert reason.endswith(
        f"the environment of '{archive}' cannot be made: python ended with exit code 1:\nno prefix to replace"
    )
    assert not made(cache)


def test_a_directory_that_is_no_environment_is_named(repository: Path, tmp_path: Path) -> None:
    write(repository, EXECUTION_ENV_PATH=str(tmp_path))
    assert why(repository).endswith(
        f"parameter 'EXECUTION_ENV_PATH' of model 'm': '{tmp_path}' has no bin/python and is no environment"
    )


def test_an_environment_that_is_not_there_is_named(repository: Path) -> None:
    write(repository, EXECUTION_ENV_PATH="/nowhere/env.tar.gz")
    assert "parameter 'EXECUTION_ENV_PATH' of model 'm': '/nowhere/env.tar.gz' does not exist" in why(repository)


def test_an_interpreter_without_numpy_is_named(repository: Path) -> None:
    place = environment(repository / "m" / "env")
    next(place.glob("lib/python*/site-packages/outer.pth")).unlink()
    write(repository, EXECUTION_ENV_PATH="$$TRITON_MODEL_DIRECTORY/env")
    assert f"'{place}/bin/python' has no NumPy, which every Python model needs" in why(repository)


def test_requirements_become_an_environment_once(
    repository: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("m", "n"):
        write(repository, name, kushi__requirements="requirements.txt")
        requirements(repository / name)
    with caplog.at_level(logging.INFO), Engine(repository) as engine:
        (place,) = made(cache)
        said = where(engine)
        assert (said["prefix"], said["has_extra"]) == (str(place), True)
        assert said["variables"]["VIRTUAL_ENV"] == str(place)
        assert where(engine, "n")["prefix"] == str(place)
    with Engine(repository) as engine:
        assert where(engine)["prefix"] == str(place)
    assert caplog.text.count("is made with uv") == 1


def test_requirements_may_be_for_another_interpreter(repository: Path, tmp_path: Path) -> None:
    other = environment(tmp_path / "other")
    file = requirements(tmp_path / "shared")
    write(repository, kushi__requirements=str(file), kushi__python=str(other / "bin" / "python"))
    with Engine(repository) as engine:
        assert where(engine)["has_extra"]


def test_what_cannot_be_installed_is_told_and_the_old_version_serves(repository: Path, cache: Path) -> None:
    write(repository, kushi__requirements="$$TRITON_MODEL_DIRECTORY/requirements.txt")
    requirements(repository / "m")
    with Engine(repository, options=EngineOptions(models=ModelOptions(control="explicit", load=("m",)))) as engine:
        requirements(repository / "m", "nothing-like-this")
        with pytest.raises(KushiError) as raised:
            engine.load_model("m")
        said = " ".join(str(raised.value).split())
        assert "requirements.txt' cannot be made: uv ended with exit code 1" in said
        assert "nothing-like-this was not found" in said
        assert where(engine)["has_extra"]
        assert len(made(cache)) == 1
        requirements(repository / "m")
        engine.load_model("m")


def test_requirements_without_numpy_are_told_so(repository: Path, cache: Path) -> None:
    write(repository, kushi__requirements="requirements.txt")
    file = requirements(repository / "m", with_numpy=False)
    assert why(repository).endswith(
        f"the environment of '{file}' has no NumPy, which every Python model needs: add a line 'numpy'"
    )
    assert not made(cache)


def test_requirements_that_are_not_there_are_named(repository: Path) -> None:
    write(repository, kushi__requirements="wants.txt")
    assert why(repository).endswith(
        f"parameter 'kushi.requirements' of model 'm': there is no file '{repository}/m/wants.txt'"
    )


def test_requirements_and_an_environment_exclude_each_other(repository: Path) -> None:
    write(repository, kushi__requirements="requirements.txt", EXECUTION_ENV_PATH="/opt/env")
    assert why(repository).endswith(
        "model 'm' has the parameters 'kushi.requirements' and 'EXECUTION_ENV_PATH', expected one of them"
    )


def test_the_log_says_what_is_being_made(
    repository: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "_SECONDS", 0.001)
    write(repository, kushi__requirements="requirements.txt")
    file = requirements(repository / "m")
    with caplog.at_level(logging.INFO), Engine(repository):
        pass
    assert re.search(rf"the environment of '{file}': .*uv.* \(0 s\)", caplog.text)
    assert re.search(rf"the environment of '{file}' is made, in \d+\.\d s", caplog.text)


@pytest.mark.clock
def test_a_load_that_is_given_up_ends_the_program_that_makes_its_environment(
    repository: Path, tmp_path: Path, start_server: StartServer
) -> None:
    mark = tmp_path / "begun"
    endless = f"import os, pathlib, time\npathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\ntime.sleep(300)\n"
    write(repository, EXECUTION_ENV_PATH=str(packed(tmp_path, tmp_path / "env.tar.gz", unpack=endless)))
    server = start_server(repository, "--model-control-mode=explicit", "--model-load-timeout-secs=2")
    with InferenceServerClient(f"{server.http[0]}:{server.http[1]}") as client:
        with pytest.raises(InferenceServerException):
            client.load_model("m")
        program = int(mark.read_text())
        eventually(lambda: not lives(program), "the program has ended")
        # and no thread stands there for ever
        mark.unlink()
        eventually(lambda: _is_begun_again(client, mark), "it is loaded again")


@pytest.mark.parametrize("signals", [1, 2])
def test_what_an_environment_is_made_with_ends_with_the_server(
    repository: Path, tmp_path: Path, start_server: StartServer, signals: int
) -> None:
    mark = tmp_path / "begun"
    endless = (
        "import pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '300'])\n"
        f"pathlib.Path({str(mark)!r}).write_text(str(child.pid))\n"
        "time.sleep(300)\n"
    )
    write(repository, EXECUTION_ENV_PATH=str(packed(tmp_path, tmp_path / "env.tar.gz", unpack=endless)))
    server = start_server(repository, "--model-control-mode=explicit")
    with (
        InferenceServerClient(f"{server.http[0]}:{server.http[1]}", network_timeout=300) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        loading = threads.submit(client.load_model, "m")
        eventually(lambda: mark.exists() and mark.read_text() != "", "it is being made")
        child = int(mark.read_text())
        for _ in range(signals):
            server.terminate()
        server.wait(60)
        with pytest.raises(Exception, match=r".*"):
            loading.result()
    eventually(lambda: not lives(child), "what the program has started has ended")


def _is_begun_again(client: InferenceServerClient, mark: Path) -> bool:
    with pytest.raises(InferenceServerException):
        client.load_model("m")
    return mark.exists()
