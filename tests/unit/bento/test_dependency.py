"""Where a service finds its engine: in its own process, in that of `bentoml serve`, or elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import bentoml
import numpy as np
import pytest

from runners import Client, ConfigInvalid, Engine, InvalidInput, ModelNotFound, ModelUnavailable, Unsupported
from runners.bento import depends, engine, service
from runners.bento.dependency import EngineDependency
from runners.bento.relay.origin import Origin
from tests import models
from tests.bentoml_internals import ADDRESSES, MODEL_STORE, ModelStore
from tests.e2e.pictures import encoded, page, picture
from tests.serving import ROOT
from tests.small_service import FOLDER
from tests.small_service import service as small_service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.serving import Server

ADDRESS = "file:///tmp/bentoml-uds-1/1.sock"
ROW = np.arange(16, dtype=np.int32).reshape(1, 16)


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("KUSHI_ENGINE_URL", raising=False)
    yield
    ADDRESSES.set({})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    models.write_add_sub(tmp_path / "models")
    return tmp_path / "models"


def reader(repository: Path, **where: str) -> Any:  # noqa: ANN401 - a service has no type of its own
    class Reader:
        models = depends(engine(str(repository), name="Models"), **where)

        def sums(self) -> np.ndarray[Any, Any]:
            return np.asarray(self.models.add_sub.run(ROW, ROW)["OUTPUT0"])

    return service(Reader)


def close(made: Any) -> None:  # noqa: ANN401 - a service has no type of its own
    asyncio.run(made.dependencies["models"].close())


def test_in_a_test_the_engine_is_in_this_process(repository: Path) -> None:
    made = reader(repository)
    try:
        instance = made()
        assert isinstance(instance.models, Engine)
        assert instance.models is instance.models
        assert np.array_equal(instance.sums(), 2 * ROW)
    finally:
        close(made)


def test_the_flags_of_the_engine_set_the_limits_of_the_port_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader:
        models = depends(engine("models", name="Models", flags={"http_body_timeout_secs": 7, "exit_timeout_secs": 8}))

    made = service(Reader)
    assert (made.limits.body_seconds, made.limits.exit_seconds) == (7, 8)
    # As for the engine itself, what a flag says wins over a variable.
    monkeypatch.setenv("KUSHI_HTTP_BODY_TIMEOUT_SECS", "9")
    monkeypatch.setenv("KUSHI_HTTP_HEAD_TIMEOUT_SECS", "9")
    assert (made.limits.body_seconds, made.limits.head_seconds) == (7, 9)


def test_after_it_was_closed_it_opens_anew(repository: Path) -> None:
    made = reader(repository)
    try:
        first = made().models
        close(made)
        second = made().models
        assert first is not second
        assert second.is_server_live()
    finally:
        close(made)


def test_the_next_instance_has_an_engine_when_a_test_has_closed_that_of_the_one_before(repository: Path) -> None:
    made = reader(repository)
    try:
        for _ in range(2):
            instance = made()
            assert np.array_equal(instance.sums(), 2 * ROW)
            instance.models.close()
    finally:
        close(made)


def test_instances_share_an_engine_that_is_open(repository: Path) -> None:
    made = reader(repository)
    try:
        assert made().models is made().models
    finally:
        close(made)


def test_a_declared_service_starts_nothing() -> None:
    made = reader(ROOT / "nowhere")
    assert list(made.all_services(exclude_urls=True)) == ["Reader", "Models"]
    with pytest.raises(Exception, match="nowhere"):
        _ = made().models


def test_an_engine_elsewhere_is_asked_and_none_is_started(repository: Path, standard_server: Server) -> None:
    made = reader(repository, url=f"http://127.0.0.1:{standard_server.http[1]}")
    try:
        assert list(made.all_services(exclude_urls=True)) == ["Reader"]
        instance = made()
        assert isinstance(instance.models, Client)
        assert np.array_equal(instance.sums(), 2 * ROW)
        assert made.origin == Origin.of(made.dependencies["models"].url)
    finally:
        close(made)


def test_an_engine_elsewhere_needs_none_here(standard_server: Server) -> None:
    class Reader:
        models = depends(url=f"http://127.0.0.1:{standard_server.http[1]}")

    made: Any = service(Reader)
    try:
        assert list(made.all_services()) == ["Reader"]
        assert np.array_equal(made().models.add_sub.run(ROW, ROW)["OUTPUT0"], 2 * ROW)
    finally:
        close(made)


def test_what_cannot_be_asked_is_refused_where_it_is_declared() -> None:
    with pytest.raises(InvalidInput, match="unknown scheme 'ftp'"):
        depends(engine("models"), url="ftp://engine.example")
    with pytest.raises(InvalidInput, match="did you mean http://engine:8000"):
        depends(engine("models"), url="engine:8000")
    with pytest.raises(InvalidInput, match="unknown scheme 'ftp'"):
        depends(url="ftp://engine.example")
    with pytest.raises(TypeError, match=r"other services are for bentoml\.depends"):
        depends(service(type("Other", (), {})))


def test_a_variable_names_an_engine_elsewhere(
    repository: Path, standard_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUSHI_ENGINE_URL", f"http://127.0.0.1:{standard_server.http[1]}")
    made = reader(repository)
    try:
        assert list(made.all_services(exclude_urls=True)) == ["Reader"]
        assert np.array_equal(made().sums(), 2 * ROW)
    finally:
        close(made)


def test_what_the_code_says_wins_over_the_variable(
    repository: Path, standard_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUSHI_ENGINE_URL", "http://127.0.0.1:1")
    made = reader(repository, url=f"http://127.0.0.1:{standard_server.http[1]}")
    try:
        assert np.array_equal(made().sums(), 2 * ROW)
    finally:
        close(made)


@pytest.mark.parametrize("address", [ADDRESS, "tcp://127.0.0.1:4242"])
def test_under_bentoml_serve_it_is_at_the_place_of_its_process(repository: Path, address: str) -> None:
    ADDRESSES.set({"Models": address})
    made = reader(repository)
    # where the worker that keeps the engine has it
    place = made.dependencies["models"].on.place
    assert made.origin == Origin.at(place, speaks_grpc=True)
    assert made.dependencies["models"].engine_url == f"unix://{place.local}"
    with Engine(repository) as running:
        running.serve_local(str(place.local))
        try:
            instance = made()
            assert isinstance(instance.models, Client)
            assert np.array_equal(instance.sums(), 2 * ROW)
        finally:
            close(made)


def test_an_engine_on_another_host_has_no_sockets_here(repository: Path) -> None:
    ADDRESSES.set({"Models": "http://engine.internal:3000"})
    made = reader(repository)
    assert made.dependencies["models"].place is None
    assert made.origin == Origin.of("http://engine.internal:3000")
    assert made.dependencies["models"].engine_url == "http://engine.internal:3000"


def test_a_service_is_called_directly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    one, line, nothing = (tmp_path / name for name in ("one.png", "line.png", "nothing.png"))
    one.write_bytes(encoded(picture(8)))
    line.write_bytes(encoded(page([4, 2])))
    nothing.write_bytes(encoded(page([])))
    made = small_service.Kushi
    instance: Any = made()
    try:
        assert isinstance(instance.models, Engine)
        with pytest.raises(ModelNotFound):
            instance.models.model("nothing").run()

        async def recording() -> AsyncIterator[bytes]:
            yield bytes(512 + 500)
            yield bytes(12)

        async def main() -> tuple[Any, Any, Any, Any]:
            heard = [each async for each in instance.events(recording())]
            return await instance.digit(one), await instance.digits(line), await instance.digits(nothing), heard

        digit, digits, none, heard = asyncio.run(main())
        assert digit.digit == 8
        assert [found.digit for found in digits] == [4, 2]
        assert none == []
        assert [each.seconds for each in heard] == [0, 0.016]
    finally:
        close(made)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ModelStore]:
    (tmp_path / "store").mkdir()
    store = ModelStore(tmp_path / "store")
    MODEL_STORE.set(store)
    yield store
    MODEL_STORE.reset()


@pytest.mark.usefixtures("store")
def test_models_of_the_store_are_served_and_looked_for_late() -> None:
    late = bentoml.models.BentoModel("calculators:latest"), bentoml.models.BentoModel("files")
    Models = engine(*late, name="Models")  # noqa: N806 - as users write it
    assert Models.models == list(late)
    with pytest.raises(Exception, match="calculators"):
        Models.open()

    with bentoml.models.create("calculators") as calculators:
        models.write_add_sub(Path(calculators.path))
    with bentoml.models.create("files") as files:
        (Path(files.path) / "same.onnx").write_bytes(models.identity("FP32").SerializeToString())
    with Models.open() as running:
        assert {one["name"] for one in running.get_model_repository_index()} == {"add_sub", "same"}
        assert np.array_equal(running.add_sub.run(ROW, ROW)["OUTPUT0"], 2 * ROW)
    with engine(files).open() as running:
        assert running.is_model_ready("same")


def test_a_model_that_is_fetched_to_a_directory_is_served_from_there(repository: Path) -> None:
    class Fetched(bentoml.models.BentoModel):
        """One that says a path, as those of Hugging Face do"""

        def resolve(self, base_path: object = None) -> Any:  # noqa: ANN401 - what each kind of model gives differs
            assert base_path is None
            return str(repository)

    with engine(Fetched("some")).open() as running:
        assert running.is_model_ready("add_sub")


def test_the_wrappers_of_bentoml_call_it(repository: Path) -> None:
    class Adder:
        models = depends(engine(str(repository), name="Models"))

        @bentoml.api
        async def awaited(self, number: int) -> int:
            return int((await self.models.add_sub.async_run(ROW, 0 * ROW + number))["OUTPUT0"][0, 0])

        @bentoml.api
        def waiting(self, number: int) -> int:
            return int(self.models.add_sub.run(ROW, 0 * ROW + number)["OUTPUT0"][0, 0])

    made: Any = service(Adder)
    loop = asyncio.new_event_loop()
    try:
        instance = made()
        asyncio.set_event_loop(loop)
        assert instance.to_sync.awaited(3) == instance.to_sync.waiting(3) == 3
        assert loop.run_until_complete(instance.to_async.waiting(4)) == 4
        assert loop.run_until_complete(instance.to_async.awaited(4)) == 4
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        close(made)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            {"model_controll_mode": "explicit"},
            "flags: unknown flag 'model_controll_mode', did you mean model_control_mode",
        ),
        ({"http_port": "80_00"}, "flags: --http-port: expected an integer from 0 to 65535, got '80_00'"),
        ({"http_port": True}, "flags: --http-port: expected an integer from 0 to 65535, got True"),
        ({"backend_config": ["onnxruntime"]}, "flags: --backend-config: expected BACKEND,KEY=VALUE or KEY=VALUE"),
        ({"host_policy": "x"}, "flags: 'host_policy' is a flag of tritonserver that this version does not support yet"),
    ],
)
def test_a_wrong_flag_is_refused_where_it_is_written(flags: dict[str, object], text: str) -> None:
    with pytest.raises((ConfigInvalid, Unsupported)) as raised:
        engine("models", flags=flags)
    assert str(raised.value).startswith(text)


def test_the_flags_are_those_of_the_engine_in_this_process_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.write(tmp_path / "models", "add_sub", models.add_sub(["batch", 16]))
    models.write_add_sub(tmp_path / "models", "other")
    monkeypatch.setenv("KUSHI_ID", "mine")
    flags = {
        "model-control-mode": "explicit",
        "load_model": ["add_sub"],
        "backend_config": "onnxruntime,default-max-batch-size=3",
        "http_port": 0,
    }
    with engine(str(tmp_path / "models"), flags=flags).open() as opened:
        assert opened.get_server_metadata()["name"] == "mine"
        assert opened.is_model_ready("add_sub")
        assert not opened.is_model_ready("other")
        assert opened.get_model_config("add_sub")["max_batch_size"] == 3


def test_a_model_that_does_not_load_stops_no_other_in_this_process_either(repository: Path) -> None:
    models.write(repository, "broken", b"not a model")
    with engine(str(repository)).open() as opened:
        assert list(opened.failures) == ["broken"]
    with pytest.raises(ModelUnavailable, match="model 'broken' failed to load"):
        engine(str(repository), flags={"exit_on_error": True}).open()


def test_declaring_a_dependency_reads_no_environment_and_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUSHI_ENGINE_URL", "ftp://engine.example")
    monkeypatch.setenv("KUSHI_ENGINE_HEADERS", "no header")
    monkeypatch.setenv("KUSHI_ENGINE_CA_CERT", str(tmp_path / "nowhere"))
    late, nothing = depends(engine("models", name="Models")), depends()
    monkeypatch.delenv("KUSHI_ENGINE_HEADERS")
    monkeypatch.delenv("KUSHI_ENGINE_CA_CERT")
    with pytest.raises(InvalidInput, match="unknown scheme 'ftp'"):
        cast("EngineDependency", late).get()
    monkeypatch.delenv("KUSHI_ENGINE_URL")
    made: Any = service(type("Reader", (), {"models": nothing}))
    with pytest.raises(ConfigInvalid, match="neither an engine nor a url"):
        made.to_asgi()


def test_what_the_environment_says_is_looked_at_before_a_worker_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept, nothing = (cast("EngineDependency", made) for made in (depends(engine("models", name="Models")), depends()))
    kept.check()
    with pytest.raises(ConfigInvalid, match="neither an engine nor a url"):
        nothing.check()
    monkeypatch.setenv("KUSHI_ENGINE_URL", "https://engine.example")
    kept.check()
    monkeypatch.setenv("KUSHI_ENGINE_CA_CERT", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigInvalid, match="nowhere"):
        kept.check()
    monkeypatch.setenv("KUSHI_ENGINE_HEADERS", "no header")
    with pytest.raises(ConfigInvalid, match="KUSHI_ENGINE_HEADERS"):
        kept.check()


@pytest.mark.parametrize(
    ("flags", "open_ports"),
    [
        ({}, set()),
        ({"http_port": 8000}, {"http"}),
        ({"metrics_address": "127.0.0.1"}, {"metrics"}),
        ({"allow_http": True, "allow_metrics": True}, {"http", "metrics"}),
        ({"allow_http": False, "http_port": 8000}, set()),
    ],
)
def test_an_engine_has_the_ports_that_its_flags_ask_for(flags: dict[str, object], open_ports: set[str]) -> None:
    words = engine("models", flags=flags).inner.words()
    assert {port for port in ("http", "metrics") if f"--allow-{port}=false" not in words} == open_ports
