import types
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest

from sparklog.errors import InvalidConfigurationError
from sparklog.storage import S3Store
from sparklog.storage._aws_profile import AwsKeys
from sparklog.storage._s3_options import connect_s3, s3_options

KEYS = {"key": "k", "secret": "very-secret"}


@pytest.fixture
def connected(monkeypatch, tmp_path):
    """What obstore's store is made with, in an environment that has only what the test gives."""
    variables = "ACCESS_KEY_ID SECRET_ACCESS_KEY SESSION_TOKEN PROFILE DEFAULT_PROFILE REGION DEFAULT_REGION"
    for name in f"{variables} ENDPOINT_URL ENDPOINT_URL_S3 WEB_IDENTITY_TOKEN_FILE".split():
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))

    def connect(options, *, credentials="", config="", bucket="bucket", **environment):
        (tmp_path / "credentials").write_text(credentials)
        (tmp_path / "config").write_text(config)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        made: dict[str, Any] = {}
        connect_s3(types.SimpleNamespace(S3Store=made.update), bucket, s3_options(options))
        return made

    return connect


@pytest.mark.parametrize(
    "options",
    [
        {**KEYS, "token": "t", "endpoint_url": "http://h:9/", "region": "eu"},
        {**KEYS, "token": "t", "endpoint_url": "http://h:9", "client_kwargs": {"region_name": "eu"}},
        {**KEYS, "token": "t", "client_kwargs": {"region_name": "eu", "endpoint_url": "http://h:9"}},
        {**KEYS, "token": "t", "endpoint_url": "h:9", "use_ssl": False, "region": "eu", "client": "obstore"},
        {
            "client_kwargs": {
                "aws_access_key_id": "k",
                "aws_secret_access_key": "very-secret",
                "aws_session_token": "t",
                "region_name": "eu",
            },
            "config_kwargs": {"retries": {}, "s3": {"addressing_style": "path"}, "max_pool_connections": 9},
            "endpoint_url": "http://h:9",
        },
    ],
)
def test_one_thing_may_be_said_as_s3fs_has_it_or_plainly(connected, options):
    made = connected(options)
    assert made["config"]["aws_endpoint_url_s3"] == "http://h:9"
    assert made["config"]["region"] == "eu"
    assert made["client_options"]["allow_http"]
    credential = made["credential_provider"]()
    assert credential == {"access_key_id": "k", "secret_access_key": "very-secret", "token": "t", "expires_at": None}
    assert made["retry_config"] == {"max_retries": 0}


def test_time_outs_are_s3fs_or_plain(connected):
    for options in ({"config_kwargs": {"read_timeout": 2.5}}, {"read_timeout": 2.5}):
        assert connected({**KEYS, "region": "eu", **options})["client_options"]["read_timeout"] == "2500ms"
    with pytest.raises(InvalidConfigurationError, match="read_timeout: expected seconds"):
        connected({**KEYS, "region": "eu", "read_timeout": "very-secret"})
    assert connected({**KEYS, "region": "eu", "read_timeout": 0.0001})["client_options"]["read_timeout"] == "1ms"
    for seconds in (0, -1, float("inf"), float("nan"), 1e300, True, [1]):
        with pytest.raises(InvalidConfigurationError, match=r"connect_timeout: .* greater than 0"):
            connected({**KEYS, "region": "eu", "connect_timeout": seconds})


@pytest.mark.parametrize("verify", [False, 0])
def test_certificates_are_not_looked_at_where_verify_is_false(connected, verify):
    assert connected({**KEYS, "region": "eu", "verify": verify})["client_options"]["allow_invalid_certificates"]


