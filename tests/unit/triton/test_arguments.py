import pytest

from runners.errors import ConfigInvalid, Unsupported
from runners.settings import ModelOptions
from runners.settings.definition import settings_in
from runners.triton.arguments import read_arguments


@pytest.mark.parametrize("flag", [one.flag for one in settings_in(ModelOptions)])
def test_every_flag_about_models_is_read(flag: str) -> None:
    texts = (f"--{flag}: expected", f"'--{flag}' is 'not/right', expected", "Use of '--load-model' requires")
    with pytest.raises(ConfigInvalid, match=f"^cli_args: ({'|'.join(texts)})"):
        read_arguments([f"--{flag}=not/right"])


def test_a_load_may_be_given_up_early() -> None:
    assert read_arguments(["--model-load-timeout-secs=3"]).models.load_timeout_seconds == 3


@pytest.mark.parametrize(
    "flag",
    [
        "--allow-client-shm",
        "--exit-timeout-secs=1",
        "--http-max-connections=1",
        "--http-port=1",
        "--http-thread-count=1",
        "--log-file=a",
        "--metrics-interval-ms=500",
        "--model-repository=a",
    ],
)
def test_a_flag_about_a_server_is_refused(flag: str) -> None:
    name = flag.partition("=")[0]
    with pytest.raises(Unsupported, match=f"^cli_args: {name} concerns a server, and a TritonRunner starts none$"):
        read_arguments([flag])


@pytest.mark.parametrize("flag", ["--", "-h", "--help"])
def test_what_is_for_command_lines_alone_is_refused(flag: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"^cli_args: "):
        read_arguments([flag])
