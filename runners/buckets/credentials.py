"""
What a bucket is opened with: what Triton reads, in the names of obstore, which reads the variables of each store
itself.

Triton's file of credentials comes first, then variables, then the profile of AWS that is in effect.
"""

from __future__ import annotations

import json
from configparser import ConfigParser, Error
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..environment import home, variable
from ..errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .url import BucketUrl

__all__ = ["config_of", "place_of", "provider_of"]

_FILE: Final = "TRITON_CLOUD_CREDENTIAL_PATH"
_AZURE_FIELDS: Final = {"account_str": "account_name", "account_key": "account_key", "client_id": "client_id"}
"""Of Triton's file, and of obstore"""
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_BY_BOTO3: Final = ("role_arn", "sso_session", "sso_start_url", "credential_process", "web_identity_token_file")


def config_of(url: BucketUrl) -> dict[str, Any]:
    """The settings of the store that nobody else reads"""
    stated = _of_file(url)
    match url.kind:
        case "s3":
            return _s3(url, stated)
        case "gs":
            return _gs(stated)
        case "as":
            return _azure(url, stated)


def provider_of(url: BucketUrl) -> Callable[[], Any] | None:
    """What gives the keys of S3 that Triton's file or a profile states, all together; None where there are none"""
    if url.kind != "s3":
        return None
    stated = _of_file(url)
    if stated.get("key_id"):
        return _keys(stated["key_id"], stated.get("secret_key", ""), stated.get("session_token", ""))
    name = _profile_name(stated)
    profile = _profile(name) if name is not None else {}
    if profile.get("aws_access_key_id"):
        secret, token = profile.get("aws_secret_access_key", ""), profile.get("aws_session_token", "")
        return _keys(profile["aws_access_key_id"], secret, token)
    return _by_boto3(name) if name is not None and any(field in profile for field in _BY_BOTO3) else None


def place_of(url: BucketUrl) -> tuple[str, ...]:
    """Another one stands for another repository, however its URL is written"""
    config = config_of(url)
    endpoint = config.get("endpoint", "")
    if url.kind == "s3" and not endpoint:
        endpoint = next(filter(None, map(variable, _ENDPOINTS)), "")
    if url.kind == "as":
        endpoint = variable("AZURE_STORAGE_ENDPOINT")
    account = config.get("account_name") or (variable("AZURE_STORAGE_ACCOUNT_NAME") if url.kind == "as" else "")
    return url.kind, endpoint, account, url.bucket, url.prefix


def _keys(key: str, secret: str, token: str) -> Callable[[], Any]:
    stated = {"access_key_id": key, "secret_access_key": secret, "token": token or None, "expires_at": None}
    return lambda: stated


def _s3(url: BucketUrl, stated: Mapping[str, str]) -> dict[str, Any]:
    name = _profile_name(stated)
    profile = _profile(name) if name is not None else {}
    config: dict[str, Any] = {}
    endpoint = url.endpoint
    if not endpoint and not any(map(variable, _ENDPOINTS)):
        endpoint = profile.get("endpoint_url", "")
    if endpoint:
        # the second would otherwise come from the variable, and win
        config |= {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}
    region = stated.get("region")
    if not region and not (variable("AWS_REGION") or variable("AWS_DEFAULT_REGION")):
        region = profile.get("region")
    return config | ({"region": region} if region else {})


def _gs(stated: Mapping[str, str]) -> dict[str, Any]:
    path = stated.get("")
    return {"application_credentials": path} if path else {}


def _azure(url: BucketUrl, stated: Mapping[str, str]) -> dict[str, Any]:
    config: dict[str, Any] = {own: stated[name] for name, own in _AZURE_FIELDS.items() if stated.get(name)}
    for variable_name, own in (
        ("AZURE_STORAGE_ACCOUNT", "account_name"),
        ("AZURE_STORAGE_KEY", "account_key"),
        ("AZURE_STORAGE_CLIENT_ID", "client_id"),
        ("AZURE_AUTHORITY_HOST", "authority_host"),
    ):
        if (value := variable(variable_name)) and own not in config:
            config[own] = value
    if url.account:
        config["account_name"] = url.account
    how = stated.get("auth_type") or variable("AZURE_STORAGE_AUTH_TYPE")
    if how and how not in {"managed_identity", "default"}:
        raise ConfigInvalid(f"AZURE_STORAGE_AUTH_TYPE is '{how}', expected managed_identity or default")
    if how:
        # the identity of the machine, for which no key is taken
        config.pop("account_key", None)
    return config


def _of_file(url: BucketUrl) -> Mapping[str, str]:
    """What Triton's file says of the longest beginning of the URL; the path of a file under "" for Google"""
    place = variable(_FILE)
    if not place:
        return {}
    try:
        document = json.loads(Path(place).read_text(encoding="utf-8"))
        of_kind = document.get(url.kind, {})
        begins = [begin for begin in of_kind if url.text.startswith(begin)]
        stated = of_kind[max(begins, key=len)] if begins else {}
        return {"": stated} if isinstance(stated, str) else {name: str(value) for name, value in stated.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigInvalid(
            f"{_FILE}: '{place}' cannot be read as credentials, expected an object as "
            f'{{"s3": {{"": {{"key_id": "…", "secret_key": "…"}}}}}}: {error}'
        ) from None


def _profile_name(stated: Mapping[str, str]) -> str | None:
    """The profile of AWS in effect: none where keys are stated"""
    if stated.get("key_id") or (variable("AWS_ACCESS_KEY_ID") and not stated.get("profile")):
        return None
    return stated.get("profile") or variable("AWS_PROFILE") or "default"


def _profile(name: str) -> Mapping[str, str]:
    """What both files of AWS say of a profile"""
    found: dict[str, str] = {}
    for place, section in (
        (
            variable("AWS_CONFIG_FILE") or str(home() / ".aws/config"),
            "default" if name == "default" else f"profile {name}",
        ),
        (variable("AWS_SHARED_CREDENTIALS_FILE") or str(home() / ".aws/credentials"), name),
    ):
        # its % are no references
        parser = ConfigParser(interpolation=None)
        try:
            parser.read(Path(place).expanduser(), encoding="utf-8")
        except (OSError, Error, UnicodeDecodeError) as error:
            raise ConfigInvalid(f"'{place}' cannot be read as a file of AWS profiles: {error}") from None
        if parser.has_section(section):
            found |= parser[section]
    if not found and name != "default":
        raise ConfigInvalid(f"the profile '{name}' of AWS is in none of its files (~/.aws/config, ~/.aws/credentials)")
    return found


def _by_boto3(name: str) -> Callable[[], Any]:
    try:
        import boto3  # noqa: PLC0415 - needed by such profiles alone
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 - as above
    except ImportError:
        raise ConfigInvalid(
            f"the profile '{name}' of AWS states a role, a login or a command, which boto3 finds credentials by: "
            "pip install boto3"
        ) from None
    provider: Callable[[], Any] = Boto3CredentialProvider(boto3.session.Session(profile_name=name))
    return provider
