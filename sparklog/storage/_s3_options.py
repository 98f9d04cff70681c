"""Options of an S3 store as obstore takes them. Names are s3fs's where s3fs has the option, else object_store's."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sparklog.errors import InvalidConfigurationError
from sparklog.storage._aws_profile import (
    AwsKeys,
    AwsProfile,
    botocore_provider,
    keys_provider,
    profile_provider,
    read_profile,
)
from sparklog.storage._client_options import (
    CLIENT_OPTIONS,
    check_endpoint,
    check_printable,
    client_options,
    flag_option,
    make,
    refuse_unknown,
    take_options,
    text_option,
)

__all__ = ["PASSED_OVER", "S3Options", "connect_s3", "is_unsigned", "s3_options"]

PASSED_OVER = frozenset(
    {
        "cache_regions",
        "default_block_size",
        "default_cache_type",
        "default_fill_cache",
        "batch_size",
        "fixed_upload_size",
        "listings_expiry_time",
        "local_expiry_check",
        "max_concurrency",
        "max_paths",
        "max_pool_connections",
        "retries",
        "skip_instance_cache",
        "tcp_keepalive",
        "use_listings_cache",
        "user_agent_extra",
    }
)
"""s3fs's options that make it faster, count its retries, or say how it uploads parts: without a meaning for other
clients."""
_ONLY_FALSE = ("asynchronous", "version_aware")
"""s3fs's options that are understood where they are false, as they are by default."""
_OTHER_NAMES = {
    "aws_access_key_id": "key",
    "aws_secret_access_key": "secret",
    "aws_session_token": "token",
    "password": "secret",
    "region_name": "region",
    "requester_pays": "request_payer",
    "username": "key",
}
"""botocore's names, and s3fs's older ones."""
_OWN = {"key", "secret", "token", "anon", "endpoint_url", "use_ssl", "profile", "region", "addressing_style"}
_OBJECT_STORE_FLAGS = {
    "disable_bulk_delete",
    "imdsv1_fallback",
    "request_payer",
    "s3_express",
    "sse_bucket_key_enabled",
    "unsigned_payload",
}
_OBJECT_STORE_TEXTS = {
    "checksum_algorithm",
    "server_side_encryption",
    "sse_customer_key_base64",
    "sse_kms_key_id",
}
_KEY_BYTES = 32
"""Source: S3's SSE-C, AES-256."""
_SIGNATURES = ("s3v4", "v4")
_HINT = "; with client='s3fs' all arguments of s3fs.S3FileSystem are known"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """How a bucket is reached."""

    keys: AwsKeys | None = None
    """None: they are looked for in the environment, in profiles and with the machine's role."""
    is_anonymous: bool = False
    profile: str | None = None
    endpoint: str | None = field(default=None, repr=False)
    """With its scheme; None for AWS's own."""
    region: str | None = None
    addressing_style: str = "auto"
    """path, virtual or auto."""
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options of object_store, by its names."""
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options of :data:`CLIENT_OPTIONS`."""


def s3_options(options: Mapping[str, Any]) -> S3Options:
    """``storage_options`` of an S3 store.

    Raises:
        InvalidConfigurationError: there are unknown options, or a key without its secret; names them, never values.
    """
    own, client, config = _flattened(options)
    texts = {name: text_option(own, name) for name in _OWN - {"anon", "use_ssl"}}
    if bool(texts["key"]) != bool(texts["secret"]):
        raise InvalidConfigurationError("storage_options key and secret belong together: one of them is missing")
    style = texts["addressing_style"] or "auto"
    if style not in ("auto", "path", "virtual"):
        raise InvalidConfigurationError("storage_options addressing_style: expected auto, path or virtual")
    endpoint, default_scheme = texts["endpoint_url"], "https" if flag_option(own, "use_ssl", default=True) else "http"
    if endpoint:
        scheme, _, host = endpoint.rstrip("/").rpartition("://")
        endpoint = f"{scheme or default_scheme}://{host}"
    return S3Options(
        keys=_given_keys(texts),
        is_anonymous=flag_option(own, "anon"),
        profile=texts["profile"],
        endpoint=endpoint,
        region=texts["region"],
        addressing_style=style,
        config=config,
        client=client,
    )


