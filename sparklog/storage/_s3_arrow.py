"""Arrow's own S3 file system with the options that s3fs takes: for engines that read data files by themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from sparklog.errors import InvalidConfigurationError

__all__ = ["arrow_s3", "arrow_s3_arguments"]

_NAMES = {"key": "access_key", "secret": "secret_key", "token": "session_token", "anon": "anonymous"}
_TIMES = {"connect_timeout": "connect_timeout", "read_timeout": "request_timeout"}
# They make s3fs faster, or count its retries: of no concern to Arrow.
_PASSED_OVER = {
    "cache_regions",
    "default_block_size",
    "default_cache_type",
    "default_fill_cache",
    "max_concurrency",
    "max_pool_connections",
    "retries",
    "signature_version",
    "tcp_keepalive",
    "user_agent_extra",
}


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
        raise InvalidConfigurationError(f"storage_options: Arrow says {error}") from error


def arrow_s3_arguments(options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of ``pyarrow.fs.S3FileSystem`` that mean what ``options`` mean to s3fs.

    Credentials that aren't given are looked for by Arrow, in the same environment variables and files.

    Raises:
        InvalidConfigurationError: there are options without a counterpart; names them, never their values.
    """
    given = {**options}
    client = {**(given.pop("client_kwargs", None) or {})}
    config = {**(given.pop("config_kwargs", None) or {})}
    arguments = {_NAMES[name]: given.pop(name) for name in list(given) if name in _NAMES}
    arguments |= {_TIMES[name]: config.pop(name) for name in list(config) if name in _TIMES}
    in_environment = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    endpoint = given.pop("endpoint_url", None) or client.pop("endpoint_url", None) or in_environment
    if endpoint:
        scheme, _, host = str(endpoint).rstrip("/").rpartition("://")
        arguments |= {"endpoint_override": host, "scheme": scheme or "https"}
    if given.pop("use_ssl", True) is False:
        arguments["scheme"] = "http"
    region = client.pop("region_name", None) or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if region:
        arguments["region"] = region
    addressing = {**(config.pop("s3", None) or {})}
    if addressing.pop("addressing_style", "auto") == "virtual":
        arguments["force_virtual_addressing"] = True
    unknown = sorted({*given, *client, *config, *addressing} - _PASSED_OVER)
    if unknown:
        raise InvalidConfigurationError(
            f"storage_options {', '.join(unknown)} can't be handed to engines that read S3 by themselves"
        )
    return {name: value for name, value in arguments.items() if value is not None}
