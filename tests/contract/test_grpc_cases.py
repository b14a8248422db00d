"""The table of the protocol, run over gRPC: the same rows, with gRPC's own codes"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.contract import grpc_transports as transports
from tests.contract.cases import CASES, EXPLICIT_CASES, Case
from tests.contract.cases.grpc import GRPC_CASES, GRPC_EXPLICIT_CASES, GrpcCase
from tests.contract.requests import ADD_SUB_INPUTS, Infer
from tests.integration.grpc_doors import channel, port_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc

    from tests.serving import Server

OTHERWISE: Final = {
    "a load parameter that is no string",
    "an unknown load parameter",
    "dependents that are no boolean",
    "a trace level that is no list",
    "settings that are nothing: trace/setting",
    "settings that are nothing: models/add_sub/trace/setting",
}
"""What gRPC has other words for, which are rows of its own, or what is nothing wrong there"""


def of_grpc(table: list[Case]) -> list[tuple[Case, transports.Asked]]:
    """The rows that mean the same over gRPC"""
    rows = [case for case in table if "JSON" not in case.name and case.name not in OTHERWISE]
    return [(case, asked) for case in rows if (asked := transports.asked(case.request)) is not None]


ROWS: Final = of_grpc(CASES)
EXPLICIT_ROWS: Final = of_grpc(EXPLICIT_CASES)


@pytest.fixture(scope="module")
def through(standard_server: Server) -> Iterator[grpc.Channel]:
    with channel(port_of(standard_server)) as opened:
        yield opened


@pytest.fixture(scope="module")
def through_explicit(explicit_server: Server) -> Iterator[grpc.Channel]:
    with channel(port_of(explicit_server)) as opened:
        yield opened


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].name)
def test_answers_with_the_code_and_the_text(
    server: Server, through: grpc.Channel, row: tuple[Case, transports.Asked]
) -> None:
    case, asked = row
    assert transports.call(through, asked) == (case.code.grpc, case.text)
    assert server.process.poll() is None


@pytest.mark.parametrize("row", EXPLICIT_ROWS, ids=lambda row: row[0].name)
def test_answers_the_same_where_models_are_loaded_on_demand(
    through_explicit: grpc.Channel, row: tuple[Case, transports.Asked]
) -> None:
    case, asked = row
    assert transports.call(through_explicit, asked) == (case.code.grpc, case.text)


@pytest.mark.parametrize("case", GRPC_CASES, ids=lambda case: case.name)
def test_what_grpc_alone_can_bring_about_has_tritons_words(through: grpc.Channel, case: GrpcCase) -> None:
    assert transports.call(through, (case.method, case.message)) == (case.code.grpc, case.text)


@pytest.mark.parametrize("case", GRPC_EXPLICIT_CASES, ids=lambda case: case.name)
def test_it_has_them_where_models_are_loaded_on_demand(through_explicit: grpc.Channel, case: GrpcCase) -> None:
    assert transports.call(through_explicit, (case.method, case.message)) == (case.code.grpc, case.text)


CLIENT_ROWS: Final = [
    case for case, _ in ROWS if isinstance(case.request, Infer) and transports.tensors(case.request.inputs)
]


@pytest.mark.parametrize("way", transports.CLIENTS)
@pytest.mark.parametrize("case", CLIENT_ROWS, ids=lambda case: case.name)
def test_tritonclient_raises_the_code_and_the_text(server: Server, way: str, case: Case) -> None:
    assert isinstance(case.request, Infer)
    assert transports.refusal(port_of(server), way, case.request) == (case.code.grpc, case.text)


def test_the_rows_about_tensors_go_over_grpc_and_through_its_clients() -> None:
    names = {case.name for case, _ in ROWS}
    assert {"unknown model", "one input missing", "too few bytes", "too few strings", "output twice"} <= names
    assert {"a load where models are not controlled", "trace_rate that is no number"} <= names
    clients = {case.name for case in CLIENT_ROWS}
    assert {"unknown model", "one input missing", "wrong datatype", "wrong rank", "classes of BOOL"} <= clients


def test_a_refused_call_leaves_the_connection_usable(server: Server, through: grpc.Channel) -> None:
    valid = transports.asked(Infer("add_sub", ADD_SUB_INPUTS))
    assert valid is not None
    for _, asked in ROWS:
        transports.call(through, asked)
        assert transports.call(through, valid) == ("OK", "")
    assert server.is_ready()
