"""Tokens on the Bento's own port, where the protocol's routes are relayed, and towards an engine elsewhere, over TLS"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest
from kushi_native import routes

from tests import models
from tests.certificates import Authority
from tests.e2e.bento import Bento, service_of
from tests.gates import HELD, Gate
from tests.raw_http import frame
from tests.serving import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JSON: Final = [("content-type", "application/json")]
ADD: Final = b'{"one": 1, "other": 2}'
CATEGORIES: Final = tuple(dict.fromkeys(category for _, _, category in routes()))
# the Bento's own metrics have that path there
RELAYED: Final = [pytest.param(route, id=" ".join(route[:2])) for route in routes() if route[1].startswith("/v2")]
NAMES: Final = {"model": "add_sub", "version": "1", "region": "r", "repository": "repo"}


def token(category: str) -> tuple[str, str]:
    return f"x-{category}", f"secret-of-{category}"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    models.write_add_sub(path)
    models.write_gated(path)
    return path


@pytest.fixture(scope="module")
def bento(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Bento]:
    folder = service_of(tmp_path_factory.mktemp("restricted"), repository, workers=1)
    rules = "; ".join(f"{name}:x-{name}=secret-of-{name}" for name in CATEGORIES)
    with Bento(folder, KUSHI_HTTP_RESTRICTED_API=rules).until_ready() as bento:
        yield bento


@pytest.mark.parametrize("route", RELAYED)
def test_a_route_takes_its_token_on_the_port_of_the_bento(bento: Bento, route: tuple[str, str, str]) -> None:
    method, path, category = route
    path = path.format_map(NAMES)
    name, value = token(category)
    others = [token(other) for other in CATEGORIES if other != category]
    for headers in ([], others, [(name, "wrong")], [(name, value), ("connection", name)]):
        response = bento.fetch(method, path, headers)
        assert (response.status, response.error) == (
            403,
            f"This API is restricted, expecting header '{name}'",
        ), headers
    assert bento.fetch(method, path, [(name, value)]).status != 403


@pytest.mark.parametrize("path", ["/v2//health/live", "/%762/health/live", "/v2/%68ealth/live", "/v2/x/../health/live"])
def test_another_spelling_is_no_way_around(bento: Bento, path: str) -> None:
    assert bento.fetch("GET", path).status in {403, 404}


def test_the_service_itself_needs_no_token(bento: Bento) -> None:
    assert bento.fetch("POST", "/add", JSON, ADD).json() == 3
    assert bento.is_ready()
    assert b"nv_inference" in bento.fetch("GET", "/metrics").body
    assert not any("secret-of" in word for word in bento.words_of(bento.engine))
    assert "secret-of" not in bento.log.text()


@pytest.mark.clock
def test_a_service_brings_its_token_to_an_engine_elsewhere_and_its_clients_bring_theirs(
    tmp_path: Path, repository: Path
) -> None:
    authority = Authority(tmp_path)
    identity = authority.sign("engine")
    server = Server.start(
        repository,
        "--http-use-ssl",
        f"--http-server-cert={identity.certificate}",
        f"--http-server-key={identity.key}",
        f"--http-restricted-api={','.join(CATEGORIES)}:authorization=Bearer hunter2",
        ready=False,
    )
    try:
        with Bento(
            service_of(tmp_path / "service", tmp_path / "nowhere", workers=1),
            KUSHI_ENGINE_URL=f"https://localhost:{server.http[1]}",
            KUSHI_ENGINE_HEADERS="authorization=Bearer hunter2",
            KUSHI_ENGINE_CA_CERT=str(authority.certificate),
        ).until_ready() as bento:
            assert bento.fetch("POST", "/add", JSON, ADD).json() == 3
            with Gate(repository) as gate, bento.connect() as connection:
                connection.send(frame("POST", "/slow", JSON, b'{"steps": %d}' % HELD))
                gate.until_reached()
                # long enough that the engine is asked meanwhile whether it lives
                time.sleep(2)
                gate.let_through()
                assert connection.receive().status == 200
            assert bento.fetch("GET", "/v2").status == 403
            assert bento.fetch("GET", "/v2", [("authorization", "Bearer hunter2")]).status == 200
            assert "hunter2" not in bento.log.text()
    finally:
        server.stop()
