"""L17 on S3: a prefix that is emptied and used again, or set back, under a producer that wakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sparklog.errors import StoreReplacedError
from sparklog.log import Cluster, create_topic, open_cluster
from sparklog.storage import open_store
from sparklog.testing import ManualClock
from tests.support import a_writer, append, contents

pytestmark = pytest.mark.s3


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def opened(uri: str, options: Mapping[str, Any], clock: ManualClock) -> Cluster:
    return open_cluster(uri, storage_options=options, clock=clock)


@pytest.mark.parametrize("is_set_back", [True, False], ids=["set back", "used again"])
def test_a_prefix_that_was_replaced_stays_whole(
    s3_uri: str, s3_options: Mapping[str, Any], clock: ManualClock, is_set_back: bool
) -> None:
    cluster = opened(s3_uri, s3_options, clock)
    create_topic(cluster.topic_log("t"), "t")
    sleeper = a_writer(cluster.topic_log("t"))
    append(sleeper, "0")
    store = open_store(s3_uri, s3_options)
    backup = {found.path: store.read(found.path) for found in store.list("")}
    for number in range(3):
        append(sleeper, f"later {number}")
    store.delete([found.path for found in store.list("")])
    if is_set_back:
        for path, data in backup.items():
            store.put(path, data)
    else:
        create_topic(opened(s3_uri, s3_options, clock).topic_log("t"), "t")
    clock.advance(60_001)

    for _ in range(2):
        with pytest.raises(StoreReplacedError):
            append(sleeper, "ghost")

    new = opened(s3_uri, s3_options, clock)
    writer = a_writer(new.topic_log("t"))
    for number in range(10):
        append(writer, f"new {number}")
    values = [value for _, value in contents(new.topic_log("t"))[0]]
    assert values == ["0"] * is_set_back + [f"new {number}" for number in range(10)]
    for one in (store, cluster.store, new.store):
        one.close()
