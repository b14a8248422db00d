"""What becomes of the calls of a request when its asker has gone"""

import re
import time
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests import models as onnx_models
from tests.conftest import StartServer
from tests.gates import HELD, Gate
from tests.integration.hostile import inflight_bytes
from tests.integration.python_models import callers, models
from tests.integration.python_models.test_models import client_of, pair, tensor
from tests.raw_http import Connection, frame
from tests.serving import Server
from tests.waiting import eventually

# how long a server waits for what is inside when it ends
DRAIN_S = 30
CANCELLED = "__ErrorCode.CANCELLED"


def asked_of(model: str, text: str = "x") -> bytes:
    body = b'{"inputs":[{"name":"WHAT","datatype":"BYTES","shape":[1],"data":["%s"]}]}' % text.encode()
    return frame("POST", f"/v2/models/{model}/infer", body=body)


ASKED = asked_of("asking")


def write_asking(
    repository: Path, name: str, asked: str, how: str = "def", ask: str = "[asked.exec()]", *, timeout_us: int = 0
) -> None:
    source = callers.ASKING_ONE_THAT_WAITS.replace("HOW", how).replace("ASK", ask).replace("NAME", asked)
    source = source.replace("TIMEOUT", str(timeout_us))
    models.write(repository, name, source, models.COUNTED_CONFIG)


def leave(server: Server, at_the_end: str = "waiting") -> None:
    """Asks, and goes when the model at the end has begun"""
    with server.connect() as connection:
        connection.send(ASKED)
        server.log.wait_for(re.compile(f"{at_the_end}_0: has begun$"), 20)


WAYS = pytest.mark.parametrize(
    ("how", "ask", "decoupled"),
    [
        ("def", "[asked.exec()]", False),
        ("async def", "[await asked.async_exec()]", False),
        ("async def", "await asyncio.gather(asked.async_exec(), asked.async_exec())", False),
        ("def", "list(asked.exec(decoupled=True))", True),
        ("async def", "list(await asked.async_exec(decoupled=True))", True),
    ],
    ids=["exec", "async_exec", "two", "exec_decoupled", "async_exec_decoupled"],
)


@WAYS
def test_calls_end_when_the_asker_has_gone(
    how: str, ask: str, decoupled: bool, repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "waiting", *callers.waiting(decoupled=decoupled))
    write_asking(repository, "asking", "waiting", how, ask)
    server = start_server(repository)
    leave(server)
    for line in ("waiting_0: is cancelled", f"asking_0: {CANCELLED}"):
        server.log.wait_for(re.compile(line), 20)
    assert not any("is started again" in line for line in server.log.lines)


def test_calls_of_calls_end_as_well(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "waiting", *callers.waiting(decoupled=False))
    write_asking(repository, "middle", "waiting")
    write_asking(repository, "asking", "middle")
    server = start_server(repository)
    leave(server)
    for line in ("waiting_0: is cancelled", f"middle_0: {CANCELLED}", f"asking_0: {CANCELLED}"):
        server.log.wait_for(re.compile(line), 20)


