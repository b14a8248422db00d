from functools import partial
from pathlib import Path

import pytest

from runners.errors import ConfigInvalid, KushiError, Unsupported
from runners.repository.backend_config import check_backend_config, parse_backend_config, settings_of

parsed = partial(parse_backend_config, source="--backend-config")


def test_a_setting_is_of_one_backend_or_of_all() -> None:
    config = parsed(
        ["default-max-batch-size=8", "onnxruntime,enable-global-threadpool=1", "onnxruntime,intra_op_thread_count=2"]
    )
    check_backend_config(config)
    expected = {"default-max-batch-size": "8", "enable-global-threadpool": "1", "intra_op_thread_count": "2"}
    assert settings_of(config, "onnxruntime") == expected
    assert settings_of(config, "pytorch") == {"default-max-batch-size": "8"}


def test_what_is_said_of_one_backend_wins_and_so_does_the_last_word() -> None:
    config = parsed(
        ["onnxruntime,default-max-batch-size=2", "default-max-batch-size=8", "onnxruntime,default-max-batch-size=3"]
    )
    assert settings_of(config, "onnxruntime") == {"default-max-batch-size": "3"}


@pytest.mark.parametrize("text", ["", "onnxruntime", "onnxruntime,key", "=1", ",key=1", "onnxruntime,=1"])
def test_a_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        parsed([text])
    assert str(raised.value) == f"--backend-config: expected BACKEND,KEY=VALUE or KEY=VALUE, got '{text}'"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "onnxruntim,default-max-batch-size=1",
            Unsupported,
            "backend 'onnxruntim' is not supported by this version, did you mean 'onnxruntime'?",
        ),
        (
            "dali,x=1",
            Unsupported,
            (
                "backend config: backend 'dali' is not supported by this version, expected one of tensorflow, "
                "tensorrt, onnxruntime, openvino, pytorch, python"
            ),
        ),
        (
            "onnxruntime,enable-global-threadpol=1",
            Unsupported,
            (
                "backend config 'onnxruntime,enable-global-threadpol' is not supported by this version, did you mean "
                "'enable-global-threadpool'?"
            ),
        ),
        (
            "shm=1",
            Unsupported,
            "backend config 'shm' is not supported by this version, expected one of default-max",
        ),
        (
            "default-max-batch-size=-1",
            ConfigInvalid,
            "backend config 'default-max-batch-size': expected an integer from 0 to 2147483647, got '-1'",
        ),
        (
            "onnxruntime,enable-global-threadpool=yes",
            ConfigInvalid,
            "backend config 'onnxruntime,enable-global-threadpool': expected true, false, on, off, 1 or 0, got 'yes'",
        ),
        (
            "onnxruntime,profile-directory=/missing",
            ConfigInvalid,
            "'onnxruntime,profile-directory': expected a directory that can be written to, got '/missing'",
        ),
        (
            "onnxruntime,intra_op_thread_count=2",
            ConfigInvalid,
            (
                "backend config 'onnxruntime,intra_op_thread_count' is about the global thread pool: expected "
                "'onnxruntime,enable-global-threadpool=1' with it"
            ),
        ),
    ],
)
def test_what_no_backend_knows_is_refused_by_name(text: str, kind: type[KushiError], message: str) -> None:
    with pytest.raises(kind) as raised:
        check_backend_config(parsed([text]))
    assert message in str(raised.value)


def test_a_directory_of_the_operators_may_be_any_that_is_there(tmp_path: Path) -> None:
    check_backend_config({"onnxruntime": {"profile-directory": str(tmp_path), "engine-cache-directory": str(tmp_path)}})
