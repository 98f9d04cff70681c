"""A container of Azure Blob Storage, also with Data Lake Storage Gen2, as a store: ``If-None-Match: *`` is the
create-only put."""

from __future__ import annotations

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

__all__ = ["AzureStore"]

_CONTAINER = r"(?P<container>[a-z0-9$](?:[a-z0-9-]*[a-z0-9])?)"
_ACCOUNT_URI = re.compile(
    rf"abfss?://{_CONTAINER}@(?P<account>[a-z0-9]+)\.dfs\.(?P<suffix>core\.[a-z0-9.]+)(?:/(?P<root>.*))?", re.DOTALL
)
_SHORT_URI = re.compile(rf"(?:az|abfss?)://{_CONTAINER}(?:/(?P<root>.*))?", re.DOTALL)
_EXPECTED = (
    "invalid URI of Azure's storage: expected abfss://container@account.dfs.core.windows.net/path, as Spark has it, "
    "or az://container/path with storage_options account_name"
)
_PUBLIC = "core.windows.net"
_OWN = {"account_name", "anon", "endpoint_url", "use_emulator"}
_CREDENTIALS = {
    "account_key": "access_key",
    "sas_token": "sas_token",
    "bearer_token": "bearer_token",
    "client_secret": "client_secret",
    "federated_token_file": "workload_identity",
    "use_azure_cli": "azure_cli",
    "msi_endpoint": "managed_identity",
}
"""Options, and the way to sign requests that object_store then takes, whatever the environment has."""
_FLAGS = {"use_azure_cli"}
_CONSTANT = {"account_key", "sas_token", "bearer_token"}
_WITH_CREDENTIALS = {"authority_host", "client_id", "msi_resource_id", "object_id", "tenant_id"}
_NAMES = {"sas_token": "sas_key", "bearer_token": "token"}
_ACCOUNT_VARIABLE = "AZURE_STORAGE_ACCOUNT_NAME"
_DELETES_KEYS = 256
"""Azure's limit for one batch."""


