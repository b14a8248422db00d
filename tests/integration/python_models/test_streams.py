"""Streams of Python models, taken in the process of the engine, on its host and over gRPC, by threads and by loops"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runners import Client, Engine
from runners.errors import ConnectionLost, DeadlineExceeded, EngineFailed, InvalidInput, Unsupported
from tests.integration.python_models import models
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kushi_native import Result

    from runners.async_stream import AsyncStream
    from runners.calls import Calls
    from tests.conftest import StartServer

WINDOW = 64

ENDLESS = """
import pathlib

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        (request,) = requests
        sender = request.get_response_sender()
        file = pathlib.Path(__file__).with_name("sent")
        number = 0
        try:
            while True:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("NUMBER", np.array([number], np.int32))]))
                number += 1
                file.write_text(str(number))
        except pb_utils.TritonModelException as error:
            file.write_text(f"ended: {error}")
"""


ENDED_ELSEWHERE = """
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            if pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0] == 0:
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                continue
            full = threading.Event()
            threading.Thread(target=self.end, args=(sender, full)).start()
            try:
                for number in range(1000):
                    if number == 31:
                        full.set()
                    output = pb_utils.Tensor("NUMBER", np.array([number], np.int32))
                    sender.send(pb_utils.InferenceResponse([output]))
            except pb_utils.TritonModelException:
                pass

    def end(self, sender, full):
        full.wait()
        # by then the other thread waits for room
        time.sleep(0.5)
        sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("too slow")), flags=1)
