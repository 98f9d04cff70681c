"""Spark's own access to clusters in clouds: what is set where, and what is refused; without Spark."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

import sparklog.spark as ss
from sparklog.errors import InvalidConfigurationError, UnsafeStoreError
from sparklog.spark.session.adls import ADLS
from sparklog.spark.session.gcs import GCS
from sparklog.spark.session.s3a import S3
from sparklog.spark.session.storage_access import (
    asked_connectors,
    configure_session_access,
    configure_storage_access,
    session_options,
)
from sparklog.streaming.cluster_ref import ClusterRef

ACCOUNT = "abfss://files@account.dfs.core.windows.net/p"
HOST = "account.dfs.core.windows.net"


class Hadoop(dict[str, str]):
    """Stands in for the configuration that Spark opens file systems with."""

    def set(self, name: str, value: str) -> None:
        self[name] = value


def a_spark(**settings: str) -> Any:
    """A Spark that was started with ``settings``, dots written as ``__``."""
    given = [(name.replace("__", "."), value) for name, value in settings.items()]
    hadoop = Hadoop()
    context = SimpleNamespace(
        getConf=lambda: SimpleNamespace(getAll=lambda: given),
        _jsc=SimpleNamespace(hadoopConfiguration=lambda: hadoop),
    )
    return SimpleNamespace(sparkContext=context, hadoop=hadoop)


SAFE = {
    f"spark__delta__logStore__{scheme}__impl": each.log_store for each in (S3, GCS, ADLS) for scheme in each.schemes
}


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_CLIENT_SECRET"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("uri", "asked"), [("s3://b/p", "s3"), ("gs://b/p", "gcs"), (ACCOUNT, "adls")])
def test_a_cluster_in_a_cloud_is_refused_by_a_spark_that_wasnt_started_for_it(uri, asked, tmp_path):
    configure_storage_access(a_spark(), ClusterRef(str(tmp_path)))
    with pytest.raises(UnsafeStoreError, match=re.escape(f"sparklog.spark.session({asked}=True)")):
        configure_storage_access(a_spark(), ClusterRef(uri))
    configure_storage_access(a_spark(**SAFE), ClusterRef(uri))


def test_a_cluster_in_another_store_is_refused():
    with pytest.raises(InvalidConfigurationError, match=r'format\("sparklog"\) reads and writes'):
        configure_storage_access(a_spark(**SAFE), ClusterRef("s3://bucket/p", {"client": "fsspec"}))


def test_options_of_a_cluster_on_azure_are_set_for_its_account():
    spark = a_spark(**SAFE)
    for options in ({}, {"account_name": "account"}):
        configure_storage_access(spark, ClusterRef(ACCOUNT, options))
    assert spark.hadoop == {}
    configure_storage_access(spark, ClusterRef("az://files/p", {"account_name": "account", "account_key": "k"}))
    assert spark.hadoop == {
        f"fs.azure.account.auth.type.{HOST}": "SharedKey",
        f"fs.azure.account.key.{HOST}": "k",
    }
    with pytest.raises(InvalidConfigurationError, match="account_name"):
        configure_storage_access(spark, ClusterRef("az://files/p"))


def test_options_of_a_cluster_on_gcs_must_be_the_sessions():
    spark = a_spark(**SAFE)
    ref = ClusterRef("gs://bucket/p", {"token": "/account.json"})
    with pytest.raises(InvalidConfigurationError, match=r"session\(gcs=True, storage_options=…\)"):
        configure_storage_access(spark, ref)
    configure_session_access(spark, [GCS], session_options([GCS], ref.storage_options), are_given=True)
    assert spark.hadoop["fs.gs.auth.service.account.json.keyfile"] == "/account.json"
    configure_storage_access(spark, ref)


def test_a_session_gets_the_access_of_each_clouds_usual_places():
    spark = a_spark(**SAFE)
    configure_session_access(spark, [S3, GCS, ADLS], session_options([S3, GCS, ADLS], None), are_given=False)
    assert spark.hadoop["fs.gs.auth.type"] == "APPLICATION_DEFAULT"
    assert spark.hadoop["fs.azure.account.oauth.provider.type"].endswith(".MsiTokenProvider")
    assert "ProfileAWSCredentialsProvider" in spark.hadoop["fs.s3a.aws.credentials.provider"]


def test_credentials_that_spark_was_started_with_go_before_the_environments():
    spark = a_spark(**{f"spark.hadoop.fs.azure.account.key.{HOST}": "k", "spark.hadoop.fs.gs.auth.type": "X"})
    connectors = [GCS, ADLS]
    configure_session_access(spark, connectors, session_options(connectors, None), are_given=False)
    assert spark.hadoop == {}


def test_storage_options_of_a_session_are_for_one_cloud():
    none = {"s3": False, "gcs": False, "adls": False}
    assert asked_connectors(none, {}) == ()
    assert asked_connectors({**none, "gcs": True}, {"token": "/a.json"}) == (GCS,)
    assert asked_connectors({**none, "s3": True, "adls": True}, None) == (S3, ADLS)
    for asked in (none, {**none, "s3": True, "gcs": True}):
        with pytest.raises(InvalidConfigurationError, match="for one cloud's store"):
            asked_connectors(asked, {"token": "/a.json"})
    with pytest.raises(InvalidConfigurationError, match="for one cloud's store"):
        ss.session(storage_options={"key": "k"})


@pytest.mark.parametrize(
    ("uri", "options", "path"),
    [
        (ACCOUNT, {}, f"{ACCOUNT}/topics/t"),
        ("abfss://files@account.dfs.core.windows.net", {}, f"abfss://files@{HOST}/topics/t"),
        ("az://files/p", {"account_name": "account"}, f"{ACCOUNT}/topics/t"),
        (
            "abfs://files@account.dfs.core.chinacloudapi.cn/p",
            {},
            "abfss://files@account.dfs.core.chinacloudapi.cn/p/topics/t",
        ),
        ("gs://bucket/p", {}, "gs://bucket/p/topics/t"),
        ("s3://bucket/p", {}, "s3a://bucket/p/topics/t"),
    ],
)
def test_spark_finds_a_table_by_the_uri_of_its_own_file_system(uri, options, path):
    assert ClusterRef(uri, options).delta_path("topics/t") == path
