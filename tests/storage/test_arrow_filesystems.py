"""The file systems that stores hand to engines which read by themselves."""

import pyarrow.fs as pafs
import pytest

from sparklog.clock import SystemClock
from sparklog.errors import InvalidConfigurationError
from sparklog.storage import LocalStore, MemoryStore, S3Store
from sparklog.storage._s3_arrow import arrow_s3, arrow_s3_arguments
from sparklog.storage.retrying import RetryingStore

KEYS = {"key": "k", "secret": "s"}


def test_a_folder_is_read_by_arrow_itself(tmp_path):
    store = LocalStore(tmp_path)
    store.put("a/b", b"data")
    for filesystem in (store.arrow_filesystem(), RetryingStore(store, clock=SystemClock()).arrow_filesystem()):
        with filesystem.open_input_file("a/b") as file:
            assert file.read() == b"data"
    assert MemoryStore().arrow_filesystem() is None


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ({}, {}, {}),
        ({**KEYS, "token": "t"}, {}, {"access_key": "k", "secret_key": "s", "session_token": "t"}),
        ({"anon": True, "token": None}, {}, {"anonymous": True}),
        ({"endpoint_url": "http://host:9000/"}, {}, {"endpoint_override": "host:9000", "scheme": "http"}),
        ({"client_kwargs": {"endpoint_url": "host"}}, {}, {"endpoint_override": "host", "scheme": "https"}),
        ({}, {"AWS_ENDPOINT_URL": "http://a"}, {"endpoint_override": "a", "scheme": "http"}),
        ({"endpoint_url": "http://b"}, {"AWS_ENDPOINT_URL": "x"}, {"endpoint_override": "b", "scheme": "http"}),
        ({"use_ssl": False}, {}, {"scheme": "http"}),
        ({"client_kwargs": {"region_name": "eu"}}, {"AWS_REGION": "us"}, {"region": "eu"}),
        ({"client_kwargs": None}, {"AWS_DEFAULT_REGION": "us"}, {"region": "us"}),
        (
            {
                "config_kwargs": {
                    "connect_timeout": 1,
                    "read_timeout": 2,
                    "retries": {},
                    "s3": {"addressing_style": "virtual"},
                }
            },
            {},
            {"connect_timeout": 1, "request_timeout": 2, "force_virtual_addressing": True},
        ),
        ({"default_block_size": 1, "config_kwargs": {"s3": {"addressing_style": "path"}}}, {}, {}),
    ],
)
def test_options_of_s3fs_mean_the_same_to_arrow(options, environment, expected):
    assert arrow_s3_arguments(options, environment) == expected


def test_an_option_without_a_counterpart_is_named_and_its_value_is_not():
    options = {"profile": "SECRET", "client_kwargs": {"verify": "SECRET"}, "config_kwargs": {"s3": {"odd": "SECRET"}}}
    with pytest.raises(
        InvalidConfigurationError, match="storage_options odd, profile, verify can't be handed"
    ) as caught:
        arrow_s3_arguments(options, {})
    assert "SECRET" not in str(caught.value)


def test_what_arrow_refuses_is_told():
    with pytest.raises(InvalidConfigurationError, match=r"storage_options: Arrow says .*secret_key") as caught:
        arrow_s3("bucket", "root/", {"key": "SECRET", "client_kwargs": {"region_name": "eu"}})
    assert "SECRET" not in str(caught.value)


@pytest.mark.s3
def test_a_bucket_is_read_by_arrow_itself(s3_uri, s3_options):
    store = S3Store(s3_uri, s3_options)
    store.put("a/b", b"data")
    with store.arrow_filesystem().open_input_file("a/b") as file:
        assert file.read() == b"data"
    assert isinstance(store.arrow_filesystem(), pafs.SubTreeFileSystem)
    store.close()