def test_certificates_may_be_named_by_a_path(connected, tmp_path):
    file = tmp_path / "certificates.pem"
    file.write_bytes(b"PEM")
    for verify in (file, str(file)):
        assert connected({**KEYS, "region": "eu", "verify": verify})["client_options"]["root_certificate"] == b"PEM"
    for verify in (True, 1):
        client = connected({**KEYS, "region": "eu", "verify": verify})["client_options"]
        assert not client.keys() & {"root_certificate", "allow_invalid_certificates"}
    with pytest.raises(InvalidConfigurationError, match="verify: expected true, false, or a file"):
        connected({**KEYS, "region": "eu", "verify": b"PEM"})


@pytest.mark.parametrize(
    "options",
    [
        {"use_listings_cache": True, "listings_expiry_time": 5, "max_paths": 5, "skip_instance_cache": True},
        {"version_aware": False, "asynchronous": False, "session": None, "fixed_upload_size": True},
        {"config_kwargs": {"signature_version": "s3v4", "tcp_keepalive": True}},
    ],
)
def test_options_of_s3fs_without_a_meaning_here_are_passed_over(connected, options):
    assert connected({**KEYS, "region": "eu", **options}) == connected({**KEYS, "region": "eu"}) | {
        "credential_provider": mock.ANY
    }


def test_other_names_of_an_option_mean_the_same(connected):
    assert (
        connected({"username": "u", "password": "p", "region": "eu"})["credential_provider"]()["access_key_id"] == "u"
    )
    assert connected({**KEYS, "config_kwargs": {"region_name": "eu"}})["config"]["region"] == "eu"
    for options in ({"requester_pays": True}, {"request_payer": "requester"}):
        assert connected({**KEYS, "region": "eu", **options})["config"]["request_payer"] is True
    botocore = pytest.importorskip("botocore")
    unsigned = {"config_kwargs": {"signature_version": botocore.UNSIGNED}}
    for anonymous in ({"anon": True}, {"anon": "true"}, unsigned):
        assert connected({"region": "eu", **anonymous})["config"]["skip_signature"] is True


@pytest.mark.parametrize(
    ("options", "is_unsigned"),
    [
        ({}, True),
        ({"endpoint_url": "https://h:9"}, True),
        ({"endpoint_url": "https://h:9", "verify": __file__}, True),
        ({"endpoint_url": "http://h:9"}, False),
        ({"endpoint_url": "https://h:9", "verify": False}, False),
        ({"unsigned_payload": False}, False),
        ({"config_kwargs": {"s3": {"payload_signing_enabled": True}}}, False),
        ({"endpoint_url": "http://h:9", "unsigned_payload": True}, True),
    ],
)
def test_payloads_are_not_signed_where_tls_protects_them(connected, options, is_unsigned):
    """As AWS's own clients have it."""
    assert connected({**KEYS, "region": "eu", **options})["config"]["unsigned_payload"] is is_unsigned


def test_given_keys_do_not_mix_with_those_of_the_environment(connected):
    environment = {"AWS_ACCESS_KEY_ID": "e", "AWS_SECRET_ACCESS_KEY": "e", "AWS_SESSION_TOKEN": "e"}
    assert connected({**KEYS, "region": "eu"}, **environment)["credential_provider"]()["token"] is None
    assert "credential_provider" not in connected({"region": "eu"}, **environment)


def test_aws_own_hosts_are_spoken_to_by_the_buckets_name(connected):
    config = connected({**KEYS, "region": "eu"})["config"]
    assert config["virtual_hosted_style_request"]
    assert "aws_endpoint_url_s3" not in config
    assert not connected({**KEYS, "region": "eu"}, bucket="my.bucket")["config"]["virtual_hosted_style_request"]
    virtual = connected({**KEYS, "endpoint_url": "http://h:9", "addressing_style": "virtual"})["config"]
    assert virtual["aws_endpoint_url_s3"] == "http://bucket.h:9"
    china = connected({**KEYS, "region": "cn-north-1"})["config"]
    assert china["aws_endpoint_url_s3"] == "https://bucket.s3.cn-north-1.amazonaws.com.cn"


