"""Very many topics, very many members, large records, bytes of any kind, clocks that differ, two consoles at once."""

from __future__ import annotations

import pytest

from sparklog.admin import Admin
from sparklog.console import hash_password
from sparklog.groups.membership.member_state import MemberState
from sparklog.groups.membership.roster import Roster
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.observe import ClusterFigures, ClusterWatch, TopicFigures
from sparklog.observe.figures import PartitionFigures
from tests.console.support import a_cluster, a_topic, console, csrf_of, produce
from tests.console.test_pages import assert_harmless, ok, text_of
from tests.observe.support import watched
from tests.support import T0_MS

HOUR_MS = 3_600_000
ALL_BYTES = bytes(range(256))


def topics(count: int) -> ClusterFigures:
    partition = PartitionFigures(log_start_offset=0, log_end_offset=9, record_count=9)
    found = tuple(
        TopicFigures(
            name=f"t{number:05}",
            topic_id=str(number),
            partitions=(partition,),
            delta_version=3,
            files_version=3,
            commit_ms=T0_MS,
            checkpoint_version=-1,
            unsequenced_count=0,
        )
        for number in range(count)
    )
    return ClusterFigures(cluster_id="c", uri="memory://", now_ms=T0_MS, took_ms=5, topics=found)


@pytest.mark.slow
def test_ten_thousand_topics_make_pages_of_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = topics(10_000)
    monkeypatch.setattr(ClusterWatch, "look", lambda watch, **options: figures)
    with console(a_cluster()) as client:
        page = ok(client, "/")
        assert page.count('<th scope="row"') == 100
        assert "page 1 of 100, 10,000 topics" in text_of(page)
        assert len(page) < 100_000
        assert 'href="/topics/t09950"' in ok(client, "/?page=100")
        assert ok(client, "/?q=t0999").count('<th scope="row"') == 10


@pytest.mark.slow
def test_a_group_of_five_hundred_members_is_shown_whole() -> None:
    w = watched()
    w.append(w.topic("t", num_partitions=4), "a")
    Admin(w.cluster).alter_group_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(0)})
    roster = Roster(w.cluster.store, w.clock, "g", heartbeat_interval_ms=3_000)
    for number in range(500):
        roster.write_state(
            MemberState(
                member_id=f"m{number:03}",
                instance_id=None,
                client_id="<b>",
                host="h",
                topics=("t",),
                assignors=("range",),
                session_timeout_ms=45_000,
                generation=0,
                claims=frozenset(),
            )
        )
    with console(w.cluster) as client:
        assert "g active 500 1" in text_of(ok(client, "/"))
        page = ok(client, "/group?id=g")
        assert "500 members" in text_of(page)
        assert "m000" in page
        assert "m499" in page
        assert_harmless(page)


@pytest.mark.slow
def test_a_record_of_a_mebibyte_is_cut_in_lists_and_whole_on_its_page() -> None:
    cluster = a_cluster()
    a_topic(cluster)
    value = b'{"v": "' + b"x" * (1_048_576 - 64) + b'"}'
    produce(cluster, value, key=b"k")
    with console(cluster) as client:
        found = ok(client, "/topics/orders/records")
        assert len(found) < 30_000
        assert "1.0 MB" in found
        page = ok(client, "/topics/orders/records/0/0")
        assert "x" * (1_048_576 - 64) in page
        assert client.get("/topics/orders/records/0/0/raw").content == value


@pytest.mark.slow
def test_any_bytes_are_shown_in_lists_and_on_pages() -> None:
    cluster = a_cluster()
    a_topic(cluster)
    produce(cluster, ALL_BYTES, b"", None, key=ALL_BYTES, headers=[("h", ALL_BYTES), ("\x00<b>", None)])
    with console(cluster) as client:
        for path in ("/topics/orders/records", *(f"/topics/orders/records/0/{number}" for number in range(3))):
            assert_harmless(ok(client, path))
        for how in ("json", "protobuf", "text", "hex"):
            assert_harmless(ok(client, f"/topics/orders/records/0/0?decode={how}"))
        assert client.get("/topics/orders/records/0/0/raw?part=key").content == ALL_BYTES
        assert client.get("/api/topics/orders/records").status_code == 200


def test_records_and_commits_of_a_clock_that_goes_before_ours_are_told() -> None:
    w = watched()
    w.append(w.topic("orders"), "a", timestamp_ms=T0_MS + 3 * HOUR_MS)
    Admin(w.cluster).alter_group_offsets("g", {TopicPartition("orders", 0): OffsetAndMetadata(0)})
    w.clock.shift_wall(-HOUR_MS)
    with console(w.cluster) as client:
        page = text_of(ok(client, "/"))
        assert "4 h ahead" in page
        assert "g empty 0 1 0.0 s" in page  # nobody waits for a record of the future
        assert ok(client, "/topics/orders")
        assert ok(client, "/group?id=g")


@pytest.mark.slow
def test_two_consoles_at_once_see_what_the_other_did_and_take_no_tokens_of_it() -> None:
    cluster = a_cluster()
    a_topic(cluster)
    produce(cluster, b"a")
    users = {"ann": hash_password("pw")}
    login = ("ann", "pw")
    with (
        console(cluster, allow_writes=True, users=users) as one,
        console(cluster, allow_writes=True, users=users) as two,
    ):
        token = csrf_of(one.get("/topics/orders", auth=login).text)
        fields = {"csrf": token, "name": "retention.ms", "value": "5000"}
        assert two.post("/topics/orders/settings", data=fields, auth=login).status_code == 403
        assert one.post("/topics/orders/settings", data=fields, auth=login).status_code == 200
        assert "5000" in two.get("/topics/orders", auth=login).text
        other = {**fields, "csrf": csrf_of(two.get("/topics/orders", auth=login).text), "value": "6000"}
        assert two.post("/topics/orders/settings", data=other, auth=login).status_code == 200
        for client in (one, two):
            assert "6000" in client.get("/topics/orders", auth=login).text
            assert "orders" in client.get("/", auth=login).text
    assert Admin(cluster).describe_configs(["orders"])["orders"]["retention.ms"].value == 6_000