def _given_keys(texts: Mapping[str, str | None]) -> AwsKeys | None:
    key, secret = texts["key"], texts["secret"]
    return AwsKeys(key=key, secret=secret, token=texts["token"]) if key and secret else None


def _flattened(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Options of this module, of the HTTP client and of object_store; s3fs has some of them inside of others."""
    given = {**options}
    given.pop("client", None)
    botocore_client = _inner(given, "client_kwargs")
    botocore_config = _inner(given, "config_kwargs")
    addressing = _inner(botocore_config, "s3")
    merged: dict[str, Any] = {}
    for group in (addressing, botocore_config, botocore_client, given):
        merged |= {_OTHER_NAMES.get(name, name): value for name, value in group.items() if value is not None}
    if is_unsigned(merged.pop("signature_version", None)):
        merged["anon"] = True
    if "payload_signing_enabled" in merged:
        merged.setdefault("unsigned_payload", not flag_option(merged, "payload_signing_enabled"))
        del merged["payload_signing_enabled"]
    if merged.get("request_payer") == "requester":  # botocore's word
        merged["request_payer"] = True
    for name in _ONLY_FALSE:
        if not flag_option(merged, name):
            merged.pop(name, None)
    own, rest = take_options(merged, _OWN)
    client, rest = take_options(rest, CLIENT_OPTIONS)
    config, rest = take_options(rest, _OBJECT_STORE_FLAGS | _OBJECT_STORE_TEXTS)
    refuse_unknown(rest.keys() - PASSED_OVER, hint=_HINT)
    flags = {name: flag_option(config, name) for name in config.keys() & _OBJECT_STORE_FLAGS}
    texts = {name: text_option(config, name) for name in config.keys() & _OBJECT_STORE_TEXTS}
    _check_customer_key(texts)
    return own, client, flags | {name: value for name, value in texts.items() if value is not None}


def _check_customer_key(texts: Mapping[str, str | None]) -> None:
    """Raise ``InvalidConfigurationError`` for a key that wouldn't be used: objects would be stored unencrypted."""
    key, encryption = texts.get("sse_customer_key_base64"), texts.get("server_side_encryption")
    if key is None:
        return
    if (encryption or "").lower() != "sse-c":
        raise InvalidConfigurationError(
            "storage_options sse_customer_key_base64: expected server_side_encryption=sse-c beside it; nothing is "
            "encrypted with the key otherwise"
        )
    try:
        size = len(b64decode(key, validate=True))
    except ValueError:
        size = 0
    if size != _KEY_BYTES:
        raise InvalidConfigurationError(
            f"storage_options sse_customer_key_base64: expected {_KEY_BYTES} bytes as base64, with padding"
        )


def is_unsigned(signature_version: object) -> bool:
    """Does s3fs's option say that requests aren't signed? Raises ``InvalidConfigurationError``: it names an old
    signature."""
    if signature_version is None or signature_version in _SIGNATURES:
        return False
    if type(signature_version).__module__.startswith("botocore"):  # the object botocore.UNSIGNED
        return True
    raise InvalidConfigurationError(
        "storage_options signature_version: expected s3v4, the only one that is spoken, or botocore.UNSIGNED"
    )


def _inner(given: dict[str, Any], name: str) -> dict[str, Any]:
    """Take the options that one option holds. Raises ``InvalidConfigurationError``: it holds none."""
    value = given.pop(name, None)
    if value is not None and not isinstance(value, Mapping):
        raise InvalidConfigurationError(f"storage_options {name}: expected a mapping, got {type(value).__name__}")
    return {**(value or {})}


def connect_s3(stores: Any, bucket: str, options: S3Options) -> Any:
    """obstore's store of a bucket. ``stores``: the module with obstore's classes.

    What isn't given is looked for where the AWS tools do: in the environment, in the profile, with the machine's role.

    Raises:
        InvalidConfigurationError: a profile or an option can't be used.
    """
    environment, home = os.environ, Path.home()
    profile = AwsProfile(name="default")
    is_complete = options.keys is not None and (options.region or options.endpoint)
    if not options.is_anonymous and not is_complete:
        profile = read_profile(environment, options.profile, home=home)
    endpoint = options.endpoint or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    endpoint = (endpoint or profile.endpoint_url or "").rstrip("/") or None
    region = options.region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or profile.region
    if region is None:
        region = "us-east-1" if endpoint else _resolve_region(bucket)
    check_printable(region, "storage_options region")
    if endpoint:
        check_endpoint(endpoint)
    style = options.addressing_style
    is_virtual = style == "virtual" or (style == "auto" and endpoint is None and "." not in bucket)
    if endpoint is None and region.startswith("cn-"):
        host = f"s3.{region}.amazonaws.com.cn"
        endpoint = f"https://{bucket}.{host}" if is_virtual else f"https://{host}"
    elif endpoint and is_virtual:  # object_store takes the endpoint as it is
        if _is_address(urlsplit(endpoint).hostname or ""):
            raise InvalidConfigurationError(
                "storage_options addressing_style: virtual needs a host's name in endpoint_url, before which the "
                "bucket's can stand, not an address"
            )
        endpoint = endpoint.replace("://", f"://{bucket}.", 1)
    client = client_options(options.client, endpoint=endpoint)
    config = {
        "bucket": bucket,
        "region": region,
        "skip_signature": options.is_anonymous,
        "virtual_hosted_style_request": is_virtual,
        "conditional_put": "etag",  # whatever the environment says
        "unsigned_payload": _is_protected(endpoint, client),
        **({"aws_endpoint_url_s3": endpoint} if endpoint else {}),  # goes before the environment's
        **options.config,
    }
    provider = None if options.is_anonymous else _provider(options, profile, environment, home)
    return make(
        stores.S3Store,
        config=config,
        client_options=client,
        **({"credential_provider": provider} if provider else {}),
    )


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_protected(endpoint: str | None, client: Mapping[str, Any]) -> bool:
    """Does TLS protect what is sent, so that its SHA-256 sum needn't be signed, too? AWS's own clients leave it out by
    default then.

    Args:
        endpoint: None: AWS's own.
        client: of :func:`client_options`.
    """
    is_encrypted = endpoint is None or endpoint.lower().startswith("https://")
    return is_encrypted and not client.get("allow_invalid_certificates", False)


def _provider(
    options: S3Options, profile: AwsProfile, environment: Mapping[str, str], home: Path
) -> Callable[[], dict[str, Any]] | None:
    """Where keys come from; None: object_store looks in the environment, for a web identity and for a role.

    In the order of the AWS tools. Given keys don't mix with what the environment has.
    """
    if options.keys:
        return keys_provider(options.keys)
    if not options.profile and (environment.get("AWS_ACCESS_KEY_ID") or environment.get("AWS_WEB_IDENTITY_TOKEN_FILE")):
        return None
    if profile.needs_botocore:
        return botocore_provider(profile)
    return profile_provider(environment, options.profile, home=home) if profile.keys else None


def _resolve_region(bucket: str) -> str:
    """A bucket's region, which S3 reveals to anybody."""
    import pyarrow as pa
    import pyarrow.fs as pafs  # loads Arrow's S3 client, which is seldom needed

    try:
        return str(pafs.resolve_s3_region(bucket))
    except (pa.ArrowException, OSError) as error:
        raise InvalidConfigurationError(
            f"s3://{bucket}: its region can't be looked up, give it as storage_options region: {error}"
        ) from error
