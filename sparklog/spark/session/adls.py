"""Configuration with which Spark reads and writes tables on Azure Data Lake Storage Gen2 by itself: its connector,
``storage_options`` as ABFS's settings. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparklog.errors import InvalidConfigurationError
from sparklog.spark.session.connector import HADOOP, Connector
from sparklog.storage.azure import AzureOptions, azure_options

__all__ = ["ADLS", "abfs_options", "abfs_settings", "gives_credentials", "has_access"]

ADLS = Connector(
    option="adls",
    schemes=("abfss", "abfs"),
    log_store="io.sparklog.delta.RenamingAdlsLogStore",
    log_store_reason="with Delta's own a commit whose answer was lost is taken for another's or for none, and its rows "
    "may come twice; and it writes to an account without a hierarchical namespace, which has no rename",
    file_systems=("org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem",),
    packages=(f"org.apache.hadoop:hadoop-azure:{HADOOP}",),
    excludes=(
        "com.microsoft.azure:*",  # for wasb:// alone
        "org.wildfly.openssl:*",  # for fs.azure.ssl.channel.mode=OpenSSL alone
        "org.apache.hadoop.thirdparty:*",  # Spark's Hadoop has it
    ),
    jar_pattern=re.compile(r"hadoop-azure(?!-datalake)"),
    defaults={},
)
"""Its log store's commit is a rename with ``If-None-Match: *``, as that of Delta's own."""

_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2"
_AUTHORITY = "https://login.microsoftonline.com"
_AUTH_TYPE = "fs.azure.account.auth.type"
_PROVIDER = "fs.azure.account.oauth.provider.type"
_OAUTH2 = "fs.azure.account.oauth2."
_ACCESS = ("fs.azure.account.", "fs.azure.sas.")
_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "account_key": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY"),
    "sas_token": ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"),
    "client_id": ("AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID"),
    "client_secret": ("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET"),
    "tenant_id": ("AZURE_STORAGE_TENANT_ID", "AZURE_STORAGE_AUTHORITY_ID", "AZURE_TENANT_ID", "AZURE_AUTHORITY_ID"),
    "authority_host": ("AZURE_STORAGE_AUTHORITY_HOST", "AZURE_AUTHORITY_HOST"),
    "federated_token_file": ("AZURE_FEDERATED_TOKEN_FILE",),
}
"""Environment variables that object_store reads."""
_KNOWN = {*_VARIABLES, "msi_endpoint"}
_TIMEOUTS = {"connect_timeout", "read_timeout"}


def abfs_options(
    storage_options: Mapping[str, Any], environment: Mapping[str, str], *, account: str | None = None
) -> dict[str, str]:
    """``storage_options`` of a store on Azure as settings of ABFS, for any account. Time-outs are passed over.

    Without credentials among them those of the environment count, then the machine's identity.

    Args:
        account: in the cluster's URI; None for options of a session.
    Raises:
        InvalidConfigurationError: there are unknown options, some without a counterpart, or not enough of them; names
            them, never their values.
    """
    given = {name: value for name, value in storage_options.items() if name != "client"}
    options = azure_options(given, account=account, suffix=None)
    _refuse_unknown(options)
    credentials = {name: str(value) for name, value in options.credentials.items() if value}
    if not credentials:
        found = {name: next(filter(None, map(environment.get, names)), "") for name, names in _VARIABLES.items()}
        credentials = {name: value for name, value in found.items() if value}
    return _settings(credentials)


def gives_credentials(storage_options: Mapping[str, Any]) -> bool:
    """Do ``storage_options`` say more than which account it is?"""
    return any(storage_options.get(name) for name in _KNOWN)


def abfs_settings(options: Mapping[str, str], host: str | None) -> dict[str, str]:
    """Settings of :func:`abfs_options` that hold for one account alone, by its host; for all if that is None."""
    return {f"{name}.{host}" if host else name: value for name, value in options.items()}


def has_access(settings: Mapping[str, str]) -> bool:
    """Was Spark started with credentials for ABFS?"""
    return any(name.startswith(tuple(f"spark.hadoop.{prefix}" for prefix in _ACCESS)) for name in settings)


def _refuse_unknown(options: AzureOptions) -> None:
    unknown = sorted({*options.credentials, *options.client} - _KNOWN - _TIMEOUTS)
    if options.is_anonymous:
        unknown.append("anon")
    if options.use_emulator:
        unknown.append("use_emulator")
    if options.endpoint:
        unknown.append("endpoint_url")
    if unknown:
        raise InvalidConfigurationError(
            f"storage_options {', '.join(unknown)} can't be handed to Spark, whose access to Azure is by account_key, "
            "sas_token, a service principal, a workload's identity or a managed one"
        )


def _settings(credentials: Mapping[str, str]) -> dict[str, str]:
    """ABFS's settings for the first way to sign requests that the credentials are enough for."""
    if "account_key" in credentials:
        return {_AUTH_TYPE: "SharedKey", "fs.azure.account.key": credentials["account_key"]}
    if "sas_token" in credentials:
        return {_AUTH_TYPE: "SAS", "fs.azure.sas.fixed.token": credentials["sas_token"].removeprefix("?")}
    identity = {_OAUTH2 + "client.id": credentials["client_id"]} if "client_id" in credentials else {}
    authority = credentials.get("authority_host", _AUTHORITY).rstrip("/")
    if not authority.startswith("https://"):
        authority = f"https://{authority}"
    if "client_secret" in credentials:
        _need(credentials, "client_secret", "client_id", "tenant_id")
        return _oauth("ClientCredsTokenProvider") | {
            **identity,
            _OAUTH2 + "client.secret": credentials["client_secret"],
            _OAUTH2 + "client.endpoint": f"{authority}/{credentials['tenant_id']}/oauth2/token",
        }
    tenant = {_OAUTH2 + "msi.tenant": credentials["tenant_id"]} if "tenant_id" in credentials else {}
    if "federated_token_file" in credentials:
        _need(credentials, "federated_token_file", "client_id", "tenant_id")
        return _oauth("WorkloadIdentityTokenProvider") | {
            **identity,
            **tenant,
            _OAUTH2 + "msi.authority": f"{authority}/",
            _OAUTH2 + "token.file": credentials["federated_token_file"],
        }
    endpoint = {_OAUTH2 + "msi.endpoint": credentials["msi_endpoint"]} if "msi_endpoint" in credentials else {}
    return _oauth("MsiTokenProvider") | identity | tenant | endpoint


def _oauth(provider: str) -> dict[str, str]:
    return {_AUTH_TYPE: "OAuth", _PROVIDER: f"{_OAUTH}.{provider}"}


def _need(credentials: Mapping[str, str], because: str, *names: str) -> None:
    lacks = [name for name in names if name not in credentials]
    if lacks:
        raise InvalidConfigurationError(f"storage_options {because} needs {' and '.join(lacks)}, too")
