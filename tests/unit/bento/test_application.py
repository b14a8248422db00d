"""What our application takes from BentoML's insides: each test here fails when BentoML has changed them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import bentoml
import pytest
from bentoml.exceptions import InvalidArgument
from bentoml.validators import ContentType
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from runners import Engine
from runners.bento import depends, engine, service
from runners.bento.internals.endpoints import endpoints
from runners.bento.web import openapi
from runners.bento.web.access_log import AccessLog
from runners.bento.web.application import ApplicationFactory
from runners.bento.web.timeout import Timeout
from runners.bento.web.tracing import Tracing
from tests import models
from tests.unit.bento.asgi import Call, ask

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from tests.unit.bento.asgi import Answer


class Checked(BaseModel):
    number: int = Field(ge=0)


class Endpoints:
    """Endpoints of every kind."""

    @bentoml.api
    async def awaited(self, number: int) -> list[int]:
        return [number]

    @bentoml.api(route="/elsewhere")
    async def streamed(self, number: int) -> AsyncIterator[str]:
        yield str(number)

    @bentoml.api
    def in_thread(self, number: int) -> int:
        return number

    @bentoml.api
    def parts(self, number: int) -> Iterator[str]:
        yield str(number)

    @bentoml.api
    async def refused(self) -> int:
        raise InvalidArgument("three, not two")

    @bentoml.api
    async def wrong(self) -> Checked:
        return Checked(number=-1)

    @bentoml.api
    async def body(self, image: Annotated[Path, ContentType("image/*")], /) -> int:
        return image.stat().st_size

    @bentoml.api
    async def upload(self, image: Path, note: str = "") -> list[str]:
        return [image.name, note]

    @bentoml.api
    async def perhaps(self, image: Path | None = None, note: str = "") -> list[str]:
        return [image.name if image else "", note]

    @bentoml.api
    async def gone(self) -> int:
        raise ClientDisconnect

    @bentoml.api
    async def found_wrong(self) -> int:
        raise HTTPException(418, "a teapot", {"x-pot": "tea"})

    @bentoml.api(batchable=True)
    async def batched(self, numbers: list[int]) -> list[int]:
        return numbers


Example: Any = service(name="Example", workers=1)(Endpoints)


@pytest.fixture
def factory() -> ApplicationFactory:
    Example.inject_config()
    made = ApplicationFactory(Example, is_main=True)
    # they can be made once in a process
    made.enable_metrics = False
    return made


def started(factory: ApplicationFactory, *calls: Call) -> list[Answer]:
    async def main() -> list[Answer]:
        application: Starlette = factory()
        async with application.router.lifespan_context(application):
            return [await ask(application, call) for call in calls]

    return asyncio.run(main())


def call(path: str, value: dict[str, Any]) -> Call:
    return Call(path, headers=[(b"content-type", b"application/json")], body=[json.dumps(value).encode()])


def test_our_middleware_takes_the_place_of_bentomls(factory: ApplicationFactory) -> None:
    kinds: list[Any] = [middleware.cls for middleware in factory.middlewares]
    places = [kinds.index(kind) for kind in (Tracing, AccessLog, Timeout)]
    assert places == sorted(places)
    assert not {"OpenTelemetryMiddleware", "AccessLogMiddleware", "TimeoutMiddleware"} & {
        kind.__name__ for kind in kinds
    }


def test_the_endpoints_that_can_be_cancelled_are_watched(factory: ApplicationFactory) -> None:
    (watched,) = [cast("list[str]", made.kwargs["watched"]) for made in factory.middlewares if "watched" in made.kwargs]
    assert sorted(watched) == [
        "/awaited",
        "/body",
        "/elsewhere",
        "/found_wrong",
        "/gone",
        "/perhaps",
        "/refused",
        "/upload",
        "/wrong",
    ]


@pytest.mark.parametrize("prefix", [None, "/v1", "v1/a/"])
def test_the_paths_of_the_endpoints_are_those_of_their_routes(prefix: str | None) -> None:
    made: Any = service(name="Prefixed", workers=1, path_prefix=prefix)(Endpoints)
    made.inject_config()
    routes: list[Any] = ApplicationFactory(made, is_main=True).routes
    paths = {name: endpoint.path for name, endpoint in endpoints(made).items()}
    assert paths.items() <= {route.name: route.path for route in routes}.items()


def test_an_endpoint_is_made_once(factory: ApplicationFactory) -> None:
    async def main() -> None:
        application = factory()
        async with application.router.lifespan_context(application):
            instance: Any = factory._service_instance
            for name in Example.apis:
                assert getattr(instance, name).local is getattr(instance, name).local
            assert await instance.awaited.local(3) == [3]

    asyncio.run(main())


def test_every_kind_of_endpoint_answers(factory: ApplicationFactory) -> None:
    paths = ("/awaited", "/elsewhere", "/in_thread", "/parts")
    answers = started(factory, *(call(path, {"number": 7}) for path in paths), call("/batched", {"numbers": [1, 2]}))
    assert [answer.body for answer in answers] == [b"[7]", b"7", b"7", b"7", b"[1, 2]"]


def test_an_answer_has_what_bentoml_puts_into_its_head(factory: ApplicationFactory) -> None:
    asked = call("/awaited", {"number": 7})
    heads: list[list[tuple[bytes, bytes]]] = []
    send = asked.send

    async def sent(message: Any) -> None:  # noqa: ANN401 - passed on
        heads.append(list(message.get("headers", ())))
        await send(message)

    asked.send = sent  # type: ignore[method-assign]
    started(factory, asked)
    names = sorted(name for name, _ in heads[0])
    assert names == [b"content-length", b"content-type", b"server", b"x-bentoml-request-id"]
    found = dict(heads[0])
    assert found[b"content-length"] == b"3"
    assert found[b"server"] == b"BentoML Service/Example"
    assert re.fullmatch(rb"[0-9a-f]{16}", found[b"x-bentoml-request-id"])


FORM = b"application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (call("/awaited", {}), "the input is not as declared: 'number': Field required"),
        (call("/awaited", {"number": "x"}), "the input is not as declared: 'number': Input should be a valid integer"),
        (Call("/awaited", body=[b'{"number"']), "the input is not as declared: Invalid JSON"),
        (
            Call("/awaited", headers=[(b"content-type", FORM)], body=[b'{"number": 3}']),
            "the input is not as declared: 'number': Field required; the body was read as application/x-www-form-url",
        ),
        (call("/refused", {}), "three, not two"),
    ],
)
def test_what_a_client_got_wrong_is_told_and_not_logged(
    factory: ApplicationFactory, caplog: pytest.LogCaptureFixture, asked: Call, said: str
) -> None:
    (answer,) = started(factory, asked)
    assert answer.status == 400
    assert answer.json()["error"].startswith(said)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_the_page_is_about_the_service_and_tells_nobody_who_looks_at_it(factory: ApplicationFactory, path: str) -> None:
    (answer,) = started(factory, Call(path, method="GET"))
    html = answer.body.decode()
    assert "<title>Example</title>" in html
    assert "swagger-ui-bundle.js" in html
    assert re.findall(r"https?://[^/\"' ]+", html.replace("https://github.com/bentoml/BentoML", "")) == []


def test_the_document_is_about_the_service(factory: ApplicationFactory) -> None:
    (answer,) = started(factory, Call("/docs.json", method="GET"))
    about = answer.json()["info"]
    assert about == {"title": "Example", "version": "dev", "description": "# Example\n\nEndpoints of every kind."}


@pytest.mark.parametrize("path", ["/", "/docs.json", "/schema.json"])
def test_what_is_the_same_for_all_is_worked_out_once(
    factory: ApplicationFactory, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    made = []

    def counted(call: Any) -> Any:  # noqa: ANN401 - any function
        def counting(*arguments: Any) -> Any:  # noqa: ANN401 - of any kind
            made.append(path)
            return call(*arguments)

        return counting

    monkeypatch.setattr("runners.bento.web.application.page", counted(openapi.page))
    monkeypatch.setattr("runners.bento.web.application.document", counted(openapi.document))
    monkeypatch.setattr(type(Example), "schema", counted(type(Example).schema))
    answers = started(factory, *(Call(path, method="GET") for _ in range(3)))
    assert len({answer.body for answer in answers}) == 1
    assert answers[0].status == 200
    assert len(made) == 1


def test_what_an_endpoint_got_wrong_is_logged(factory: ApplicationFactory, caplog: pytest.LogCaptureFixture) -> None:
    started(factory, call("/wrong", {}))
    assert "Traceback" in caplog.text
    assert "greater than or equal to 0" in caplog.text


@pytest.mark.parametrize("before", [b"", b' "', b"\xff\xfe", b"\t", b"\0\x01", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("link", [b"http://198.51.100.1/", b"HTTPS:x", b"h\xfft\nt\tp\xff://198.51.100.1/"])
def test_a_link_in_the_place_of_a_body_is_refused(factory: ApplicationFactory, before: bytes, link: bytes) -> None:
    (answer,) = started(factory, Call("/body", headers=[(b"content-type", b"image/png")], body=[before + link]))
    assert answer.status == 400
    assert answer.json()["error"].startswith("the body is a link")


def test_a_body_that_only_has_a_link_is_a_file(factory: ApplicationFactory) -> None:
    body = b"\x89PNG\r\n http://198.51.100.1/"
    (answer,) = started(factory, Call("/body", headers=[(b"content-type", b"image/png")], body=[body]))
    assert (answer.status, answer.body) == (200, b"%d" % len(body))


def form(*parts: tuple[str, str, bytes], charset: str = "") -> Call:
    """Of names, what is said of them beside that, and contents"""
    pieces = [
        b'--edge\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % (name.encode(), more.encode(), content)
        for name, more, content in parts
    ]
    kind = f"multipart/form-data; boundary=edge{charset}"
    return Call("/upload", headers=[(b"content-type", kind.encode())], body=[b"".join([*pieces, b"--edge--\r\n"])])


@pytest.mark.parametrize("kind", [b"application/json", b"text/plain", b"application/octet-stream"])
def test_json_may_come_by_another_name_where_no_file_has_to(factory: ApplicationFactory, kind: bytes) -> None:
    asked = Call("/perhaps", headers=[(b"content-type", kind)], body=[b'{"note":"seen"}'])
    (answer,) = started(factory, asked)
    assert (answer.status, answer.json()) == (200, ["", "seen"])


FILE = ("image", '; filename="a.png"', b"pixels")


def test_a_file_of_a_form_arrives_whatever_its_name(factory: ApplicationFactory) -> None:
    (answer,) = started(factory, form(("image", f'; filename="{"a" * 500}.png"', b"pixels"), ("note", "", b"seen")))
    name, note = answer.json()
    assert name.endswith(".png")
    assert len(name) < 255
    assert note == "seen"


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            form(("image", "", b"http://198.51.100.1/")),
            "'image' is text, expected a file: upload the file itself, links are not followed",
        ),
        (form(FILE, charset="; charset=utf-7"), "a form in the charset 'utf-7' is not read: send it in utf-8"),
        (form(FILE, ("note", '; filename="b"', b"\xff")), "a field of the form holds bytes that are no text, and the"),
        (form(FILE, ("note", "", b"[" * 100_000)), "a field of the form is JSON that is nested too deeply, or has too"),
        (
            form(("picture", *FILE[1:]), ("note", "", b"seen"), *((f"{number}" * 40, "", b"") for number in range(9))),
            f"the form has no file 'image', it has 'picture', {', '.join(repr(f'{n}' * 32) for n in range(7))}, …",
        ),
        (
            Call("/upload", headers=[(b"content-type", b"application/x-www-form-urlencoded")], body=[b"\x89PNG\r\n"]),
            "the form has no file 'image', and application/x-www-form-urlencoded has no files: send multipart/",
        ),
        (
            Call("/upload", headers=[(b"content-type", b"image/png")], body=[b"\x89PNG\r\n"]),
            "the body is image/png, expected multipart/form-data with the file 'image'",
        ),
        (form(("note", "", b"seen")), "the input is not as declared: 'image': Field required"),
    ],
    ids=["link", "charset", "bytes", "depth", "name", "urlencoded", "body", "missing"],
)
def test_a_form_that_cannot_be_read_is_refused(factory: ApplicationFactory, asked: Call, said: str) -> None:
    (answer,) = started(factory, asked)
    assert answer.status == 400
    assert answer.json()["error"].startswith(said)


@pytest.mark.parametrize(
    ("asked", "status", "said", "allow"),
    [
        (Call("/no", method="GET"), 404, "there is no '/no' here, /docs.json lists what there is", None),
        (
            Call("/no", method="GET", headers=[(b"host", b"[")]),
            404,
            "there is no '/no' here, /docs.json lists what there is",
            None,
        ),
        (Call(f"/{'a' * 999}"), 404, f"there is no '/{'a' * 199}' here, /docs.json lists what there is", None),
        (Call("/awaited", method="GET"), 405, "'/awaited' does not take GET, but POST", "POST"),
    ],
)
def test_what_nothing_answers_is_told_as_all_errors_are(
    factory: ApplicationFactory, asked: Call, status: int, said: str, allow: str | None
) -> None:
    (answer,) = started(factory, asked)
    assert (answer.status, answer.json(), answer.headers.get("allow")) == (status, {"error": said}, allow)


def test_an_endpoint_may_answer_with_an_exception_of_starlette(factory: ApplicationFactory) -> None:
    (answer,) = started(factory, call("/found_wrong", {}))
    assert (answer.status, answer.headers["x-pot"], answer.json()) == (418, "tea", {"error": "a teapot"})


def test_a_client_that_has_gone_is_not_in_the_log(
    factory: ApplicationFactory, caplog: pytest.LogCaptureFixture
) -> None:
    (answer,) = started(factory, call("/gone", {}))
    assert answer.status == 499
    assert "Traceback" not in caplog.text


def test_a_worker_is_ready_when_its_engine_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Asking:
        models = depends(engine("models"))

    models.write_add_sub(tmp_path)
    live = Engine(tmp_path)
    port = live.serve_http("127.0.0.1", 0)
    monkeypatch.setenv("KUSHI_ENGINE_URL", f"http://127.0.0.1:{port}")
    made: Any = service(name="Asking", workers=1)(Asking)
    made.inject_config()
    factory = ApplicationFactory(made, is_main=True)
    factory.enable_metrics = False

    async def main() -> list[Answer]:
        application: Starlette = factory()
        async with application.router.lifespan_context(application):
            before = await ask(application, Call("/readyz", method="GET"))
            live.close()
            return [before, await ask(application, Call("/readyz", method="GET"))]

    before, after = asyncio.run(main())
    assert (before.status, after.status) == (200, 503)
    assert b"the engine is not there, or a model of it does not serve" in after.body
