"""Which urls a client takes, and what it says about the others."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from runners import Client, InvalidInput, Model

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED = "expected unix://PATH, http://HOST:PORT, https://HOST:PORT, grpc://HOST:PORT or grpcs://HOST:PORT"


@pytest.mark.parametrize(
    "url",
    [
        "unix:///run/kushi.sock",
        "unix://relative.sock",
        "UNIX:///run/kushi.sock",
        "http://localhost:8000",
        "http://localhost",
        "http://127.0.0.1:8000/",
        "http://[::1]:8000",
        "HTTP://localhost:8000",
        "http://gateway/models/of/a/team",
        "https://localhost:8443",
        "https://gateway",
        "grpc://localhost:8001",
        "grpcs://[::1]:8001/",
        "GRPC://gateway",
    ],
)
def test_a_client_connects_to_nothing_before_it_is_asked(url: str) -> None:
    with Client(url) as client:
        assert client.url == url
        assert repr(client) == f"Client({url!r})"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", f"{EXPECTED}, got ''"),
        ("localhost:8000", f"{EXPECTED}, got 'localhost:8000', did you mean http://localhost:8000?"),
        ("/run/kushi.sock", f"{EXPECTED}, got '/run/kushi.sock', did you mean unix:///run/kushi.sock?"),
        ("unix:run/kushi.sock", f"{EXPECTED}, got 'unix:run/kushi.sock', did you mean unix://run/kushi.sock?"),
        ("http:/localhost:8000", f"{EXPECTED}, got 'http:/localhost:8000', did you mean http://localhost:8000?"),
        ("ftp://localhost", f"unknown scheme 'ftp', {EXPECTED}, got 'ftp://localhost'"),
        ("unix://", "expected the path of a socket after unix://, got 'unix://'"),
        ("unix:///a\0b", r"expected a path without null characters after unix://, got 'unix:///a\x00b'"),
    ],
)
def test_a_url_that_means_nothing_is_refused_with_what_is_expected(url: str, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Client(url)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://:8000",
        "http://localhost:http",
        "http://localhost:70000",
        "http://me:secret@localhost",
        "http://a b",
        "grpc://",
        "grpc://localhost:8001/models",
    ],
)
def test_a_url_without_a_host_and_a_port_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="expected http://HOST:PORT"):
        Client(url)


def test_a_path_is_no_url(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^expected a url as text, unix://PATH"):
        Client(tmp_path)  # type: ignore[arg-type]  # what is tested


def test_every_name_may_be_a_model_of_a_client() -> None:
    with Client("http://localhost:8000") as client:
        assert isinstance(client.anything, Model)
        assert repr(client.model("a-b", 3)) == "<Model 'a-b' version 3 of Client('http://localhost:8000')>"
        with pytest.raises(AttributeError, match=r"^'Client' object has no attribute '_anything'$"):
            _ = client._anything


def test_a_client_stays_in_its_process() -> None:
    with Client("http://localhost:8000") as client, pytest.raises(TypeError, match="cannot pickle 'Client' object"):
        pickle.dumps(client)


@pytest.mark.parametrize("url", ["unix:///nowhere/kushi.sock", "http://localhost:8000"])
def test_an_empty_array_can_be_had_from_every_client(url: str) -> None:
    with Client(url) as client:
        array = client.empty((2, 3), np.float16)
        assert array.shape == (2, 3)
        assert array.dtype == np.float16
        array[:] = 1
        assert array.sum() == 6
        assert client.empty(4).dtype == np.float32


@pytest.mark.parametrize("url", ["unix:///nowhere/kushi.sock", "http://localhost:8000"])
def test_closing_twice_is_allowed(url: str) -> None:
    client = Client(url)
    client.close()
    client.close()
