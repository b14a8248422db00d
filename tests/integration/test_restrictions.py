"""Restricted APIs: every route, on every door that speaks HTTP, asks for its token and for no other one"""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
import tritonclient.http as httpclient
from kushi_native import routes
from tritonclient.utils import InferenceServerException

from runners import (
    AccessDenied,
    Client,
    ConfigInvalid,
    Engine,
    EngineOptions,
    HttpOptions,
    LogOptions,
    ModelOptions,
    Restriction,
    ServerTls,
)
from tests.raw_http import Address, Connection, fetch
from tests.serving import ROOT, Server, environment, run_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.certificates import Authority

CATEGORIES: Final = (
    *("health", "metadata", "inference", "shared-memory", "model-config", "model-repository"),
    *("statistics", "trace", "logging"),
)
ROUTES: Final = [pytest.param(route, id=" ".join(route[:2])) for route in routes()]
NAMES: Final = {"model": "add_sub", "version": "1", "region": "r", "repository": "repo"}


def refusal(category: str) -> str:
    return f"This API is restricted, expecting header 'X-{category}'"


def token(category: str) -> tuple[str, str]:
    return f"x-{category}", f"secret of {category}"


@pytest.fixture(scope="module")
def doors(
    standard_repository: Path, tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[Mapping[str, Address]]:
    """Two engines with a token of its own for each category, one of which speaks TLS"""
    identity = authority.sign("server")
    rules = tuple(Restriction((name,), f"X-{name}", f"secret of {name}") for name in CATEGORIES)
    options = EngineOptions(
        http=HttpOptions(restrictions=rules),
        log=LogOptions(info=False),
        client_shared_memory=True,
        models=ModelOptions(control="explicit", load=("*",)),
    )
    secure = replace(
        options, http=HttpOptions(restrictions=rules, tls=ServerTls(str(identity.certificate), str(identity.key)))
    )
    path = tmp_path_factory.mktemp("restricted") / "http"
    with (
        Engine(standard_repository, options=options) as engine,
        Engine(standard_repository, options=secure) as secured,
    ):
        engine.serve_http_unix(path)
        doors = {name: ("127.0.0.1", found.serve_http(port=0)) for name, found in (("tcp", engine), ("tls", secured))}
        yield {**doors, "unix": str(path)}


@pytest.mark.parametrize("door", ["tcp", "tls", "unix"])
@pytest.mark.parametrize("route", ROUTES)
def test_a_route_takes_the_token_of_its_category_and_no_other(
    doors: Mapping[str, Address], authority: Authority, door: str, route: tuple[str, str, str]
) -> None:
    method, path, category = route
    at, path = doors[door], path.format_map(NAMES)
    tls = ssl.create_default_context(cafile=str(authority.certificate)) if door == "tls" else None
    others = [token(name) for name in CATEGORIES if name != category]
    name, value = token(category)
    wrong = [[], others, [(name, value + "x")], [(name, value[:-1])], [(name, "")], [(name, "no"), (name, value)]]
    for headers in wrong:
        response = fetch(at, method, path, headers, tls=tls)
        assert (response.status, response.error) == (403, refusal(category)), headers
        assert response.header("kushi-error") == "access_denied"
    assert fetch(at, method, path, [(name, value)], tls=tls).status != 403
    assert fetch(at, method, path, [*others, (name.upper(), value)], tls=tls).status != 403


def test_every_category_has_a_route() -> None:
    assert {category for _, _, category in routes()} >= set(CATEGORIES)


@pytest.mark.parametrize(
    ("method", "path", "category"),
    [
        ("POST", "/v2/models/add%5Fsub/infer", "inference"),
        ("POST", "/v2/models/%61dd_sub/versions/1/infer", "inference"),
        ("GET", "/v2/models/add_sub/config?x=/v2/health/live", "model-config"),
        ("GET", "http://elsewhere/v2/models/add_sub/stats", "statistics"),
        # the wrong method says no more than the right one
        ("GET", "/v2/models/add_sub/infer", "inference"),
        ("HEAD", "/v2/health/ready", "health"),
    ],
)
def test_another_spelling_of_a_path_is_no_way_around(
    doors: Mapping[str, Address], method: str, path: str, category: str
) -> None:
    with Connection(doors["tcp"]) as connection:
        assert connection.ask(method, path).status == 403
        assert connection.ask(method, path, [token(category)]).status != 403


@pytest.mark.parametrize("path", ["/v2/%6dodels/add_sub", "//v2/health/live", "/V2/health/live", "/v2/health/live/"])
def test_a_path_that_is_no_route_is_not_found_rather_than_let_through(doors: Mapping[str, Address], path: str) -> None:
    assert fetch(doors["tcp"], "GET", path).status == 404


def test_the_token_is_asked_for_before_the_body_is_read(doors: Mapping[str, Address]) -> None:
    with Connection(doors["tcp"]) as connection:
        connection.send(
            b"POST /v2/models/add_sub/infer HTTP/1.1\r\nhost: h\r\n"
            b"expect: 100-continue\r\ncontent-length: 5000000\r\n\r\n"
        )
        assert connection.receive().status == 403


def test_tritonclient_and_client_carry_a_token(doors: Mapping[str, Address]) -> None:
    at = doors["tcp"]
    assert not isinstance(at, str)
    host, port = at
    name, value = token("health")
    with httpclient.InferenceServerClient(f"{host}:{port}") as client:
        assert client.is_server_live(headers={name: value})
        assert not client.is_server_live()
        with pytest.raises(InferenceServerException, match=re.escape(refusal("statistics"))):
            client.get_inference_statistics()
    with Client(f"http://{host}:{port}", headers={name: value}) as ours:
        assert ours.is_server_live()
        assert "secret" not in repr(ours)
        with pytest.raises(AccessDenied, match=re.escape(refusal("metadata"))):
            ours.get_server_metadata()
    with Client(f"http://{host}:{port}") as ours, pytest.raises(AccessDenied, match=re.escape(refusal("health"))):
        ours.is_server_live()


def test_the_local_socket_and_the_process_itself_ask_for_none(standard_repository: Path, tmp_path: Path) -> None:
    rules = (Restriction(CATEGORIES, "k", "v"),)
    with Engine(standard_repository, options=EngineOptions(http=HttpOptions(restrictions=rules))) as engine:
        engine.serve_local(tmp_path / "local")
        assert engine.is_server_live()
        with Client(f"unix://{tmp_path / 'local'}") as client:
            assert client.is_server_live()
            assert client.is_server_ready()


def test_the_port_of_the_metrics_asks_for_none(standard_repository: Path) -> None:
    rules = (Restriction(("statistics",), "k", "v"),)
    with Engine(standard_repository, options=EngineOptions(http=HttpOptions(restrictions=rules))) as engine:
        assert fetch(("127.0.0.1", engine.serve_metrics(port=0)), "GET", "/metrics").status == 200
        assert fetch(("127.0.0.1", engine.serve_http(port=0)), "GET", "/metrics").status == 403


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (
            (Restriction(("all",), "k", "v"),),
            (
                "unknown restricted api 'all', expected one of health, metadata, inference, shared-memory, "
                "model-config, model-repository, statistics, trace, logging"
            ),
        ),
        (
            (Restriction(("health",), "k", "v"), Restriction(("health",), "l", "w")),
            "restricted api 'health' can not be specified in multiple config groups",
        ),
        ((Restriction(("health",), "a b", "v"),), "'a b' is no name of an HTTP header"),
    ],
)
def test_what_cannot_be_a_rule_is_refused_at_the_start(rules: tuple[Restriction, ...], text: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"^{re.escape(text)}$"):
        Engine(options=EngineOptions(http=HttpOptions(restrictions=rules)))