"""


class Taken:
    """What an event loop takes, one by one, as a thread would"""

    def __init__(self, answers: AsyncStream, runner: asyncio.Runner) -> None:
        self._answers = answers
        self._runner = runner

    def __iter__(self) -> Iterator[Result]:
        return self

    def __next__(self) -> Result:
        try:
            return self._runner.run(anext(self._answers))
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        self._runner.run(self._answers.aclose())


class Asked:
    """An engine, or a client of it, that is asked for streams one way"""

    def __init__(self, calls: Calls, runner: asyncio.Runner | None) -> None:
        self.calls = calls
        self._runner = runner

    def stream(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - those of the verb
        if self._runner is None:
            return self.calls.stream(*arguments, **options)
        return Taken(self.calls.async_stream(*arguments, **options), self._runner)


@pytest.fixture(params=["engine-thread", "engine-loop", "local-thread", "local-loop", "grpc-thread", "grpc-loop"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def asked(repository: Path, way: str) -> Iterator[Asked]:
    where, how = way.split("-")
    with ExitStack() as stack:
        engine = stack.enter_context(Engine(repository))
        calls: Calls = engine
        if where == "local":
            engine.serve_local(repository.parent / "door")
            calls = stack.enter_context(Client(f"unix://{repository.parent}/door"))
        elif where == "grpc":
            calls = stack.enter_context(Client(f"grpc://127.0.0.1:{engine.serve_grpc(port=0)}"))
        yield Asked(calls, stack.enter_context(asyncio.Runner()) if how == "loop" else None)


def test_responses_are_taken_one_by_one(repository: Path, way: str) -> None:
    models.write(repository, "counting", models.COUNTING, models.COUNTING_CONFIG)
    with asked(repository, way) as engine:
        answers = engine.stream("counting", {"COUNT": np.array([300], np.int32)}, request_id="mine")
        first = next(answers)
        assert (first["NUMBER"].tolist(), first.request_id, first.model_name) == ([0], "mine", "counting")
        assert [answer["NUMBER"].item() for answer in answers] == list(range(1, 300))
        assert list(answers) == []
        assert list(engine.stream("counting", np.array([0], np.int32))) == []


def test_a_model_with_one_response_is_a_stream_of_one(repository: Path, way: str) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    one = np.ones((1, 2), np.float32)
    with asked(repository, way) as engine:
        (answer,) = engine.stream("add_sub", one, one, outputs=["OUTPUT0"])
        assert dict(answer)["OUTPUT0"].tolist() == [[2, 2]]
        with pytest.raises(InvalidInput, match="NOTHING"):
            next(engine.stream("add_sub", one, one, outputs=["NOTHING"]))


def test_an_error_in_a_stream_is_raised_and_ends_it(repository: Path, way: str) -> None:
    models.write(repository, "failing", models.FAILING_STREAM, models.COUNTING_CONFIG)
    with asked(repository, way) as engine:
        answers = engine.stream("failing", np.array([0], np.int32))
        with pytest.raises(EngineFailed, match="nothing to count"):
            next(answers)
        assert list(answers) == []


def test_one_instance_has_many_streams_open(repository: Path, way: str) -> None:
    models.write(repository, "counting", models.COUNTING, models.COUNTING_CONFIG)
    with asked(repository, way) as engine:
        # longer than what is sent without being taken
        streams = [engine.stream("counting", np.array([300], np.int32)) for _ in range(40)]
        assert [next(stream)["NUMBER"].item() for stream in streams] == [0] * 40
        assert [len(list(stream)) for stream in streams] == [299] * 40


def has_stopped(sent: Path) -> bool:
    """From other processes, some more are on their way"""
    before = sent.read_text()
    time.sleep(0.2)
    return bool(before) and sent.read_text() == before


@pytest.mark.clock
@pytest.mark.parametrize("end", ["closed", "dropped"])
def test_a_model_waits_for_a_slow_reader_and_hears_when_nobody_reads(repository: Path, way: str, end: str) -> None:
    models.write(repository, "endless", ENDLESS, models.COUNTING_CONFIG)
    sent = repository / "endless" / "1" / "sent"
    with asked(repository, way) as engine:
        answers = engine.stream("endless", np.array([0], np.int32))
        assert next(answers)["NUMBER"].item() == 0
        eventually(lambda: sent.exists() and int(sent.read_text() or 0) >= WINDOW, "a full window")
        eventually(lambda: has_stopped(sent), "the model waits")
        if end == "closed":
            answers.close()
            assert list(answers) == []
        else:
            del answers
        eventually(lambda: sent.read_text().startswith("ended: "), "the end of the stream")


def test_the_deadline_ends_a_stream(repository: Path, way: str) -> None:
    models.write(repository, "endless", ENDLESS, models.COUNTING_CONFIG)
    with asked(repository, way) as engine:
        answers = engine.stream("endless", np.array([0], np.int32), deadline=0.3)
        with pytest.raises(DeadlineExceeded):
            for _ in answers:
                pass


@pytest.mark.parametrize("where", ["local-loop", "grpc-loop"])
def test_a_task_that_is_cancelled_leaves_the_stream_well(repository: Path, where: str) -> None:
    models.write(repository, "counting", models.COUNTING, models.COUNTING_CONFIG)

    async def what(calls: Calls) -> None:
        answers = calls.async_stream("counting", np.array([3], np.int32))
        waiting = asyncio.create_task(anext(answers))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert [answer["NUMBER"].item() async for answer in answers] == [0, 1, 2]

    with asked(repository, where) as client:
        asyncio.run(what(client.calls))


def test_leaving_the_loop_ends_the_stream(repository: Path, way: str) -> None:
    models.write(repository, "endless", ENDLESS, models.COUNTING_CONFIG)
    sent = repository / "endless" / "1" / "sent"

    async def what(calls: Calls) -> None:
        async for answer in calls.async_stream("endless", np.array([0], np.int32)):
            if answer["NUMBER"].item() == 3:
                break
        async with calls.async_stream("endless", np.array([0], np.int32)):
            pass

    with asked(repository, way) as engine:
        asyncio.run(what(engine.calls))
        eventually(lambda: sent.read_text().startswith("ended: "), "the end of the stream")


def test_two_tasks_do_not_share_a_stream(repository: Path) -> None:
    held = ENDLESS.replace("while True", "while number < 1").replace("sender =", "self.kept = sender =")
    models.write(repository, "held", held, models.COUNTING_CONFIG)

    async def what(calls: Calls) -> None:
        answers = calls.async_stream("held", np.array([0], np.int32))
        assert (await anext(answers))["NUMBER"] == 0
        first = asyncio.create_task(anext(answers))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task waits for the next answer of this stream"):
            await anext(answers)
        first.cancel()

    with asked(repository, "engine-loop") as engine:
        asyncio.run(what(engine.calls))


def test_a_client_over_http_has_no_streams(repository: Path) -> None:
    models.write(repository, "counting", models.COUNTING, models.COUNTING_CONFIG)
    with (
        Engine(repository) as engine,
        Client(f"http://127.0.0.1:{engine.serve_http(port=0)}") as client,
        pytest.raises(Unsupported, match="give the client the server's grpc:// url"),
    ):
        next(client.stream("counting", np.array([3], np.int32)))


def test_streams_and_calls_go_on_beside_one_that_nobody_takes(repository: Path) -> None:
    models.write(repository, "counting", models.COUNTING, models.COUNTING_CONFIG)
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    one = np.ones((1, 2), np.float32)
    with asked(repository, "local-thread") as client:
        standing = client.stream("counting", np.array([100_000], np.int32))
        next(standing)
        for _ in range(3):
            assert len(list(client.stream("counting", np.array([2000], np.int32)))) == 2000
            assert client.calls.infer("add_sub", one, one)["OUTPUT0"].tolist() == [[2, 2]]
        standing.close()


LARGE = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
            for number in range(8):
                value = np.full(count, number, np.int32)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("NUMBER", value)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def test_a_thread_that_waits_for_room_goes_on_when_another_one_ends_the_request(repository: Path) -> None:
    models.write(repository, "counting", ENDED_ELSEWHERE, models.COUNTING_CONFIG)
    with asked(repository, "local-thread") as engine:
        for _ in range(2):
            slow = engine.stream("counting", np.array([1], np.int32))
            # with nothing taken but the first, the model finds no room, and hears of no more
            next(slow)
            assert list(engine.stream("counting", np.array([0], np.int32))) == []
            with pytest.raises(EngineFailed, match="too slow"):
                list(slow)


def test_large_answers_come_whole(repository: Path, way: str) -> None:
    models.write(repository, "large", LARGE, models.COUNTING_CONFIG.replace("dims: [ 1 ]", "dims: [ -1 ]"))
    with asked(repository, way) as engine:
        for count in (1, 100_000, 3_000_000):
            answers = engine.stream("large", {"COUNT": np.array([count], np.int32)})
            found = [answer["NUMBER"] for answer in answers]
            assert [(len(one), int(one[0]), int(one[-1])) for one in found] == [(count, at, at) for at in range(8)]


def test_an_answer_that_no_frame_holds_ends_the_stream_with_an_error(repository: Path) -> None:
    models.write(repository, "large", LARGE, models.COUNTING_CONFIG.replace("dims: [ 1 ]", "dims: [ -1 ]"))
    with asked(repository, "local-thread") as client:
        with pytest.raises(Unsupported, match="at most 67108864 travel outside of slots"):
            list(client.stream("large", {"COUNT": np.array([20_000_000], np.int32)}))
        assert len(list(client.stream("large", {"COUNT": np.array([1], np.int32)}))) == 8


def test_a_stream_whose_engine_goes_away_is_lost(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "endless", ENDLESS, models.COUNTING_CONFIG)
    server = start_server(repository, f"--local-socket={repository.parent}/door")
    with Client(f"unix://{repository.parent}/door") as client:
        answers = client.stream("endless", np.array([0], np.int32))
        next(answers)
        server.kill()
        with pytest.raises(ConnectionLost, match="closed the connection"):
            list(answers)


def test_closing_the_client_ends_its_streams(repository: Path) -> None:
    models.write(repository, "endless", ENDLESS, models.COUNTING_CONFIG)
    sent = repository / "endless" / "1" / "sent"
    with asked(repository, "local-thread") as client:
        answers = client.stream("endless", np.array([0], np.int32))
        next(answers)
        client.calls.close()
        with pytest.raises(ConnectionLost):
            list(answers)
        eventually(lambda: sent.exists() and sent.read_text().startswith("ended: "), "the end of the stream")
        with pytest.raises(ConnectionLost):
            client.stream("endless", np.array([0], np.int32))


MANY = models.COUNTING.replace("np.array([number], np.int32)", "np.full(LENGTH, number, np.int32)").replace(
    "            sender.send(",
    """            if number == HELD:
                pb_utils.Logger.log_info("has sent all that may wait")
            sender.send(""",
)
"""Answers that are too large for the socket"""


@pytest.mark.parametrize(("length", "clients", "held"), [(10_000, 40, 32), (400_000, 12, 3)], ids=["40 KB", "1.6 MB"])
def test_streams_that_nobody_reads_take_nothing_from_the_others(
    length: int, clients: int, held: int, repository: Path, start_server: StartServer
) -> None:
    config = models.COUNTING_CONFIG.replace("TYPE_INT32 dims: [ 1 ] } ]\nmodel", "TYPE_INT32 dims: [ -1 ] } ]\nmodel")
    models.write(repository, "many", MANY.replace("LENGTH", str(length)).replace("HELD", str(held)), config)
    server = start_server(repository)
    body = b'{"COUNT": [100]}'
    head = b"POST /v2/models/many/generate_stream HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % len(body)
    with ExitStack() as stack:
        for _ in range(clients):
            silent = stack.enter_context(socket.create_connection(server.http))
            silent.sendall(head + body)
        eventually(lambda: server.log.text().count("has sent all that may wait") == clients, "all streams are held")
        for _ in range(3):
            events = server.post("/v2/models/many/generate_stream", b'{"COUNT": [10]}').body.split(b"\n\n")
            assert len([event for event in events if event]) == 10
    assert server.post("/v2/models/many/generate_stream", b'{"COUNT": [10]}').body.count(b"\n\n") == 10
    assert "started again" not in server.log.text()


HOARDING = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        (request,) = requests
        sender = request.get_response_sender()
        count = pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0]
        for number in range(count):
            length = LENGTHS[number % len(LENGTHS)]
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("NUMBER", np.full(length, number, np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def test_answers_of_any_lengths_go_on(repository: Path, way: str) -> None:
    """However many bytes are on their way when the model hears that some were taken"""
    config = models.COUNTING_CONFIG.replace("TYPE_INT32 dims: [ 1 ] } ]\nmodel", "TYPE_INT32 dims: [ -1 ] } ]\nmodel")
    lengths = (1, 900_000, 250_000, 10, 1_048_576, 262_143, 1)
    models.write(repository, "hoarding", HOARDING.replace("LENGTHS", str(lengths)), config)
    with asked(repository, way) as client:
        answers = client.stream("hoarding", np.array([40], np.int32))
        taken = [(answer["NUMBER"].size, int(answer["NUMBER"][0])) for answer in answers]
    assert taken == [(lengths[number % len(lengths)], number) for number in range(40)]


ENDED_BY_THE_SERVER = """
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            # when `execute` has returned
            threading.Timer(0.2, self.answer, args=(request,)).start()

    def answer(self, request):
        sender = request.get_response_sender()
        number = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
        try:
            if number < 0:
                array = np.zeros(8, np.int32)
                tensor = pb_utils.Tensor("NUMBER", array)
                # its bytes do not fill its shape any more
                array.resize(5, refcheck=False)
                sender.send(pb_utils.InferenceResponse([tensor]))
            for _ in range(100):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("NUMBER", np.zeros(1, np.int32))], **ADDED))
        except pb_utils.TritonModelException as error:
            print(error, flush=True)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def test_a_model_hears_that_the_server_has_ended_its_request(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "resizing", ENDED_BY_THE_SERVER.replace("**ADDED", ""), models.COUNTING_CONFIG)
    server = start_server(repository)
    for _ in range(2):
        body = server.post("/v2/models/resizing/generate_stream", b'{"COUNT": -1}').body
        assert b"do not fill its shape" in body
        server.log.wait_for(re.compile("resizing_0: .*Nobody waits for it any more"), 20)
        assert server.post("/v2/models/resizing/generate_stream", b'{"COUNT": 1}').body.count(b"NUMBER") == 100
        server.log.lines.clear()


def test_parameters_that_are_longer_on_the_way_hold_nothing_up(repository: Path, start_server: StartServer) -> None:
    added = 'parameters={"raw": "\\x1b\\x00" * 50_000}'
    models.write(repository, "escaping", ENDED_BY_THE_SERVER.replace("**ADDED", added), models.COUNTING_CONFIG)
    server = start_server(repository)
    assert server.post("/v2/models/escaping/generate_stream", b'{"COUNT": 1}').body.count(b'"NUMBER"') == 100
