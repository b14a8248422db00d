"""What a configuration may say of `kushi.isolate`"""

import logging

import pytest

from runners.errors import ConfigInvalid, KushiError, Unsupported
from runners.repository.isolation import is_isolated
from runners.repository.messages import ModelConfig
from runners.repository.supported_fields import check_supported_fields
from tests.unit.text import config


def stated(backend: str, **values: str) -> ModelConfig:
    text = "".join(
        f'parameters {{ key: "kushi.{key}" value {{ string_value: "{value}" }} }}' for key, value in values.items()
    )
    return config(f'name: "m" {backend} {text}')


PYTORCH, PYTHON, ONNX = (f'backend: "{name}"' for name in ("pytorch", "python", "onnxruntime"))
ENSEMBLE = 'platform: "ensemble"'
ONLY = "only what Python executes can be isolated"


@pytest.mark.parametrize("backend", [PYTORCH, PYTHON])
def test_it_is_true_where_the_configuration_says_so(backend: str) -> None:
    for values, expected in (({}, False), ({"isolate": "true"}, True), ({"isolate": "false"}, False)):
        check_supported_fields(stated(backend, **values))
        assert is_isolated(stated(backend, **values)) is expected


@pytest.mark.parametrize("value", ["", "1", "True", "yes"])
@pytest.mark.parametrize("backend", [PYTORCH, PYTHON, ONNX, ENSEMBLE])
def test_another_value_is_refused(backend: str, value: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        check_supported_fields(stated(backend, isolate=value))
    assert str(raised.value) == f"parameter 'kushi.isolate' of model 'm' must be 'true' or 'false', got '{value}'"


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (ONNX, f"models of backend 'onnxruntime' are executed by native code of the server, {ONLY}"),
        (ENSEMBLE, "an ensemble executes nothing by itself, isolate the models of its steps"),
    ],
)
def test_what_python_does_not_execute_cannot_be_isolated(backend: str, text: str) -> None:
    check_supported_fields(stated(backend, isolate="false"))
    with pytest.raises(Unsupported) as raised:
        check_supported_fields(stated(backend, isolate="true"))
    error: KushiError = raised.value
    assert str(error) == f"parameter 'kushi.isolate' of model 'm': {text}"


@pytest.mark.parametrize("key", ["execute_timeout", "max_requests"])
def test_limits_of_processes_are_known_where_there_are_processes(caplog: pytest.LogCaptureFixture, key: str) -> None:
    with caplog.at_level(logging.WARNING, "runners"):
        check_supported_fields(stated(PYTORCH, isolate="true", **{key: "5"}))
        check_supported_fields(stated(PYTHON, **{key: "5"}))
        assert not caplog.messages
        check_supported_fields(stated(PYTORCH, **{key: "5"}))
    (message,) = caplog.messages
    assert message == (
        f"model 'm': parameter 'kushi.{key}' has no effect: it is for processes of a model's own, as "
        "'kushi.isolate' has them"
    )
