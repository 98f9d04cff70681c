"""Spark on Azure Data Lake Storage Gen2: which access a session is configured with; without Spark."""

import pytest

from sparklog.errors import InvalidConfigurationError
from sparklog.spark.session.adls import abfs_options, abfs_settings, gives_credentials, has_access

OAUTH = "fs.azure.account.oauth2."
PROVIDER = "org.apache.hadoop.fs.azurebfs.oauth2."
PRINCIPAL = {"tenant_id": "t", "client_id": "c", "client_secret": "s"}
WORKLOAD = {"tenant_id": "t", "client_id": "c", "federated_token_file": "/token"}


def oauth(provider, **settings):
    return {
        "fs.azure.account.auth.type": "OAuth",
        "fs.azure.account.oauth.provider.type": PROVIDER + provider,
        **{OAUTH + name.replace("_", "."): value for name, value in settings.items()},
    }


KEY = {"fs.azure.account.auth.type": "SharedKey", "fs.azure.account.key": "k"}
SAS = {"fs.azure.account.auth.type": "SAS", "fs.azure.sas.fixed.token": "sv=1&sig=x"}
AUTHORITY = "https://login.microsoftonline.com"


@pytest.mark.parametrize(
    ("storage_options", "expected"),
    [
        ({"account_name": "a", "account_key": "k"}, KEY),
        ({"sas_token": "?sv=1&sig=x", "read_timeout": 3}, SAS),
        (
            PRINCIPAL,
            oauth(
                "ClientCredsTokenProvider",
                client_id="c",
                client_secret="s",
                client_endpoint=f"{AUTHORITY}/t/oauth2/token",
            ),
        ),
        (
            {**PRINCIPAL, "authority_host": "login.example.com/"},
            oauth(
                "ClientCredsTokenProvider",
                client_id="c",
                client_secret="s",
                client_endpoint="https://login.example.com/t/oauth2/token",
            ),
        ),
        (
            WORKLOAD,
            oauth(
                "WorkloadIdentityTokenProvider",
                client_id="c",
                msi_tenant="t",
                msi_authority=f"{AUTHORITY}/",
                token_file="/token",
            ),
        ),
        ({}, oauth("MsiTokenProvider")),
        (
            {"client_id": "c", "msi_endpoint": "http://host"},
            oauth("MsiTokenProvider", client_id="c", msi_endpoint="http://host"),
        ),
    ],
)
def test_storage_options_mean_to_abfs_what_they_mean_to_a_producer(storage_options, expected):
    assert abfs_options(storage_options, {}) == expected


@pytest.mark.parametrize(
    ("environment", "same_as"),
    [
        ({"AZURE_STORAGE_ACCOUNT_KEY": "k"}, {"account_key": "k"}),
        ({"AZURE_STORAGE_SAS_TOKEN": "sv=1"}, {"sas_token": "sv=1"}),
        ({"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"}, PRINCIPAL),
        (
            {"AZURE_TENANT_ID": "t", "AZURE_STORAGE_CLIENT_ID": "c", "AZURE_FEDERATED_TOKEN_FILE": "/token"},
            WORKLOAD,
        ),
    ],
)
def test_credentials_of_the_environment_count_where_none_are_given(environment, same_as):
    assert abfs_options({"account_name": "a"}, environment) == abfs_options(same_as, {})
    assert abfs_options({"account_key": "given"}, environment)["fs.azure.account.key"] == "given"


@pytest.mark.parametrize(
    ("storage_options", "name"),
    [
        ({"bearer_token": "hush"}, "bearer_token"),
        ({"use_azure_cli": True}, "use_azure_cli"),
        ({"anon": True}, "anon"),
        ({"use_emulator": True}, "use_emulator"),
        ({"endpoint_url": "https://hush"}, "endpoint_url"),
        ({"other": "hush"}, "other"),
        ({"client_id": "c", "client_secret": "hush"}, "client_secret needs tenant_id"),
        ({"federated_token_file": "/hush"}, "federated_token_file needs client_id and tenant_id"),
    ],
)
def test_options_that_abfs_doesnt_have_are_named_without_their_values(storage_options, name):
    with pytest.raises(InvalidConfigurationError, match=name) as refusal:
        abfs_options(storage_options, {})
    assert "hush" not in str(refusal.value)


def test_options_of_a_cluster_hold_for_its_account_alone():
    host = "a.dfs.core.windows.net"
    assert abfs_settings(KEY, host) == {f"{name}.{host}": value for name, value in KEY.items()}
    assert abfs_settings(KEY, None) == KEY
    assert not gives_credentials({"account_name": "a", "connect_timeout": 3})
    assert gives_credentials({"account_name": "a", "account_key": "k"})


def test_credentials_that_spark_was_started_with_are_noticed():
    assert has_access({"spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net": "k"})
    assert not has_access({"spark.hadoop.fs.azure.io.retry.max.retries": "3"})