def test_a_model_that_has_answered_goes_on_asking(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    models.write(repository, "asking", callers.ANSWERING_FIRST, models.ADD_SUB_CONFIG)
    server = start_server(repository)
    one = np.ones((1, 1), np.float32)
    for _ in range(5):
        client_of(server).infer("asking", pair(one, one))
    eventually(lambda: server.log.text().count("asking_0: asked: 2.0") == 5, "all of its questions are answered")


def test_a_deadline_that_passes_ends_the_calls(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "waiting", *callers.waiting(decoupled=False))
    write_asking(repository, "asking", "waiting")
    server = start_server(repository)
    with pytest.raises(Exception, match="Request timeout expired"):
        client_of(server).infer(
            "asking",
            [tensor("WHAT", np.array([b"x"], np.object_))],
            headers={"kushi-timeout-us": "1000000"},
        )
    server.log.wait_for(re.compile("waiting_0: is cancelled"), 20)


@WAYS
def test_calls_of_who_has_gone_end_without_the_model_that_was_asked(
    how: str, ask: str, decoupled: bool, repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "keeping", *callers.keeping(decoupled=decoupled))
    write_asking(repository, "asking", "keeping", how, ask)
    server = start_server(repository)
    leave(server, "keeping")
    server.log.wait_for(re.compile(f"asking_0: {CANCELLED}"), 20)
    assert not any("is started again" in line for line in server.log.lines)


@WAYS
def test_calls_whose_own_time_has_passed_end_without_the_model_that_was_asked(
    how: str, ask: str, decoupled: bool, repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "keeping", *callers.keeping(decoupled=decoupled))
    write_asking(repository, "asking", "keeping", how, ask, timeout_us=300_000)
    server = start_server(repository)
    for _ in range(3):
        client_of(server).infer("asking", [tensor("WHAT", np.array([b"x"], np.object_))])
    server.log.wait_for(re.compile("keeping_0: has begun$"), 20)
    ended = re.compile(r"asking_0: (__ErrorCode\.UNAVAILABLE ?)+$")
    eventually(lambda: sum(bool(ended.search(line)) for line in server.log.lines) == 3, "the ends of the calls")


def test_a_deadline_that_passes_ends_the_calls_without_the_model_that_was_asked(
    repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "keeping", *callers.keeping(decoupled=False))
    write_asking(repository, "asking", "keeping")
    server = start_server(repository)
    client, asked = client_of(server), [tensor("WHAT", np.array([b"x"], np.object_))]
    ended = re.compile(f"asking_0: {CANCELLED}")
    for _ in range(2):
        with pytest.raises(InferenceServerException, match="Request timeout expired"):
            client.infer("asking", asked, headers={"kushi-timeout-us": "300000"})
    eventually(lambda: sum(bool(ended.search(line)) for line in server.log.lines) == 2, "the ends of both calls")


ENDING_ITERATORS = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            asked = pb_utils.InferenceRequest(
                model_name="keeping", requested_output_names=["SAID"], inputs=request.inputs()
            )
            answers = asked.exec(decoupled=True)
            answers.cancel()
            print(*[answer.error().code() for answer in answers], flush=True)
            answers.cancel()
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""


def test_an_iterator_that_is_cancelled_comes_to_its_end(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "keeping", *callers.keeping(decoupled=True))
    models.write(repository, "asking", ENDING_ITERATORS, models.COUNTED_CONFIG)
    server = start_server(repository)
    for _ in range(3):
        client_of(server).infer("asking", [tensor("WHAT", np.array([b"x"], np.object_))])
    ended = re.compile(f"asking_0: {CANCELLED}$")
    eventually(lambda: sum(bool(ended.search(line)) for line in server.log.lines) == 3, "each has one end")


BUSY = """
import threading


class TritonPythonModel:
    def execute(self, requests):
        print("has begun", flush=True)
        threading.Event().wait()
"""


def test_calls_whose_own_time_has_passed_leave_the_queue(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "busy", BUSY, models.COUNTED_CONFIG)
    ask = "await asyncio.gather(*[asked.async_exec() for _ in range(3)])"
    write_asking(repository, "asking", "busy", "async def", ask, timeout_us=300_000)
    server = start_server(repository)
    client_of(server).infer("asking", [tensor("WHAT", np.array([b"x"], np.object_))])
    server.log.wait_for(re.compile("asking_0: " + " ".join(3 * ["__ErrorCode.UNAVAILABLE"]) + "$"), 20)


def test_a_model_that_never_ends_its_requests_is_named(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "keeping", *callers.keeping(decoupled=False))
    ask = "await asyncio.gather(*[asked.async_exec() for _ in range(1030)])"
    write_asking(repository, "asking", "keeping", "async def", ask)
    server = start_server(repository)
    named = re.compile(r"keeping_0: 1024 batches are not answered, \d+ of which nobody waits for")
    with server.connect() as connection:
        connection.send(ASKED)
        server.log.wait_for(named, 20)
    server.log.wait_for(re.compile(f"asking_0: {CANCELLED}"), 20)
    assert sum(bool(named.search(line)) for line in server.log.lines) == 1


ANSWERING_ALL_BUT_THE_FIRST = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        if not self.kept:
            self.kept.append(request.get_response_sender())
            print("has kept one", flush=True)
            return None
        print("answers", flush=True)
        return pb_utils.InferenceResponse([])
"""

IN_ORDER = "dynamic_batching { preserve_ordering: true }"


def write_in_order(repository: Path, *, timeout_us: int = 0) -> None:
    """Answers of the first model wait for its first one, which never comes"""
    models.write(repository, "ordered", ANSWERING_ALL_BUT_THE_FIRST, models.COUNTED_CONFIG + IN_ORDER)
    ask = "await asyncio.gather(*[asked.async_exec() for _ in range(3)])"
    write_asking(repository, "asking", "ordered", "async def", ask, timeout_us=timeout_us)


def ask_the_first(server: Server, connection: Connection, text: str = "x") -> None:
    """Which is never answered"""
    connection.send(asked_of("ordered", text))
    server.log.wait_for(re.compile("ordered_0: has kept one"), 20)


def test_calls_whose_own_time_has_passed_end_though_their_answers_wait(
    repository: Path, start_server: StartServer
) -> None:
    write_in_order(repository, timeout_us=1_000_000)
    server = start_server(repository)
    with server.connect() as stays:
        ask_the_first(server, stays)
        client_of(server).infer("asking", [tensor("WHAT", np.array([b"x"], np.object_))])
        server.log.wait_for(re.compile("asking_0:( __ErrorCode.UNAVAILABLE){3}$"), 20)


def test_calls_of_who_has_gone_end_though_their_answers_wait(repository: Path, start_server: StartServer) -> None:
    write_in_order(repository)
    server = start_server(repository)
    with server.connect() as stays:
        ask_the_first(server, stays)
        with server.connect() as connection:
            connection.send(ASKED)
            eventually(lambda: server.log.text().count("ordered_0: answers") == 3, "they are answered")
        server.log.wait_for(re.compile(f"asking_0:( {CANCELLED}){{3}}$"), 20)


def test_answers_wait_for_none_that_nobody_waits_for(repository: Path, start_server: StartServer) -> None:
    write_in_order(repository)
    server = start_server(repository)
    with server.connect() as leaves:
        ask_the_first(server, leaves)
        with server.connect() as connection:
            connection.send(asked_of("ordered"))
            eventually(lambda: "ordered_0: answers" in server.log.text(), "it is answered")
            leaves.close()
            assert connection.receive().status == 200
    client_of(server).infer("ordered", [tensor("WHAT", np.array([b"x"], np.object_))])


def test_what_nobody_waits_for_is_not_kept(repository: Path, start_server: StartServer) -> None:
    """A model that never ends its requests keeps neither their inputs nor the server"""
    models.write(repository, "ordered", ANSWERING_ALL_BUT_THE_FIRST, models.COUNTED_CONFIG)
    server = start_server(repository)
    with server.connect() as leaves:
        ask_the_first(server, leaves, "x" * 100_000)
        assert inflight_bytes(server) > 0
    eventually(lambda: inflight_bytes(server) == 0, "nothing is in flight")
    client_of(server).infer("ordered", [tensor("WHAT", np.array([b"x"], np.object_))])
    begun = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - begun < DRAIN_S, "nothing was waited for"


def test_what_a_model_keeps_ends_with_the_server(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "ordered", ANSWERING_ALL_BUT_THE_FIRST, models.COUNTED_CONFIG)
    server = start_server(repository, "--exit-timeout-secs=1")
    with server.connect() as waits:
        ask_the_first(server, waits)
        server.terminate()
        ended = waits.receive()
    assert (ended.status, "model 'ordered' is being stopped" in ended.error) == (503, True), ended


ANSWERING_MEANWHILE = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            asked = pb_utils.InferenceRequest(
                model_name="keeping", requested_output_names=["SAID"], inputs=request.inputs()
            )
            answers = asked.exec(decoupled=True)
            final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            request.get_response_sender().send(pb_utils.InferenceResponse([]), flags=final)
            print(*[answer.error().code() for answer in answers], flush=True)
        return [None for _ in requests]
"""


def test_calls_end_with_the_deadline_of_an_asker_that_has_its_answer(
    repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "keeping", *callers.keeping(decoupled=True))
    models.write(repository, "asking", ANSWERING_MEANWHILE, models.COUNTED_CONFIG)
    server = start_server(repository)
    asked = [tensor("WHAT", np.array([b"x"], np.object_))]
    client_of(server).infer("asking", asked, headers={"kushi-timeout-us": "2000000"})
    server.log.wait_for(re.compile(f"asking_0: {CANCELLED}$"), 20)


GIVING_UP = """
import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils

# more than may be waited for at once
COUNT = 300


def asked(model, value):
    tensor = pb_utils.Tensor("STEPS", np.array([[value]], np.int64))
    return pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUTPUT0"], inputs=[tensor])


class TritonPythonModel:
    async def execute(self, requests):
        waiting = [asyncio.ensure_future(asked("held", HELD).async_exec()) for _ in range(COUNT)]
        for one in waiting:
            one.cancel()
        answer = await asked("other", 1).async_exec()
        assert not answer.has_error(), answer.error().message()
        return [pb_utils.InferenceResponse(answer.output_tensors()) for _ in requests]
"""

GIVING_UP_CONFIG = """
backend: "python"
max_batch_size: 1
input [ { name: "STEPS" data_type: TYPE_INT64 dims: [ 1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT64 dims: [ 1 ] } ]
"""


def test_calls_that_a_coroutine_gives_up_are_cancelled(repository: Path, start_server: StartServer) -> None:
    for name in ("held", "other"):
        onnx_models.write_gated(repository, name)
    models.write(repository, "asking", GIVING_UP.replace("HELD", str(HELD)), GIVING_UP_CONFIG)
    server = start_server(repository)
    with Gate(repository, "held") as gate:
        client = client_of(server)
        for _ in range(2):
            answer = client.infer("asking", [tensor("STEPS", np.array([[1]], np.int64))])
            assert answer.as_numpy("OUTPUT0").shape == (1, 1)
        gate.until_reached()
        pending = 'nv_inference_pending_request_count{model="held",version="1"}'
        eventually(lambda: server.metrics()[pending] == 0, "none of them waits any more")


MANY = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            try:
                for _ in range(1000):
                    sender.send(pb_utils.InferenceResponse([]))
            except pb_utils.TritonModelException as error:
                print(error, flush=True)
"""

TAKING_ONE = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.answers = None

    def execute(self, requests):
        if self.answers is None:
            asked = pb_utils.InferenceRequest(
                model_name="many", requested_output_names=["SAID"], inputs=requests[0].inputs()
            )
            self.answers = asked.exec(decoupled=True)
            next(self.answers)
        else:
            errors = [answer.error() for answer in self.answers if answer.has_error()]
            print(len(errors), errors[-1].code(), errors[-1].message(), flush=True)
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""


def test_answers_that_are_never_taken_hold_up_no_others(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "many", MANY, models.COUNTED_CONFIG + "model_transaction_policy { decoupled: true }")
    patience = 'parameters { key: "kushi.call_timeout" value { string_value: "1" } }'
    models.write(repository, "asking", TAKING_ONE, models.COUNTED_CONFIG + patience)
    server = start_server(repository)
    asked = [tensor("WHAT", np.array([b"x"], np.object_))]
    client = client_of(server)
    client.infer("asking", asked)
    server.log.wait_for(re.compile("many_0: .* Nobody waits for it"), 20)
    client.infer("asking", asked)
    text = "model 'asking' has taken none of the answers to this call for 1 s"
    server.log.wait_for(re.compile(f"asking_0: 1 {CANCELLED} {text}"), 20)
