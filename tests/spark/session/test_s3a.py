"""Spark on S3: what a session is configured with, and what is refused; without Spark."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.errors import InvalidConfigurationError, UnsafeStoreError
from sparklog.spark.session.connector import new_connector_settings, unset
from sparklog.spark.session.s3a import S3, bucket_settings, check_s3, s3_options
from sparklog.spark.session.storage_access import configure_storage_access
from sparklog.storage import S3Store
from sparklog.streaming.cluster_ref import ClusterRef

SAFE = {"spark.delta.logStore.s3a.impl": S3.log_store}
JAR = Path("/jars/log-store.jar")


def settings(given=None, present=None):
    return new_connector_settings(S3, given or {}, (present or {}).get, jar=JAR)


def test_a_new_session_commits_on_s3_by_sparklogs_log_store_whatever_the_scheme():
    found = settings({"spark.jars.packages": "io.delta:delta-spark_9:1"})
    for scheme in ("s3", "s3a", "s3n"):
        assert found[f"spark.delta.logStore.{scheme}.impl"] == "io.sparklog.delta.ConditionalS3LogStore"
    assert found["spark.jars"] == str(JAR)
    assert found["spark.jars.packages"].startswith("io.delta:delta-spark_9:1,org.apache.hadoop:hadoop-aws:")
    assert "software.amazon.awssdk:bundle" in found["spark.jars.excludes"].split(",")
    check_s3(found, wanted=True)


@pytest.mark.parametrize(
    ("given", "wanted", "seen"),
    [
        ({}, True, "s3=True, but spark.delta.logStore.s3a.impl is not set"),
        ({"spark.hadoop.fs.s3a.endpoint": "http://localhost"}, False, "spark.hadoop.fs.s3a.endpoint is set"),
        ({"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"}, False, "spark.jars.packages is set"),
        (
            {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3SingleDriverLogStore"},
            False,
            "impl is io.delta.storage.S3SingleDriverLogStore",
        ),
        ({**SAFE, "spark.hadoop.fs.s3.impl": "S3AFileSystem"}, True, "spark.delta.logStore.s3.impl is not set"),
        ({**SAFE, "spark.delta.logStore.s3n.impl": "a.B"}, True, "spark.delta.logStore.s3n.impl is a.B"),
        ({**SAFE, "spark.delta.logStore.class": "a.B"}, True, "spark.delta.logStore.class is a.B"),
        ({**SAFE, "delta.logStore.class": "a.B"}, False, "delta.logStore.class is a.B"),
    ],
)
def test_a_session_whose_commits_on_s3_could_overwrite_others_is_refused(given, wanted, seen):
    with pytest.raises(UnsafeStoreError, match=re.escape(seen)):
        check_s3(given, wanted=wanted)


def test_a_cluster_on_s3_is_refused_in_a_spark_that_wasnt_started_for_it(tmp_path):
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: SimpleNamespace(getAll=lambda: [])))
    configure_storage_access(spark, ClusterRef(str(tmp_path)))
    with pytest.raises(UnsafeStoreError, match=re.escape("sparklog.spark.session(s3=True)")):
        configure_storage_access(spark, ClusterRef("s3://bucket/prefix"))


def test_a_session_without_s3_is_safe():
    check_s3({"spark.hadoop.fs.gs.project.id": "x"}, wanted=False)
    check_s3({"spark.hadoop.fs.s3a.vectored.read.min.seek.size": "128K"}, wanted=False)  # by Spark itself
    check_s3({"delta.logStore.s3a.impl": S3.log_store}, wanted=True)


@pytest.mark.parametrize(
    ("storage_options", "environment", "expected"),
    [
        ({}, {}, {}),
        ({}, {"AWS_REGION": "eu-central-1"}, {"endpoint.region": "eu-central-1"}),
        (
            {"key": "k", "secret": "s", "client_kwargs": {"region_name": "r"}},
            {},
            {
                "access.key": "k",
                "secret.key": "s",
                "endpoint.region": "r",
                "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
            },
        ),
        (
            {"key": "k", "secret": "s", "token": "t", "endpoint_url": "http://127.0.0.1:9000/"},
            {},
            {
                "access.key": "k",
                "secret.key": "s",
                "session.token": "t",
                "aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
                "endpoint": "http://127.0.0.1:9000",
                "endpoint.region": "us-east-1",
                "path.style.access": "true",
            },
        ),
        (
            {"anon": True, "config_kwargs": {"s3": {"addressing_style": "virtual"}}},
            {"AWS_ENDPOINT_URL": "https://host"},
            {
                "aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider",
                "endpoint": "https://host",
                "endpoint.region": "us-east-1",
                "path.style.access": "false",
            },
        ),
        ({"use_ssl": False}, {}, {"connection.ssl.enabled": "false"}),
    ],
)
def test_storage_options_mean_to_s3a_what_they_mean_to_a_producer(storage_options, environment, expected):
    expected = {f"fs.s3a.{name}": value for name, value in expected.items()}
    assert s3_options(storage_options, environment) == expected


def test_storage_options_that_s3a_doesnt_have_are_named_without_their_values():
    with pytest.raises(InvalidConfigurationError, match="profile") as refusal:
        s3_options({"profile": "hush"}, {})
    assert "hush" not in str(refusal.value)


def test_what_the_process_has_set_goes_before_storage_options():
    options = {"fs.s3a.endpoint": "e", "fs.s3a.access.key": "k"}
    found = unset({**S3.defaults, **options}, {"spark.hadoop.fs.s3a.endpoint": "given"})
    assert "fs.s3a.endpoint" not in found
    assert found["fs.s3a.access.key"] == "k"
    assert "ProfileAWSCredentialsProvider" in found["fs.s3a.aws.credentials.provider"]
    [anonymous] = {**S3.defaults, **s3_options({"anon": True}, {})}.values()
    assert anonymous == "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"


def test_options_of_a_cluster_hold_for_its_bucket_alone():
    assert bucket_settings(S3Store("s3://my.bucket/a/b"), {"fs.s3a.endpoint": "e"}) == {
        "fs.s3a.bucket.my.bucket.endpoint": "e"
    }
