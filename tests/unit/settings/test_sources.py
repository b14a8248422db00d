from argparse import ArgumentParser

import pytest

from runners.errors import ConfigInvalid, Unsupported
from runners.settings import SETTINGS, ServerSettings, read_settings
from runners.settings.absent import ABSENT
from runners.settings.flags import add_flags, normalize_flags


@pytest.fixture(autouse=True)
def _no_kushi_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in SETTINGS.values():
        monkeypatch.delenv(one.variable, raising=False)


def settings(*arguments: str) -> ServerSettings:
    parser = ArgumentParser(allow_abbrev=False)
    parser.add_argument("model", nargs="*")
    add_flags(parser)
    flags = vars(parser.parse_args(normalize_flags(arguments)))
    flags.pop("model")
    return read_settings(flags)


def test_defaults_are_those_of_tritonserver() -> None:
    given = settings()
    engine, http, metrics = given.engine, given.doors.http, given.doors.metrics
    assert (engine.server_name, http.address, http.port, metrics.port) == ("triton", None, 8000, 8002)
    assert (engine.exit_on_error, engine.strict_readiness, given.exit_timeout_seconds) == (True, True, 30)
    assert (engine.http.max_input_bytes, engine.models.load_threads) == (67108864, 4)
    assert given == ServerSettings()


@pytest.mark.parametrize("word", ["true", "TRUE", "on", "1"])
def test_a_switch_takes_the_words_of_tritonserver_for_yes(word: str) -> None:
    assert settings(f"--reuse-http-port={word}").doors.http.reuse_port
    assert settings("--reuse-http-port", word).doors.http.reuse_port


@pytest.mark.parametrize("word", ["false", "False", "off", "0"])
def test_a_switch_takes_the_words_of_tritonserver_for_no(word: str) -> None:
    assert not settings(f"--exit-on-error={word}").engine.exit_on_error
    assert not settings("--exit-on-error", word).engine.exit_on_error


def test_a_bare_switch_is_true_and_does_not_eat_the_model_behind_it() -> None:
    assert normalize_flags(["--reuse-http-port", "model.onnx"]) == ["--reuse-http-port=true", "model.onnx"]
    assert settings("--disable-auto-complete-config").engine.models.strict_config


def test_a_switch_refuses_another_word() -> None:
    with pytest.raises(ConfigInvalid, match=r"^--exit-on-error: expected true, false, on, off, 1 or 0, got 'yes'$"):
        settings("--exit-on-error=yes")


@pytest.mark.parametrize(("word", "level"), [("True", 1), ("false", 0), ("2", 2)])
def test_a_level_takes_yes_and_no_as_tritonserver_does(word: str, level: int) -> None:
    assert settings(f"--log-verbose={word}").engine.log.verbose == level


def test_a_repository_may_be_given_more_than_once_and_as_model_store() -> None:
    given = settings("--model-repository=a", "--model-store", "b")
    assert given.repositories == ("a", "b")


