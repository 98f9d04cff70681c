"""Profiles of the AWS tools: ``~/.aws/credentials`` and ``~/.aws/config``, which obstore doesn't read."""

from __future__ import annotations

import configparser
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sparklog.errors import InvalidConfigurationError

__all__ = ["AwsKeys", "AwsProfile", "botocore_provider", "keys_provider", "profile_provider", "read_profile"]

_SECONDS = 60
"""A profile is read anew after so long: other tools renew temporary keys in it."""
_NEEDS_BOTOCORE = ("credential_process", "role_arn", "sso_account_id", "sso_session", "sso_start_url")


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsKeys:
    """Keys by which requests are signed."""

    key: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsProfile:
    """The settings of a profile that count here."""

    name: str
    keys: AwsKeys | None = None
    region: str | None = None
    endpoint_url: str | None = None
    needs_botocore: str | None = None
    """The setting by which its credentials come in a way that only botocore knows."""


def read_profile(environment: Mapping[str, str], name: str | None, *, home: Path) -> AwsProfile:
    """A profile as the files have it; an empty one where the default profile isn't there.

    Args:
        environment: ``AWS_PROFILE``, ``AWS_SHARED_CREDENTIALS_FILE`` and ``AWS_CONFIG_FILE`` count.
        name: goes before ``AWS_PROFILE``.
        home: with the folder ``.aws``.
    Raises:
        InvalidConfigurationError: a profile that was named isn't there, or a file can't be read.
    """
    named = name or environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE")
    profile = named or "default"
    keys_file = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials").expanduser()
    config_file = Path(environment.get("AWS_CONFIG_FILE") or home / ".aws" / "config").expanduser()
    section = profile if profile == "default" else f"profile {profile}"
    credentials, config = _section(keys_file, profile), _section(config_file, section)
    if named and credentials is None and config is None:
        raise InvalidConfigurationError(f"AWS profile {named}: neither in {keys_file} nor in {config_file}")
    settings = {**(config or {}), **(credentials or {})}
    return AwsProfile(
        name=profile,
        keys=_keys(settings),
        region=settings.get("region"),
        endpoint_url=settings.get("endpoint_url"),
        needs_botocore=next((name for name in _NEEDS_BOTOCORE if name in settings), None),
    )


def keys_provider(keys: AwsKeys) -> Callable[[], dict[str, Any]]:
    """A ``credential_provider`` of obstore with keys that don't change."""
    return lambda: _credential(keys, expires_at=None)


def profile_provider(environment: Mapping[str, str], name: str | None, *, home: Path) -> Callable[[], dict[str, Any]]:
    """A ``credential_provider`` of obstore that reads a profile's keys anew each minute."""

    def provide() -> dict[str, Any]:
        keys = read_profile(environment, name, home=home).keys
        if keys is None:
            raise InvalidConfigurationError("the AWS profile has lost its keys")
        return _credential(keys, expires_at=_soon())

    return _refreshed(provide)


def botocore_provider(profile: AwsProfile) -> Callable[[], dict[str, Any]]:
    """A ``credential_provider`` of obstore for what only botocore can do: roles, single sign-on, other programs.

    Raises:
        InvalidConfigurationError: botocore isn't installed.
    """
    try:
        from botocore.session import Session
    except ImportError as error:
        raise InvalidConfigurationError(
            f"AWS profile {profile.name} has {profile.needs_botocore}, which needs botocore: pip install botocore"
        ) from error
    credentials = Session(profile=None if profile.name == "default" else profile.name).get_credentials()
    if credentials is None:
        raise InvalidConfigurationError(f"AWS profile {profile.name}: botocore finds no credentials")

    def provide() -> dict[str, Any]:
        frozen = credentials.get_frozen_credentials()
        keys = AwsKeys(key=frozen.access_key, secret=frozen.secret_key, token=frozen.token)
        return _credential(keys, expires_at=_soon())

    return _refreshed(provide)


def _section(file: Path, name: str) -> Mapping[str, str] | None:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, configparser.Error) as error:  # its message may repeat a line with a secret
        raise InvalidConfigurationError(f"{file} can't be read: {type(error).__name__}") from None
    return parser[name] if parser.has_section(name) else None


def _keys(settings: Mapping[str, str]) -> AwsKeys | None:
    key, secret = settings.get("aws_access_key_id"), settings.get("aws_secret_access_key")
    if not key or not secret:
        return None
    return AwsKeys(key=key, secret=secret, token=settings.get("aws_session_token") or None)


def _credential(keys: AwsKeys, *, expires_at: datetime | None) -> dict[str, Any]:
    return {
        "access_key_id": keys.key,
        "secret_access_key": keys.secret,
        "token": keys.token,
        "expires_at": expires_at,
    }


def _soon() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=_SECONDS)


def _refreshed(provide: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """By default obstore asks again five minutes before the end."""
    provide.refresh_threshold = timedelta(0)  # type: ignore[attr-defined]
    return provide
