import subprocess
import sys

import pytest

from runners import __version__, serve
from runners.cli import main
from runners.settings import SETTINGS, ServerSettings


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServerSettings]:
    """What would have been served"""
    seen: list[ServerSettings] = []

    def keep(settings: ServerSettings, started: float) -> int:
        assert started > 0
        seen.append(settings)
        return 7

    monkeypatch.setattr(serve, "serve", keep)
    return seen


def test_flags_become_settings_and_the_exit_code_is_that_of_the_server(served: list[ServerSettings]) -> None:
    assert main(["serve", "--model-repository=a", "--http-port", "9", "--allow-grpc=false"]) == 7
    assert (served[0].repositories, served[0].doors.http.port) == (("a",), 9)


def test_a_model_file_is_served_without_a_flag(served: list[ServerSettings]) -> None:
    main(["serve", "--reuse-http-port", "model.onnx"])
    assert (served[0].repositories, served[0].doors.http.reuse_port) == (("model.onnx",), True)


def test_the_repository_may_come_from_the_environment(
    served: list[ServerSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUSHI_MODEL_REPOSITORY", "r")
    main(["serve"])
    assert served[0].repositories == ("r",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve"], "expected a model repository: --model-repository DIR, or a model file"),
        (["serve", "--htpp-port=1", "m"], "unknown flag --htpp-port, did you mean --http-port?"),
        (
            ["serve", "--host-policy=1", "m"],
            "--host-policy is a flag of tritonserver that this version does not support",
        ),
        (["serve", "--http-port=x", "m"], "--http-port: "),
        (["serve", "-p", "1", "m"], "unknown flag -p, see 'kushi serve --help'"),
        (["serve", "-x"], "unknown flag -x, see 'kushi serve --help'"),
        (["serve", "--allow-http=false", "--allow-grpc=false", "m"], "nothing to serve: HTTP is switched off"),
        (
            ["serve", "--allow-http=false", "--allow-grpc=false", "--allow-metrics=false", "m"],
            "nothing to serve: HTTP is switched off",
        ),
        (["serve", "--http-socket=s", "--local-socket=s", "m"], "--local-socket and --http-socket are both s"),
        (["serve", "--load-model=a", "m"], "Use of '--load-model' requires setting '--model-control-mode=explicit'"),
        (
            ["serve", "--load-model=a", "--load-model=*", "--model-control-mode=explicit", "m"],
            "Wildcard model name '*' must be the ONLY startup model if specified at all.",
        ),
        (["serve", "--http-use-ssl", "m"], "--http-use-ssl needs --http-server-cert, expected a file in PEM form"),
        (["serve", "--backend-config=dali,a=b", "m"], "backend config: backend 'dali' is not supported"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_two(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], served: list[ServerSettings]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    error = capsys.readouterr().err
    assert raised.value.code == 2
    assert error.startswith("kushi serve: error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not served


@pytest.mark.parametrize("door", ["http", "local"])
def test_without_http_a_socket_is_enough(door: str, served: list[ServerSettings]) -> None:
    main(["serve", "--allow-http=false", f"--{door}-socket=kushi.sock", "m"])
    assert getattr(served[0].doors, door).socket == "kushi.sock"


def test_what_is_wrong_is_named_as_it_was_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, served: list[ServerSettings]
) -> None:
    monkeypatch.setenv("KUSHI_ALLOW_HTTP", "off")
    with pytest.raises(SystemExit):
        main(["serve", "--allow-grpc=false", "m"])
    told = "nothing to serve: HTTP is switched off by KUSHI_ALLOW_HTTP=false, gRPC by --allow-grpc=false"
    assert told in capsys.readouterr().err
    assert not served


@pytest.mark.parametrize("arguments", [["-x"], ["--htpp-port=1"], ["sreve"]])
def test_a_wrong_command_is_one_line_as_well(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    error = capsys.readouterr().err
    assert raised.value.code == 2
    assert error.startswith("kushi: error: ")
    assert error.count("\n") == 1


def test_help_names_each_command_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert text.startswith("usage: kushi [-h] [--version] COMMAND ...\n")
    assert [line.split()[0] for line in text.splitlines() if line.startswith("    ")] == [
        "demo",
        "new",
        "init",
        "serve",
        "check",
        "config",
        "versions",
        "export",
        "optimize",
        "inspect",
    ]


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "serve model repositories, or a model file" in capsys.readouterr().out


def test_help_of_serve_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["serve", "--help"])
    assert raised.value.code == 0
    text = capsys.readouterr().out
    assert all(f"--{one.flag} " in text for one in SETTINGS.values())
    assert "A flag of tritonserver whose feature does not exist yet is refused by its name." in " ".join(text.split())


def test_help_and_a_wrong_flag_load_no_native_code_and_no_framework() -> None:
    heavy = "{'google', 'kushi_native', 'numpy', 'onnx', 'pydantic', 'torch'}"
    for arguments in (
        ["--help"],
        ["serve", "--help"],
        ["export", "--help"],
        ["optimize", "--help"],
        ["serve", "--http-port=x", "m"],
    ):
        script = (
            f"import sys\nfrom runners.cli import main\ntry:\n    main({arguments})\nexcept SystemExit:\n    pass\n"
            f"sys.exit(' '.join({heavy} & set(sys.modules)) or 0)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (arguments, done.stderr)


def test_the_module_runs_as_the_command() -> None:
    command = [sys.executable, "-W", "error", "-m", "runners", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"kushi {__version__}"


def test_serving_imports_no_framework() -> None:
    script = (
        "import sys\nimport runners.serve\n"
        "assert not {'grpc', 'numpy', 'onnxruntime', 'bentoml', 'asyncio.base_events_'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
