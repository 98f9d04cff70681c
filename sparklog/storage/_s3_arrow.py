"""Arrow's own S3 file system with the options of an S3 store: for engines that read data files by themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from sparklog.errors import InvalidConfigurationError
from sparklog.storage._client_options import flag_option, without_values
from sparklog.storage._s3_options import PASSED_OVER, is_unsigned

__all__ = ["arrow_s3", "arrow_s3_arguments"]

_NAMES = {"key": "access_key", "secret": "secret_key", "token": "session_token", "anon": "anonymous"}
_OF_REQUESTS = {"disable_bulk_delete", "payload_signing_enabled", "unsigned_payload"}
"""Options that say how requests are sent, and nothing of what they mean."""
_TIMES = {"connect_timeout": "connect_timeout", "read_timeout": "request_timeout"}


def arrow_s3(bucket: str, prefix: str, options: Mapping[str, Any]) -> Any:
    """A ``pyarrow.fs.FileSystem`` of the keys below ``prefix`` (empty, or ending with ``/``).

    Raises:
        InvalidConfigurationError: as :func:`arrow_s3_arguments`, or Arrow refuses the options.
    """
    arguments = arrow_s3_arguments(options, os.environ)
    try:
        if "region" not in arguments and "endpoint_override" not in arguments:
            arguments["region"] = pafs.resolve_s3_region(bucket)
        return pafs.SubTreeFileSystem(f"{bucket}/{prefix}".rstrip("/"), pafs.S3FileSystem(**arguments))
    except (pa.ArrowException, OSError, TypeError, ValueError) as error:
        said = without_values(str(error), options)
        raise InvalidConfigurationError(f"storage_options: Arrow says {said}") from None


def arrow_s3_arguments(options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of ``pyarrow.fs.S3FileSystem`` that mean what ``options`` mean to an S3 store, whatever its client.

    Credentials that aren't given are looked for by Arrow, in the same environment variables and files.

    Raises:
        InvalidConfigurationError: there are options without a counterpart; names them, never their values.
    """
    given = {**options}
    client = {**(given.pop("client_kwargs", None) or {})}
    config = {**(given.pop("config_kwargs", None) or {})}
    given.pop("client", None)
    config |= {name: given.pop(name) for name in _TIMES if name in given}
    arguments = {_NAMES[name]: given.pop(name) for name in list(given) if name in _NAMES}
    arguments |= {_TIMES[name]: config.pop(name) for name in list(config) if name in _TIMES}
    in_environment = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    endpoint = given.pop("endpoint_url", None) or client.pop("endpoint_url", None) or in_environment
    if endpoint:
        scheme, _, host = str(endpoint).rstrip("/").rpartition("://")
        arguments |= {"endpoint_override": host, "scheme": scheme or "https"}
    if not flag_option({"use_ssl": given.pop("use_ssl", None)}, "use_ssl", default=True):
        arguments["scheme"] = "http"
    in_client = client.pop("region_name", None)
    region = (
        given.pop("region", None) or in_client or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    )
    if region:
        arguments["region"] = region
    if is_unsigned(config.pop("signature_version", None)):
        arguments["anonymous"] = True
    addressing = {**(config.pop("s3", None) or {})}
    in_config = addressing.pop("addressing_style", "auto")
    if (given.pop("addressing_style", None) or in_config) == "virtual":
        arguments["force_virtual_addressing"] = True
    unknown = sorted(map(str, {*given, *client, *config, *addressing} - PASSED_OVER - _OF_REQUESTS))
    if unknown:
        raise InvalidConfigurationError(
            f"storage_options {', '.join(unknown)} can't be handed to engines that read S3 by themselves"
        )
    return {name: value for name, value in arguments.items() if value is not None}
