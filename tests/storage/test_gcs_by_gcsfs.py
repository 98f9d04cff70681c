"""Google Cloud Storage by its JSON API, on a server that nobody here wrote."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparklog.clock import SystemClock
from sparklog.storage import CreateResult, FsspecStore, ObjectStore, open_store, probe_create_only
from sparklog.testing.store_contract import StoreContract

pytestmark = [
    pytest.mark.s3,
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),  # gcsfs hands bytes to aiohttp
]
WRITERS = 8


@pytest.mark.deep
class TestGcsByGcsfs(StoreContract):
    @pytest.fixture
    def store(self, gcs_uri: str, gcsfs_options: dict[str, Any]) -> ObjectStore:
        return open_store(gcs_uri, gcsfs_options)


def test_of_writers_that_race_for_a_name_one_wins(gcs_uri: str, gcsfs_options: dict[str, Any]) -> None:
    stores = [open_store(gcs_uri, gcsfs_options) for _ in range(WRITERS)]
    assert all(isinstance(store, FsspecStore) for store in stores)
    probe_create_only(stores[0], clock=SystemClock())
    with ThreadPoolExecutor(WRITERS) as threads:
        for name in map(str, range(20)):
            tokens = [f"{name} of {number}".encode() for number in range(WRITERS)]
            results = [*threads.map(lambda store, token, at=name: store.create(at, token), stores, tokens)]
            won = [token for token, result in zip(tokens, results, strict=True) if result is CreateResult.CREATED]
            assert won == [stores[0].read(name)]
