"""A bucket of Google Cloud Storage as a store: ``x-goog-if-generation-match: 0`` is the create-only put."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparklog.errors import InvalidArgumentError, InvalidConfigurationError
from sparklog.storage._bucket_store import BucketStore, check_root
from sparklog.storage._client_options import (
    CLIENT_OPTIONS,
    HiddenOptions,
    client_options,
    flag_option,
    make,
    refuse_unknown,
    take_options,
    text_option,
)
from sparklog.storage._obstore_bucket import ObstoreBucket

__all__ = ["GcsStore"]

_URI = re.compile(r"gs://(?P<bucket>[^/@\s\x00-\x1f<>\"{}|\\^`#?\[\]]+)(?:/(?P<root>.*))?", re.DOTALL)
_OWN = {"token", "anon", "bearer_token", "service_account", "service_account_key", "endpoint_url"}


class GcsStore(BucketStore):
    """Objects are keys below ``gs://bucket/prefix``; the bucket must be there. Requests are repeated as by
    :class:`~sparklog.storage.s3.S3Store`.

    Args:
        uri: ``gs://bucket/prefix``.
        storage_options: ``token`` (a service account's file, or its content as a mapping; gcsfs's name),
            ``bearer_token``, ``anon``, ``endpoint_url``, ``connect_timeout``, ``read_timeout``, …: see
            ``docs/stores.md``. Without credentials Google's application default credentials are taken. Values appear in
            no message.
    Raises:
        InvalidArgumentError: the URI has no bucket, or carries credentials.
        InvalidConfigurationError: an option is unknown; or, by the first call, obstore isn't installed or refuses one.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None) -> None:
        match = _URI.fullmatch(uri)
        if match is None:  # the text isn't repeated: it may hold a secret
            raise InvalidArgumentError("invalid URI of Google Cloud Storage: expected gs://bucket/prefix")
        name, root = match["bucket"], check_root(match["root"])
        self._name = name
        self._options = options = gcs_options(storage_options or {})
        # Each object is deleted by itself: Google's XML interface has no deletion in bulk.
        bucket = ObstoreBucket(
            name,
            f"gs://{name}",
            lambda stores: _connect(stores, name, options),
            deletes_keys=1,
            renews_credentials=not options.is_anonymous and "bearer_token" not in options.config,
        )
        super().__init__(bucket, uri=f"gs://{name}/{root}".rstrip("/"), root=root)

    def arrow_filesystem(self) -> Any:
        import pyarrow.fs as pafs  # loads Arrow's clients of clouds, which are for engines alone

        options = self._options
        if options.config:
            names = ", ".join(sorted(options.config))
            raise InvalidConfigurationError(
                f"storage_options that mean {names} can't be handed to engines that read by themselves: "
                "set GOOGLE_APPLICATION_CREDENTIALS instead"
            )
        arguments: dict[str, Any] = {"anonymous": options.is_anonymous}
        if options.endpoint:
            arguments["scheme"], _, arguments["endpoint_override"] = options.endpoint.partition("://")
        path = f"{self._name}/{self._root}".rstrip("/")
        return pafs.SubTreeFileSystem(path, pafs.GcsFileSystem(**arguments))


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsOptions:
    """How a bucket is reached."""

    is_anonymous: bool = False
    endpoint: str | None = field(default=None, repr=False)
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Credentials by object_store's names; empty: Google's application default credentials."""
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options of :data:`~sparklog.storage._client_options.CLIENT_OPTIONS`."""


def gcs_options(options: Mapping[str, Any]) -> GcsOptions:
    """``storage_options`` of a store on Google Cloud Storage.

    Raises:
        InvalidConfigurationError: there are unknown options; names them, never their values.
    """
    own, rest = take_options(options, _OWN)
    client, rest = take_options(rest, CLIENT_OPTIONS)
    refuse_unknown(name for name, value in rest.items() if value is not None)
    texts = {name: text_option(own, name) for name in ("bearer_token", "service_account_key")}
    config = {name: value for name, value in texts.items() if value is not None}
    token = own.get("token")
    try:
        if "service_account" in own:
            config["service_account"] = os.fspath(own["service_account"])
        if isinstance(token, Mapping):
            config["service_account_key"] = json.dumps({**token})
        elif token not in (None, "anon", "google_default"):
            config["service_account"] = os.fspath(token)
    except TypeError:  # its message may repeat a value
        raise InvalidConfigurationError(
            "storage_options token, service_account: expected a service account's file, or its content as a mapping"
        ) from None
    return GcsOptions(
        is_anonymous=token == "anon" or flag_option(own, "anon"),  # noqa: S105 - gcsfs's word, no secret
        endpoint=(text_option(own, "endpoint_url") or "").rstrip("/") or None,
        config=HiddenOptions(config),
        client=HiddenOptions(client),
    )


def _connect(stores: Any, bucket: str, options: GcsOptions) -> Any:
    config = {"bucket": bucket, **options.config}
    if options.endpoint:
        config["base_url"] = options.endpoint
    anonymous: dict[str, Any] = {}
    if options.is_anonymous:  # object_store leaves out the signature of reads alone
        config["skip_signature"] = True
        anonymous["credential_provider"] = lambda: {"token": "anonymous", "expires_at": None}
    client = client_options(options.client, endpoint=options.endpoint)
    return make(stores.GCSStore, config=config, client_options=client, **anonymous)