def test_a_wrong_number_names_the_flag_and_the_value() -> None:
    with pytest.raises(ConfigInvalid, match=r"^--http-port: expected an integer from 0 to 65535, got 'abc'$"):
        settings("--http-port", "abc")
    with pytest.raises(ConfigInvalid, match=r"^--http-port: expected an integer from 0 to 65535, got '65536'$"):
        settings("--http-port=65536")


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--http-max-input-size=0", "--http-max-input-size: expected an integer from 1 to 2147483647, got '0'"),
        ("--http-thread-count=1.5", "--http-thread-count: expected an integer from 1 to 1024, got '1.5'"),
        ("--http-socket=", "--http-socket: expected a non-empty PATH, got ''"),
        ("--http-address=", "--http-address: expected a non-empty ADDRESS, got ''"),
        ("--log-format=json", "--log-format: expected 'default' or 'ISO8601', got 'json'"),
    ],
)
def test_a_wrong_value_is_told_what_was_expected(flag: str, message: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        settings(flag)
    assert str(raised.value) == message


def test_all_wrong_flags_are_named_at_once() -> None:
    with pytest.raises(ConfigInvalid, match=r"--http-port: .*; --metrics-port: "):
        settings("--http-port=x", "--metrics-port=y")


def test_a_flag_without_its_value_is_named() -> None:
    with pytest.raises(ConfigInvalid, match="--http-port: expected a value"):
        settings("--http-port")


def test_behind_two_hyphens_nothing_is_a_flag() -> None:
    assert normalize_flags(["--http-port=1", "--", "--no-flag", "m"]) == ["--http-port=1", "--", "--no-flag", "m"]


def test_the_wrong_one_of_several_values_is_named() -> None:
    with pytest.raises(ConfigInvalid, match=r"^--model-repository: expected a non-empty PATH, got ''$"):
        settings("--model-repository=a", "--model-repository=")


def test_a_restriction_that_is_none_is_not_shown() -> None:
    with pytest.raises(ConfigInvalid, match=r"^--http-restricted-api: expected API,…:HEADER=VALUE, got something el"):
        settings("--http-restricted-api=")


def test_a_typo_gets_the_nearest_flag() -> None:
    with pytest.raises(ConfigInvalid, match="unknown flag --htpp-port, did you mean --http-port"):
        settings("--htpp-port=1")


def test_a_shortened_flag_is_not_guessed() -> None:
    with pytest.raises(ConfigInvalid, match="unknown flag --http-thread"):
        settings("--http-thread=1")


@pytest.mark.parametrize("flag", ABSENT)
def test_a_flag_of_tritonserver_that_is_missing_is_refused_by_its_name(flag: str) -> None:
    with pytest.raises(Unsupported, match=f"--{flag} is a flag of tritonserver that this version does not support yet"):
        settings(f"--{flag}=something")


@pytest.mark.parametrize("flag", [flag for flag, off in ABSENT.items() if off])
def test_a_missing_feature_may_be_switched_off(flag: str) -> None:
    for word in ABSENT[flag]:
        assert settings(f"--{flag}={word}", "--http-port=1").doors.http.port == 1
        assert settings(f"--{flag}", word, "--http-port=1").doors.http.port == 1


def test_a_bare_missing_switch_asks_for_the_feature() -> None:
    with pytest.raises(Unsupported, match=r"--allow-vertex-ai is a flag .*, only --allow-vertex-ai=off is accepted"):
        settings("--allow-vertex-ai")


def test_models_are_loaded_at_the_start_or_on_demand() -> None:
    assert settings("--model-control-mode=none").engine.models.control == "none"
    assert settings("--model-control-mode=explicit").engine.models.control == "explicit"
    polled = settings("--model-control-mode=poll", "--repository-poll-secs=3").engine.models
    assert (polled.control, polled.poll_seconds) == ("poll", 3)
    assert settings("--model-control-mode=poll").engine.models.poll_seconds == 15
    with pytest.raises(ConfigInvalid, match=r": expected 'none', 'poll' or 'explicit', got 'sometimes'$"):
        settings("--model-control-mode=sometimes")


def test_models_to_load_are_repeated_or_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings().engine.models.load == ()
    monkeypatch.setenv("KUSHI_MODEL_CONTROL_MODE", "explicit")
    assert settings("--load-model=a", "--load-model", "b").engine.models.load == ("a", "b")
    monkeypatch.setenv("KUSHI_LOAD_MODEL", "c,d")
    assert settings().engine.models.load == ("c", "d")


def test_no_flag_is_both_here_and_missing() -> None:
    assert not {one.flag for one in SETTINGS.values()} & set(ABSENT)


def test_the_environment_sets_what_no_flag_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSHI_HTTP_PORT", "9000")
    monkeypatch.setenv("KUSHI_METRICS_PORT", "9002")
    monkeypatch.setenv("KUSHI_MODEL_REPOSITORY", "a,b")
    given = settings("--http-port=9100")
    assert (given.doors.http.port, given.doors.metrics.port, given.repositories) == (9100, 9002, ("a", "b"))


def test_an_error_names_the_variable_that_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSHI_HTTP_PORT", "many")
    with pytest.raises(ConfigInvalid, match=r"^KUSHI_HTTP_PORT: .* got 'many'"):
        settings()


def test_an_error_about_a_backend_names_the_variable_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSHI_BACKEND_CONFIG", "onnxruntime")
    with pytest.raises(ConfigInvalid, match=r"^KUSHI_BACKEND_CONFIG: expected BACKEND,KEY=VALUE or KEY=VALUE, got 'on"):
        settings()


def test_an_unknown_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSHI_HTPP_PORT", "9000")
    with pytest.raises(ConfigInvalid, match="KUSHI_HTPP_PORT, did you mean KUSHI_HTTP_PORT"):
        settings()


def test_the_settings_are_frozen() -> None:
    with pytest.raises(AttributeError, match="cannot assign"):
        settings().exit_timeout_seconds = 1  # type: ignore[misc] # the point


def test_a_wrong_switch_in_the_environment_is_told_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSHI_ALLOW_HTTP", "no")
    with pytest.raises(ConfigInvalid, match=r"^KUSHI_ALLOW_HTTP: expected true, false, on, off, 1 or 0, got 'no'$"):
        settings()


def test_help_says_what_a_value_is() -> None:
    parser = ArgumentParser()
    add_flags(parser)
    text = " ".join(parser.format_help().split())
    for shown in (
        "--model-repository PATH",
        "--http-address ADDRESS",
        "--http-socket PATH",
        "--http-port N",
        "--id NAME",
        "--allow-http true|false",
        "the variable takes several, separated by commas",
        "Unix socket that speaks HTTP as well (default: none)",
    ):
        assert shown in text


def test_help_names_every_flag_with_its_variable() -> None:
    parser = ArgumentParser()
    add_flags(parser)
    text = " ".join(parser.format_help().split())
    for one in SETTINGS.values():
        assert f"--{one.flag}" in text
        assert f"[KUSHI_{one.flag.replace('-', '_').upper()}]" in text