PROFILES = """
[default]
aws_access_key_id = d
aws_secret_access_key = very-secret
[other]
aws_access_key_id = o
aws_secret_access_key = very-secret
aws_session_token = t
"""


def test_profiles_are_read_from_the_files_of_the_aws_tools(connected, tmp_path):
    made = connected({}, credentials=PROFILES, config="[default]\nregion = eu-west-1\n")
    assert made["config"]["region"] == "eu-west-1"
    assert made["credential_provider"]()["access_key_id"] == "d"
    (tmp_path / "credentials").write_text(PROFILES.replace("= d", "= renewed"))
    renewed = made["credential_provider"]()
    assert renewed["access_key_id"] == "renewed"
    assert renewed["expires_at"] > datetime.now(UTC)


def test_a_profile_may_be_named_by_an_option_or_the_environment(connected):
    config = "[profile other]\nregion = eu-west-2\nendpoint_url = http://h:9\n"
    for options, environment in (({"profile": "other"}, {}), ({}, {"AWS_PROFILE": "other"})):
        made = connected(options, credentials=PROFILES, config=config, **environment)
        assert made["credential_provider"]()["token"] == "t"
        assert made["config"]["aws_endpoint_url_s3"] == "http://h:9"
    with pytest.raises(InvalidConfigurationError, match="AWS profile none"):
        connected({"profile": "none"}, credentials=PROFILES)


def test_a_file_that_cannot_be_read_is_named_without_its_content(connected):
    with pytest.raises(InvalidConfigurationError, match=r"credentials can't be read: \w+Error") as caught:
        connected({"region": "eu"}, credentials="very-secret without a section")
    assert "very-secret" not in str(caught.value)


def test_what_only_botocore_knows_is_asked_of_botocore(connected, monkeypatch):
    config = "[default]\nregion = eu\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = default\n"
    monkeypatch.setitem(__import__("sys").modules, "botocore.session", None)
    with pytest.raises(InvalidConfigurationError, match="role_arn, which needs botocore"):
        connected({}, config=config)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"no_such_option": "very-secret"}, "no_such_option: unknown; with client='s3fs'"),
        ({"client_kwargs": {"odd": "very-secret"}}, "odd: unknown"),
        ({"config_kwargs": {"s3": {"strange": "very-secret"}}}, "strange: unknown"),
        ({"client_kwargs": "very-secret"}, "client_kwargs: expected a mapping, got str"),
        ({"config_kwargs": {"s3": "very-secret"}}, "s3: expected a mapping, got str"),
        ({"key": "very-secret"}, "key and secret belong together"),
        ({"client": "very-secret"}, "client: expected obstore, s3fs or fsspec"),
        ({"addressing_style": "very-secret"}, "addressing_style: expected"),
        ({"addressing_style": ["very-secret"]}, "addressing_style: expected text, got list"),
        ({"config_kwargs": {"signature_version": "s3"}}, "signature_version: expected s3v4"),
        ({"version_aware": True}, "version_aware: unknown"),
        ({"anon": "very-secret"}, "anon: expected true or false"),
        ({"use_ssl": []}, "use_ssl: expected true or false"),
        ({"unsigned_payload": 5}, "unsigned_payload: expected true or false"),
        ({"key": b"very-secret", "secret": "s"}, "key: expected text, got bytes"),
        ({"endpoint_url": 5}, "endpoint_url: expected text, got int"),
        ({"sse_kms_key_id": 5}, "sse_kms_key_id: expected text, got int"),
        ({5: "very-secret"}, "5: unknown"),
    ],
)
def test_options_are_refused_by_name_without_their_values(options, named):
    with pytest.raises(InvalidConfigurationError, match=f"storage_options {named}") as caught:
        S3Store("s3://bucket", options)
    assert "very-secret" not in str(caught.value)


def test_keys_show_no_secret():
    assert "very-secret" not in repr(s3_options(KEYS)) + repr(AwsKeys(key="k", secret="very-secret"))