@pytest.mark.parametrize("rule", ["health:k=hunter2,x", "hunter2", "health=hunter2", ":k=hunter2", "all:k=hunter2"])
def test_no_secret_is_shown(rule: str, standard_repository: Path) -> None:
    ended = run_to_end(f"--model-repository={standard_repository}", f"--http-restricted-api={rule}", "--http-port=x")
    assert ended.returncode == 2
    assert "hunter2" not in ended.stdout
    assert "hunter2" not in repr(
        EngineOptions(http=HttpOptions(restrictions=(Restriction(("health",), "k", "hunter2"),)))
    )


def test_no_token_of_a_request_is_in_the_log(standard_repository: Path) -> None:
    rule = "--http-restricted-api=health,metadata,inference,model-repository:x-key=hunter2"
    server = Server.start(standard_repository, rule, "--log-verbose=255", "--http-max-head-size=1024", ready=False)
    try:
        long = "hunter2" + "x" * 2000
        for value, status in (("hunter2", 200), ("hunter22", 403), (long, 431)):
            response = server.get("/v2", [("x-key", value)])
            assert response.status == status
            assert b"hunter2" not in response.body
        with server.connect() as connection:
            connection.send(b"GET /v2 HTTP/1.1\r\nx-key: hunter2\r\nno colon hunter2\r\n\r\n")
            assert connection.receive().status == 400
        assert server.post("/v2/repository/models/hunter/load", b"{", [("x-key", "hunter2")]).status != 403
    finally:
        assert server.stop() == 0
    assert "hunter2" not in server.log.text()


def test_the_variable_takes_several_rules() -> None:
    script = (
        "from runners.settings import read_settings\n"
        "print([(rule.apis, rule.header, rule.value) for rule in read_settings({}).engine.http.restrictions])"
    )
    given = {**environment(), "KUSHI_HTTP_RESTRICTED_API": "health,metadata:k=a=b; statistics:l=c;\n"}
    out = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=given, capture_output=True, text=True, check=True, timeout=60
    )
    assert out.stdout.strip() == str([(("health", "metadata"), "k", "a=b"), (("statistics",), "l", "c")])