class AzureStore(BucketStore):
    """Objects are blobs of a container below a path; the container must be there. Requests are repeated as by
    :class:`~sparklog.storage.s3.S3Store`. No listing of Azure's begins behind a name: each costs what the whole folder
    does.

    Args:
        uri: ``abfss://container@account.dfs.core.windows.net/path``, as Spark has it, or ``az://container/path`` with
            the account in ``account_name`` or the environment.
        storage_options: ``account_name``, ``account_key``, ``sas_token``, ``tenant_id`` with ``client_id`` and
            ``client_secret``, ``anon``, ``endpoint_url``, ``use_emulator``, ``connect_timeout``, ``read_timeout``, …:
            see ``docs/stores.md``. Without credentials object_store looks in the environment (``AZURE_STORAGE_…``), for
            a workload's identity and for the machine's. Values appear in no message.
    Raises:
        InvalidArgumentError: the URI has no container, or carries credentials.
        InvalidConfigurationError: an option is unknown, or contradicts the URI; or, by the first call, obstore isn't
            installed or refuses an option.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None) -> None:
        match = _ACCOUNT_URI.fullmatch(uri) or _SHORT_URI.fullmatch(uri)
        if match is None:  # the text isn't repeated: it may hold a secret
            raise InvalidArgumentError(_EXPECTED)
        parts = match.groupdict()
        container, root = parts["container"], check_root(parts["root"])
        self._container = container
        self._suffix = parts.get("suffix") or _PUBLIC
        self._options = options = azure_options(
            storage_options or {}, account=parts.get("account"), suffix=parts.get("suffix")
        )
        shown = uri[: match.start("root") - 1] if parts["root"] is not None else uri
        bucket = ObstoreBucket(
            container,
            shown,
            lambda stores: _connect(stores, container, options),
            is_sorted=False,  # with a hierarchical namespace folders sort among themselves
            deletes_keys=_DELETES_KEYS,
            renews_credentials=not options.is_anonymous and not options.credentials.keys() & _CONSTANT,
        )
        super().__init__(bucket, uri=f"{shown}/{root}".rstrip("/"), root=root)

    @property
    def account_host(self) -> str:
        """The host of the storage account by which Hadoop knows it. Raises ``InvalidConfigurationError`` if neither the
        URI nor an option nor the environment has the account."""
        return f"{_account(self._options)}.dfs.{self._suffix}"

    @property
    def abfss_uri(self) -> str:
        """The store's root as Spark has it, whichever way the URI was written. Raises as :attr:`account_host`."""
        return f"abfss://{self._container}@{self.account_host}/{self._root}".rstrip("/")

    def arrow_filesystem(self) -> Any:
        import pyarrow.fs as pafs  # loads Arrow's clients of clouds, which are for engines alone

        path = f"{self._container}/{self._root}".rstrip("/")
        return pafs.SubTreeFileSystem(path, pafs.AzureFileSystem(**azure_arrow_arguments(self._options)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureOptions:
    """How a container is reached."""

    account: str | None = None
    """None: the environment has it."""
    is_anonymous: bool = False
    use_emulator: bool = False
    endpoint: str | None = field(default=None, repr=False)
    """None: the account's at Azure's public cloud."""
    credentials: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """By this module's names; empty: object_store looks for them."""
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options of :data:`~sparklog.storage._client_options.CLIENT_OPTIONS`."""


def azure_options(options: Mapping[str, Any], *, account: str | None, suffix: str | None) -> AzureOptions:
    """``storage_options`` of a store on Azure.

    Args:
        account: in the URI.
        suffix: of the account's host in the URI: ``core.windows.net``, or another cloud's.
    Raises:
        InvalidConfigurationError: there are unknown options, or the account isn't the URI's; names options, never their
            values.
    """
    own, rest = take_options(options, _OWN)
    client, rest = take_options(rest, CLIENT_OPTIONS)
    credentials, rest = take_options(rest, {*_CREDENTIALS, *_WITH_CREDENTIALS})
    refuse_unknown(name for name, value in rest.items() if value is not None)
    if account and text_option(own, "account_name") not in (None, account):
        raise InvalidConfigurationError(f"storage_options account_name: the URI has the account {account}")
    flags = {name: True for name in credentials.keys() & _FLAGS if flag_option(credentials, name)}
    texts = {name: text_option(credentials, name) for name in credentials.keys() - _FLAGS}
    endpoint = text_option(own, "endpoint_url")
    if endpoint is None and account and suffix not in (None, _PUBLIC):
        endpoint = f"https://{account}.blob.{suffix}"
    return AzureOptions(
        account=account or text_option(own, "account_name"),
        is_anonymous=flag_option(own, "anon"),
        use_emulator=flag_option(own, "use_emulator"),
        endpoint=endpoint.rstrip("/") if endpoint else None,
        credentials=HiddenOptions({**flags, **{name: value for name, value in texts.items() if value is not None}}),
        client=HiddenOptions(client),
    )


def azure_arrow_arguments(options: AzureOptions) -> dict[str, Any]:
    """Arguments of ``pyarrow.fs.AzureFileSystem`` that mean the same.

    Raises:
        InvalidConfigurationError: there are options without a counterpart; names them, never their values.
    """
    known = {"account_key", "sas_token", "tenant_id", "client_id", "client_secret"}
    unknown = sorted(set(options.credentials) - known)
    if options.is_anonymous:
        unknown.append("anon")
    if options.use_emulator or options.endpoint:
        unknown.append("endpoint_url")
    if unknown:
        raise InvalidConfigurationError(
            f"storage_options {', '.join(unknown)} can't be handed to engines that read Azure's storage by themselves"
        )
    return {"account_name": _account(options), **options.credentials}


def _account(options: AzureOptions) -> str:
    account = options.account or os.environ.get(_ACCOUNT_VARIABLE)
    if not account:
        raise InvalidConfigurationError("storage_options account_name: expected the storage account's name")
    return account


def _connect(stores: Any, container: str, options: AzureOptions) -> Any:
    config: dict[str, Any] = {"container_name": container, "use_emulator": options.use_emulator}
    if options.account:
        config["account_name"] = options.account
    if options.endpoint:
        config["endpoint"] = options.endpoint
    if options.is_anonymous:
        config["skip_signature"] = True
    config |= {_NAMES.get(name, name): value for name, value in options.credentials.items()}
    ways = [way for name, way in _CREDENTIALS.items() if options.credentials.get(name)]
    if ways:
        config["credential_type"] = ways[0]
    client = client_options(options.client, endpoint=options.endpoint)
    client["allow_http"] = client["allow_http"] or options.use_emulator
    return make(stores.AzureStore, config=config, client_options=client)
