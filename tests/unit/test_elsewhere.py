import pytest

from runners.elsewhere import engine_elsewhere
from runners.errors import ConfigInvalid


def test_an_engine_elsewhere_is_said_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUSHI_ENGINE_URL", raising=False)
    assert engine_elsewhere() is None
    monkeypatch.setenv("KUSHI_ENGINE_HEADERS", "authorization=Bearer a=b; x-key=hunter2")
    monkeypatch.setenv("KUSHI_ENGINE_CA_CERT", "ca.pem")
    headers = {"authorization": "Bearer a=b", "x-key": "hunter2"}
    found = engine_elsewhere("https://h")
    assert found.options == {"headers": headers, "ca_cert": "ca.pem", "client_cert": None, "client_key": None}
    assert engine_elsewhere("http://h").options == {"headers": headers}
    assert engine_elsewhere("unix:///s").options == {}
    assert "hunter2" not in repr(found)


def test_headers_that_cannot_be_read_are_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSHI_ENGINE_HEADERS", "Bearer hunter2")
    with pytest.raises(ConfigInvalid, match=r"^KUSHI_ENGINE_HEADERS: expected NAME=VALUE") as caught:
        engine_elsewhere("http://h")
    assert "hunter2" not in str(caught.value)
