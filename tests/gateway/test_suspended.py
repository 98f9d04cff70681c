"""A gateway that was suspended for an hour, and wakes: what others did meanwhile is what it goes on with."""

from __future__ import annotations

import uuid
from contextlib import closing

import sparklog.gateway
from sparklog import Admin, NewTopic, TopicPartition
from sparklog.log.cluster import open_cluster
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.gateway.test_fetch_sessions import sessioned
from tests.gateway.test_idempotence import numbered, sent
from tests.gateway.test_server import Wire, ends, fetched, fetching, produce, produced, values

HOUR_MS = 3_600_000
MANY = 130
"""More commits than lie between two checkpoints."""


def test_a_gateway_that_wakes_after_an_hour_goes_on_with_what_others_did():
    store = MemoryStore(f"memory://suspended-{uuid.uuid4().hex}")
    clock = ManualClock()
    Admin(open_cluster(store)).create_topics([NewTopic("jobs", 1)])
    nothing = {**fetching(0), "topics": []}
    with (
        sparklog.gateway.serve(open_cluster(store, clock=clock)) as asleep,
        sparklog.gateway.serve(open_cluster(store)) as awake,
        closing(Wire(asleep)) as first,
        closing(Wire(awake)) as second,
    ):
        assert sent(first, b"0", sequence=0) == 0
        found = first.call("Fetch", 12, sessioned(fetching(0), 0, 0))
        session = found["session_id"]
        assert values(fetched(found)["records"]) == [b"0"]
        # its client moves to the other one
        assert sent(second, b"0", sequence=0) == 0
        for number in range(1, MANY):
            assert sent(second, b"%d" % number, sequence=number) == number
        clock.advance(HOUR_MS)
        # what the client had sent again through the sleeping one, and what another client sends
        assert sent(first, b"%d" % (MANY - 1), sequence=MANY - 1) == MANY - 1
        assert sent(first, b"gap", sequence=MANY + 1) == 45
        assert sent(first, b"next", sequence=MANY) == MANY
        (at,) = first.call("ListOffsets", 7, ends())["topics"][0]["partitions"]
        assert at["offset"] == MANY + 1
        found = first.call("Fetch", 12, sessioned(fetching(1), session, 1))
        assert values(fetched(found)["records"])[-1] == b"next"
        assert first.call("Fetch", 12, sessioned(nothing, session, 2))["session_id"] == session
    assert Admin(open_cluster(store)).end_offsets([TopicPartition("jobs", 0)]) == {TopicPartition("jobs", 0): MANY + 1}


def test_a_gateway_that_wakes_does_not_write_to_the_topic_that_came_after():
    store = MemoryStore(f"memory://suspended-{uuid.uuid4().hex}")
    clock = ManualClock()
    admin = Admin(open_cluster(store))
    admin.create_topics([NewTopic("jobs", 2)])
    with sparklog.gateway.serve(open_cluster(store, clock=clock)) as servers, closing(Wire(servers)) as client:
        assert sent(client, b"a", sequence=0) == 0
        (old,) = client.call("Metadata", 12, {"topics": [{"name": "jobs"}]})["topics"]
        admin.delete_topics(["jobs"])
        admin.create_topics([NewTopic("jobs", 1)])
        clock.advance(HOUR_MS)
        found = fetched(client.call("Fetch", 13, fetching(1, topic_id=old["topic_id"])))
        assert found["error_code"] == 100
        answer = produced(client.call("Produce", 9, produce(numbered(b"lost", sequence=1), partition=1)))
        assert answer["error_code"] == 3
