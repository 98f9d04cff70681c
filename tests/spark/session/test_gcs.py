"""Spark on Google Cloud Storage: which access a session is configured with; without Spark."""

import pytest

from sparklog.errors import InvalidConfigurationError
from sparklog.spark.session.gcs import GCS, check_same_access, hadoop_gcs_options

KEY_FILE = {
    "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
    "fs.gs.auth.service.account.json.keyfile": "/keys/account.json",
}


@pytest.mark.parametrize(
    ("storage_options", "environment", "expected"),
    [
        ({}, {}, {}),
        ({"token": "google_default", "read_timeout": 3}, {}, {}),
        ({"token": "/keys/account.json"}, {}, KEY_FILE),
        ({"service_account": "/keys/account.json", "client": "obstore"}, {}, KEY_FILE),
        ({}, {"GOOGLE_SERVICE_ACCOUNT_PATH": "/keys/account.json"}, KEY_FILE),
        ({"token": "/keys/account.json"}, {"GOOGLE_SERVICE_ACCOUNT": "/other.json"}, KEY_FILE),
    ],
)
def test_storage_options_mean_to_hadoop_what_they_mean_to_a_producer(storage_options, environment, expected):
    assert hadoop_gcs_options(storage_options, environment) == expected


def test_without_options_application_default_credentials_are_looked_for():
    assert GCS.defaults == {"fs.gs.auth.type": "APPLICATION_DEFAULT"}


@pytest.mark.parametrize(
    ("storage_options", "name"),
    [
        ({"bearer_token": "hush"}, "bearer_token"),
        ({"token": {"private_key": "hush"}}, "service_account_key"),
        ({"anon": True}, "anon"),
        ({"endpoint_url": "https://hush"}, "endpoint_url"),
        ({"proxy_url": "https://hush"}, "proxy_url"),
        ({"other": "hush"}, "other"),
    ],
)
def test_options_that_hadoop_doesnt_have_are_named_without_their_values(storage_options, name):
    with pytest.raises(InvalidConfigurationError, match=name) as refusal:
        hadoop_gcs_options(storage_options, {})
    assert "hush" not in str(refusal.value)


def test_a_cluster_of_another_account_than_the_sessions_is_refused():
    check_same_access({}, {})
    check_same_access(KEY_FILE, {**KEY_FILE})
    with pytest.raises(InvalidConfigurationError, match="keyfile aren't those of this Spark") as refusal:
        check_same_access(KEY_FILE, {**KEY_FILE, "fs.gs.auth.service.account.json.keyfile": "/other.json"})
    assert "/keys" not in str(refusal.value)
