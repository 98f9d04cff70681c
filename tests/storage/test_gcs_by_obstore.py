"""Google Cloud Storage by obstore, on fake-gcs-server: that decides who has a name, ``tests/gcs_xml.py`` translates."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparklog.clock import SystemClock
from sparklog.errors import StoreError
from sparklog.storage import CreateResult, GcsStore, ObjectStore, open_store, probe_create_only
from sparklog.testing.store_contract import StoreContract

pytestmark = pytest.mark.s3
WRITERS = 32


@pytest.mark.deep
class TestGcsStore(StoreContract):
    @pytest.fixture
    def store(self, gcs_uri: str, gcs_options: dict[str, Any]) -> ObjectStore:
        return GcsStore(gcs_uri, gcs_options)


def test_of_writers_that_race_for_a_name_one_wins(gcs_uri: str, gcs_options: dict[str, Any]) -> None:
    stores = [open_store(gcs_uri, gcs_options) for _ in range(WRITERS)]
    assert all(isinstance(store, GcsStore) for store in stores)
    probe_create_only(stores[0], clock=SystemClock())
    with ThreadPoolExecutor(WRITERS) as threads:
        for name in map(str, range(20)):
            tokens = [f"{name} of {number}".encode() for number in range(WRITERS)]
            results = [*threads.map(lambda store, token, at=name: store.create(at, token), stores, tokens)]
            won = [token for token, result in zip(tokens, results, strict=True) if result is CreateResult.CREATED]
            assert won == [stores[0].read(name)]


def test_a_bucket_that_is_not_there_is_no_missing_object(gcs_options: dict[str, Any]) -> None:
    store = GcsStore("gs://no-such-bucket/root", gcs_options)
    for call in (lambda: store.read("a"), lambda: store.create("a", b""), lambda: [*store.list("")]):
        with pytest.raises(StoreError, match="the bucket is not there") as caught:
            call()
        assert type(caught.value) is StoreError


def test_a_large_object_goes_in_parts(gcs_uri: str, gcs_options: dict[str, Any]) -> None:
    store = GcsStore(gcs_uri, gcs_options)
    data = bytes(range(256)) * (20 * 2**20 // 256)
    store.put("large", data)
    assert store.read("large") == data
