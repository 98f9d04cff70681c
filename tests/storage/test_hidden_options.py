"""Nothing that can be printed of a store, or of a cluster, holds a secret: not in a notebook, not in a log."""

from collections.abc import Iterator

import pytest

from sparklog.clock import SystemClock
from sparklog.errors import InvalidConfigurationError
from sparklog.log import Cluster
from sparklog.storage import open_store
from sparklog.storage._bucket_store import BucketStore
from sparklog.storage._client_options import HiddenOptions
from sparklog.storage._obstore_bucket import ObstoreBucket
from sparklog.storage.retrying import RetryingStore

SECRET = "dmVyeS1zZWNyZXQtdmVyeS1zZWNyZXQtdmVyeS1zZWM="
STORES = [
    ("s3://bucket/root", {"key": "k", "secret": SECRET, "region": "eu", "token": SECRET}),
    ("s3://bucket/root", {"region": "eu", "endpoint_url": f"http://user:{SECRET}@h:9"}),
    ("s3://bucket/root", {"region": "eu", "proxy_url": f"http://user:{SECRET}@h:9"}),
    ("s3://bucket/root", {"region": "eu", "sse_customer_key_base64": SECRET, "server_side_encryption": "sse-c"}),
    ("s3://bucket/root", {"client": "s3fs", "key": "k", "secret": SECRET, "client_kwargs": {"region_name": "eu"}}),
    ("s3://bucket/root", {"client": "s3fs", "client_kwargs": {"aws_secret_access_key": SECRET}}),
    ("s3://bucket/root", {"client": "fsspec", "key": "k", "secret": SECRET}),
    ("az://container/root", {"account_name": "account", "account_key": SECRET}),
    ("az://container/root", {"account_name": "account", "endpoint_url": f"http://user:{SECRET}@h:9/account"}),
    ("gs://bucket/root", {"bearer_token": SECRET}),
    ("gs://bucket/root", {"token": {"private_key": SECRET}}),
]


def printed(value: object, seen: set[int]) -> Iterator[str]:
    """What is printed of an object, of its attributes, of theirs, …, as far as they are sparklog's."""
    yield repr(value)
    yield str(value)
    if id(value) in seen or not type(value).__module__.startswith("sparklog"):
        return
    seen.add(id(value))
    attributes = getattr(value, "__dict__", {})
    yield repr(attributes)
    slots = [getattr(value, name, None) for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    for attribute in [*attributes.values(), *slots]:
        if not isinstance(attribute, str):
            yield from printed(attribute, seen)


@pytest.mark.parametrize(("uri", "options"), STORES, ids=lambda value: str([*value]) if isinstance(value, dict) else "")
def test_nothing_printable_of_a_store_or_cluster_holds_a_secret(uri, options):
    opened = open_store(uri, options)
    assert isinstance(opened, BucketStore)
    store, bucket = RetryingStore(opened, clock=SystemClock()), opened._bucket
    cluster = Cluster(cluster_id="id", store=store, clock=SystemClock())
    assert SECRET not in "".join(printed(cluster, set()))
    if isinstance(bucket, ObstoreBucket) and "token" not in options:
        bucket._connected()  # obstore's store is kept, too
        assert SECRET not in "".join(printed(cluster, set()))


def test_hidden_options_are_a_mapping_that_tells_names_alone():
    options = HiddenOptions({"key": "k", "secret": SECRET})
    assert {**options} == {"key": "k", "secret": SECRET}
    assert len(options) == 2
    assert str(options) == "HiddenOptions(key, secret)"
    assert SECRET not in f"{options} {vars(options)}"


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://bucket", {"client": "s3fs", "key": "k", "secret": SECRET, "endpoint_url": f"not a url {SECRET}"}),
        ("s3://bucket", {"client": "s3fs", SECRET[:4]: SECRET, "key": "k", "secret": SECRET}),
        ("s3://bucket", {"client": "s3fs", "config_kwargs": {"read_timeout": SECRET}}),
        ("s3://bucket", {"client": "s3fs", "config_kwargs": SECRET}),
        ("s3://bucket", {"client": "fsspec", "endpoint_url": f"not a url {SECRET}", "no_such_option": SECRET}),
        ("s3://bucket", {"key": "k", "secret": SECRET, "endpoint_url": "http://h:9", "proxy_url": f"no {SECRET}"}),
        ("gs://bucket", {"token": 5, "bearer_token": SECRET}),
        ("az://container", {"account_name": "a", "account_key": SECRET.encode()}),
        ("az://container", {"account_name": "a", "account_key": f"no base64 {SECRET}"}),
        ("az://container", {"account_name": "a", "use_azure_cli": SECRET}),
        ("s3://bucket", [SECRET]),
    ],
    ids=lambda value: str([*value]) if isinstance(value, dict) else "",
)
def test_a_library_that_refuses_an_option_repeats_no_value(uri, options):
    with pytest.raises(InvalidConfigurationError) as caught:
        open_store(uri, options).read("a")
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__
