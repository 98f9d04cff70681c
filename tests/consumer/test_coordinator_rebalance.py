"""Members that come and go: what listeners are told, what goes on meanwhile, what of what was read ahead."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import ExitStack
from itertools import islice, product
from typing import Any

import pyarrow as pa
import pytest

from sparklog.errors import (
    FencedInstanceIdError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidConfigurationError,
    StoreUnavailableError,
    WakeupError,
)
from sparklog.groups.assignors import Assignor, RangeAssignor
from sparklog.log import Cluster
from sparklog.model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from sparklog.storage import MemoryStore
from tests.consumer.group_support import FAST, Gate, Listener, Member, Outage, joined, run
from tests.consumer.support import LONG_MS, a_cluster, a_consumer, send, tp, until, with_topic

LONG_SESSION_MS = 60_000


def a_topic(partitions: int = 2, letters: str = "") -> Cluster:
    """Each partition holds the same letters."""
    cluster = with_topic(a_cluster(), partitions=partitions)
    for partition in range(partitions if letters else 0):
        send(cluster, letters, partition=partition)
    return cluster


# What a listener is told


def test_only_what_moves_is_revoked_and_a_member_that_leaves_gives_back_all_it_had():
    cluster = a_topic(4)
    with Member(cluster, "t") as a:
        joined(a, count=4)
        b = Member(cluster, "t")
        joined(a, b, count=4)
        kept = a.numbers
        moved = b.numbers
        assert a.listener.calls == [("assigned", [0, 1, 2, 3]), ("revoked", moved)]
        assert b.listener.calls == [("assigned", moved)]
        b.close()
        assert b.listener.calls == [("assigned", moved), ("revoked", moved)]
        joined(a, count=4)
        assert a.listener.calls[2:] == [("assigned", moved)]
        a.consumer.unsubscribe()
        assert a.listener.calls[3:] == [("revoked", [0, 1, 2, 3])]
        assert sorted(kept + moved) == [0, 1, 2, 3]
    assert a.listener.threads == b.listener.threads == {"MainThread"}


def test_a_member_that_is_given_nothing_is_told_nothing():
    """What was written for members that are told all they have, as ``seek_to_beginning(*assigned)``, would mean every
    partition where nothing was assigned."""
    cluster = a_topic(1)
    with Member(cluster, "t") as a, Member(cluster, "t") as b:
        joined(a)
        run(lambda: {a.consumer.group_metadata().generation_id, b.consumer.group_metadata().generation_id} == {2}, a, b)
        joined(a, b)
        assert all(partitions for member in (a, b) for _, partitions in member.listener.calls)


def test_a_listener_is_called_inside_poll_alone_and_until_then_nothing_moves():
    cluster = a_topic(2)
    with Member(cluster, "t") as a, Member(cluster, "t") as b:
        joined(a, count=2)
        b.poll()
        until(lambda: a.consumer.group_metadata().generation_id == 2)
        a.consumer.commit()
        a.consumer.committed(tp())
        assert a.listener.calls == [("assigned", [0, 1])]
        b.poll(100)
        assert (a.numbers, b.numbers) == ([0, 1], [])
        joined(a, b, count=2)


@pytest.mark.parametrize("strategy", [None, "range"], ids=["cooperative", "eager"])
def test_no_poll_waits_for_the_commit_before_partitions_are_given_up(strategy: str | None):
    """✗ ``poll(0)`` stands still for as long as the offset table does, up to ``default_api_timeout_ms``; or goes on,
    and returns records of what is given up, which nobody commits any more; or keeps them, where the others need the
    room.

    Source: Kafka ``ConsumerCoordinator.onJoinPrepare``.
    """
    gate = Gate(MemoryStore())
    cluster = with_topic(a_cluster(gate), partitions=2)
    settings: dict[str, Any] = {
        "partition_assignment_strategy": strategy,
        "session_timeout_ms": LONG_SESSION_MS,
        "default_api_timeout_ms": LONG_MS,
        "auto_commit_interval_ms": 3_600_000,
        "fetch_max_bytes": 1,
    }
    with Member(cluster, "t", **settings) as a, Member(cluster, "t", **settings) as b:
        joined(a, count=2)
        for partition in (0, 1):
            send(cluster, "ab", partition=partition)
        run(lambda: len(a.seen) == 4, a)
        gate.shut()
        run(gate.waiting.is_set, a, b)
        for text, partition in product("cd", (0, 1)):
            send(cluster, text, partition=partition)
        kept_count = 1 if strategy is None else 0
        until(lambda: a.poll() >= 0 and len(a.seen) == 4 + 2 * kept_count)
        for _ in range(5):
            a.poll(2)
        assert len({record.partition for record in a.seen[4:]}) == kept_count
        assert a.listener.calls == [("assigned", [0, 1])]
        gate.open()
        run(lambda: len(a.numbers) == len(b.numbers) == 1, a, b)
        run(lambda: len(a.seen) + len(b.seen) == 8, a, b)
        assert sorted(a.text + b.text) == [*"aabbccdd"]  # the heir goes on where the other stood


def test_what_an_interrupted_poll_was_handed_is_taken_up_by_the_next(monkeypatch: pytest.MonkeyPatch):
    """✗ The group takes its partitions for handed over, and nobody ever reads them."""
    with Member(with_topic(a_cluster(), "ab"), "t") as member:
        coordinator = member.consumer._runtime.coordinator
        assert coordinator is not None
        with monkeypatch.context() as patched:
            patched.setattr(coordinator._changes, "add", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run(lambda: False, member)
        assert not member.numbers
        run(lambda: member.text == "ab", member)
        assert member.listener.calls == [("assigned", [0])]


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_who_names_an_eager_assignor_gives_up_all_before_it_gets_anything():
    cluster = a_topic(4)
    eager: dict[str, Any] = {"partition_assignment_strategy": "range", "session_timeout_ms": LONG_SESSION_MS}
    with Member(cluster, "t", **eager) as a, Member(cluster, "t", **eager) as b:
        joined(a, count=4)
        joined(a, b, count=4)
        assert a.listener.calls == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3]), ("assigned", a.numbers)]
        assert b.listener.calls == [("assigned", b.numbers)]
        before = b.numbers
        a.close()
        joined(b, count=4)
        assert b.listener.calls[1:] == [("revoked", before), ("assigned", [0, 1, 2, 3])]


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [
        "cooperative-sticky",
        "sticky",
        ["roundrobin"],
        "range,cooperative-sticky",
        ["org.apache.kafka.clients.consumer.RangeAssignor"],
        RangeAssignor,
        [RangeAssignor()],
    ],
)
def test_assignors_are_named_as_in_kafka_or_given(strategy: object):
    cluster = a_topic(3)
    with (
        Member(cluster, "t", partition_assignment_strategy=strategy) as a,
        Member(cluster, "t", partition_assignment_strategy=strategy) as b,
    ):
        joined(a, b, count=3)


@pytest.mark.parametrize("strategy", ["best", ["range", "best"], [], 5, "", Assignor], ids=repr)
def test_what_is_no_assignor_is_refused_by_name(strategy: object):
    with pytest.raises(InvalidConfigurationError, match=r"partition_assignment_strategy=.*expected"):
        a_consumer(a_topic(), group_id="g", partition_assignment_strategy=strategy)


@pytest.mark.parametrize("group", ["g" * 201, "ü" * 40, "\ud800"], ids=["long", "long once encoded", "no text"])
def test_a_group_that_can_not_be_stored_is_refused_by_name(group: str):
    with pytest.raises(InvalidConfigurationError, match="group_id="):
        a_consumer(a_topic(), group_id=group)


def test_a_member_that_shares_no_assignor_is_told_what_the_others_use_at_each_poll():
    cluster = a_topic(2)
    with (
        Member(cluster, "t", partition_assignment_strategy="range") as a,
        Member(cluster, "t", partition_assignment_strategy="sticky") as b,
    ):
        joined(a, count=2)
        for _ in range(2):
            with pytest.raises(InconsistentGroupProtocolError, match=r"'g' assigns partitions by range; .* sticky"):
                b.poll(LONG_MS)
        joined(a, count=2)
        assert a.listener.calls == [("assigned", [0, 1])]


# Listeners that act


def test_a_listener_may_commit_what_it_gives_up_at_a_rebalance_and_at_the_end():
    cluster = a_topic(2, "abcd")

    def commit(partitions: Collection[TopicPartition]) -> None:
        positions = {
            partition: OffsetAndMetadata(a.consumer.position(partition), "by hand") for partition in partitions
        }
        a.consumer.commit(positions)

    a = Member(cluster, "t", enable_auto_commit=False, listener=Listener(revoked=commit))
    run(lambda: len(a.seen) == 8, a)
    with Member(cluster, "t", enable_auto_commit=False) as b:
        joined(a, b, count=2)
        a.close()
        joined(b, count=2)
        for partition in (tp(0), tp(1)):
            assert b.consumer.committed(partition, metadata=True) == OffsetAndMetadata(4, "by hand")
        assert b.seen == []


def test_a_listener_may_commit_when_the_consumer_unsubscribes():
    cluster = a_topic(1, "abcd")
    with Member(
        cluster, "t", enable_auto_commit=False, listener=Listener(revoked=lambda partitions: a.consumer.commit())
    ) as a:
        run(lambda: a.text == "abcd", a)
        a.consumer.unsubscribe()
        assert a.consumer.committed(tp()) == 4


def test_a_listener_may_commit_without_waiting_at_the_end_and_the_callback_is_called():
    cluster, told = a_topic(1, "abcd"), list[object]()
    revoked = Listener(revoked=lambda _: a.consumer.commit_async(callback=lambda offsets, error: told.append(error)))
    with Member(cluster, "t", enable_auto_commit=False, listener=revoked) as a:
        run(lambda: a.text == "abcd", a)
    assert told == [None]
    with a_consumer(cluster, group_id="g") as other:
        assert other.committed(tp()) == 4


def test_a_listener_may_seek_where_its_partitions_begin():
    cluster = a_topic(2, "abcd")

    def seek(partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            a.consumer.seek(partition, 3)

    with Member(cluster, "t", listener=Listener(assigned=seek)) as a:
        run(lambda: a.text == "dd", a)


def test_a_listener_may_ask_for_positions_and_what_is_committed():
    cluster = a_topic(2, "abcd")
    found: list[tuple[int, int | None]] = []

    def ask(partitions: Collection[TopicPartition]) -> None:
        found.extend((a.consumer.position(each), a.consumer.committed(each)) for each in partitions)

    with Member(cluster, "t", auto_offset_reset="latest", listener=Listener(assigned=ask)) as a:
        joined(a, count=2)
        run(lambda: found, a)
        assert found == [(4, None), (4, None)]


def fail(partitions: Collection[TopicPartition]) -> None:
    raise RuntimeError("no")


def test_what_a_listener_raises_poll_raises_and_the_change_is_made_all_the_same():
    cluster = a_topic(2, "ab")
    with Member(cluster, "t", listener=Listener(assigned=fail, revoked=fail)) as a, Member(cluster, "t") as b:
        with pytest.raises(RuntimeError, match="no"):
            a.poll(LONG_MS)
        assert a.numbers == [0, 1]
        run(lambda: len(a.seen) == 4, a)
        with pytest.raises(RuntimeError, match="no"):
            run(lambda: False, a, b)
        assert len(a.numbers) == 1
        joined(a, b, count=2)
        with pytest.raises(RuntimeError, match="no"):
            a.close()
        joined(b, count=2)


def test_a_listener_that_fails_when_partitions_are_lost_does_not_keep_them():
    cluster = a_topic(1, "ab")
    outage = Outage(MemoryStore())
    cluster = with_topic(outage.cluster, "ab")
    with Member(cluster, "t", session_timeout_ms=300, listener=Listener(lost=fail)) as a:
        run(lambda: a.text == "ab", a)
        outage.is_on = True
        with pytest.raises(RuntimeError, match="no"):
            until(lambda: not _quietly(a))
        assert a.numbers == []
        outage.is_on = False
        run(lambda: a.numbers == [0], a)


def _quietly(member: Member) -> bool:
    """Poll; what the store can't do is passed over. True: it goes on."""
    try:
        member.poll(10)
    except RuntimeError as error:
        if str(error) == "no":
            raise
    except Exception:
        pass
    return True


# What goes on meanwhile


def test_partitions_that_stay_are_read_while_others_wait_to_move():
    cluster = a_topic(2)
    sticky: dict[str, Any] = {"partition_assignment_strategy": "cooperative-sticky"}
    with Member(cluster, "t", **sticky) as a, Member(cluster, "t", **sticky) as b:
        joined(a, b, count=2)
        with Member(cluster, "t", **sticky) as c:  # gets nothing, and makes a generation
            run(lambda: c.consumer.group_metadata().generation_id > 0, c)  # neither a nor b polls
            for member in (a, b):
                send(cluster, "x", partition=member.numbers[0])
                run(lambda member=member: member.text == "x", member)  # type: ignore[misc]
            before = len(a.listener.calls)
            run(lambda: c.consumer.group_metadata()[1] == a.consumer.group_metadata()[1], a, b, c)
            assert len(a.listener.calls) == before


def test_pauses_and_seeks_of_what_stays_outlive_a_rebalance():
    cluster = a_topic(4, "abcd")
    with Member(cluster, "t") as a:
        run(lambda: len(a.seen) == 16, a)
        a.consumer.pause(*a.consumer.assignment())
        for number in range(4):
            a.consumer.seek(tp(number), number)
        with Member(cluster, "t") as b:
            joined(a, b, count=4)
            assert a.consumer.paused() == a.consumer.assignment()
            assert [a.consumer.position(tp(number)) for number in a.numbers] == a.numbers
            left = [(number, offset) for number in b.numbers for offset in range(number, 4)]  # as a stood there
            run(lambda: sorted((record.partition, record.offset) for record in b.seen) == left, a, b)
            del a.seen[:]
            kept = a.numbers[1]
            a.consumer.resume(tp(kept))
            run(lambda: a.text == "abcd"[kept:], a)


def test_what_was_read_ahead_of_a_partition_that_moved_is_not_returned_any_more():
    cluster = a_topic(2, "abcdefgh")
    with Member(cluster, "t", max_poll_records=1) as a:
        run(lambda: a.seen, a)
        a.consumer.pause(tp(0), tp(1))  # keeps what was read ahead
        until(lambda: buffered(a) == 15)
        with Member(cluster, "t", max_poll_records=1) as b:
            joined(a, b, count=2)
            assert buffered(a) in (7, 8)
            a.consumer.resume(tp(a.numbers[0]))
            run(lambda: len(a.seen + b.seen) == 16, a, b)
            for partition in (0, 1):
                found = [record.offset for record in a.seen + b.seen if record.partition == partition]
                assert found == [*range(8)]


def buffered(member: Member) -> int:
    fetch_state = member.consumer._runtime.fetch_state
    with fetch_state.lock:
        return sum(state.buffered_count for state in fetch_state.assignment)


def test_iteration_goes_on_over_rebalances_and_gives_each_record_once():
    cluster = a_topic(2, "abcdefgh")
    a = a_consumer(cluster, "t", group_id="g", max_poll_records=3, consumer_timeout_ms=200, **FAST)
    seen: list[ConsumerRecord] = []
    while len(seen) < 4:  # iteration is begun anew where a busy machine let it end
        seen += islice(a, 1)
    with a, Member(cluster, "t") as b:
        b.poll()
        until(lambda: a.group_metadata().generation_id == 2)

        def are_all_seen() -> bool:
            for record in a:
                seen.append(record)
                b.poll()
            return len(seen) + len(b.seen) == 16

        run(are_all_seen, b)
        assert sorted((r.partition, r.offset) for r in seen + b.seen) == [(p, o) for p in (0, 1) for o in range(8)]
        assert len(b.seen) > 0


def test_batches_are_read_by_groups():
    cluster = a_topic(2, "abcd")
    with Member(cluster, "t") as a, Member(cluster, "t") as b:
        found: list[pa.RecordBatch] = []
        while sum(batch.num_rows for batch in found) < 8:
            found += a.consumer.poll_batches(LONG_MS).values()
        b.poll()
        until(lambda: a.consumer.poll_batches(2) == b.consumer.poll_batches(2) == {} and len(b.numbers) == 1)
        assert b.consumer.position(tp(b.numbers[0])) == 4


@pytest.mark.slow
def test_a_member_that_can_read_nothing_still_gives_up_what_others_are_to_have():
    memory = MemoryStore()
    outage = Outage(memory)
    outage.path = "topics/"
    cluster = with_topic(a_cluster(memory), partitions=2)
    with Member(outage.cluster, "t", max_poll_interval_ms=500) as a, Member(cluster, "t") as b:
        joined(a, count=2)
        outage.is_on = True
        b.poll()
        began = time.monotonic()
        while not b.numbers or time.monotonic() - began < 0.7:
            with pytest.raises(StoreUnavailableError):
                a.poll(LONG_MS)
            b.poll()
            assert time.monotonic() - began < LONG_MS / 1000
        assert [call for call, _ in a.listener.calls] == ["assigned", "revoked"]


# Other subscriptions


def test_subscribing_to_other_topics_gives_up_the_old_ones_and_keeps_what_stays():
    cluster = with_topic(with_topic(with_topic(a_cluster(), "ab"), "cd", topic="u"), "ef", topic="v")
    with Member(cluster, "t", "u") as a:
        run(lambda: sorted(a.text) == [*"abcd"], a)
        a.consumer.subscribe(["u", "v"], listener=a.listener)
        assert a.consumer.subscription() == {"u", "v"}
        run(lambda: sorted(a.text) == [*"abcdef"], a)
        assert a.consumer.assignment() == {tp(topic="u"), tp(topic="v")}
        assert a.listener.calls == [("assigned", [0, 0]), ("revoked", [0]), ("assigned", [0])]
        assert a.consumer.committed(tp()) == 2
        a.consumer.subscribe(["t"], listener=a.listener)
        send(cluster, "gh")
        run(lambda: a.text.endswith("gh"), a)
        assert a.consumer.assignment() == {tp()}


def test_members_may_subscribe_to_different_topics():
    cluster = with_topic(with_topic(a_cluster(), "ab", partitions=2), "cd", topic="u")
    with Member(cluster, "t") as a, Member(cluster, "t", "u") as b:
        run(lambda: sorted(a.text + b.text) == [*"abcd"] and len(a.numbers) == 1, a, b)
        assert tp(topic="u") in b.consumer.assignment()


def test_who_unsubscribes_leaves_and_comes_back_under_another_id():
    cluster = a_topic(2)
    with Member(cluster, "t", session_timeout_ms=LONG_SESSION_MS) as a, Member(cluster, "t") as b:
        joined(a, b, count=2)
        first_id = a.id
        a.consumer.unsubscribe()
        assert a.consumer.group_metadata()[1:3] == (-1, "")
        joined(b, count=2)
        with pytest.raises(IllegalStateError, match="subscribe to topics"):
            a.poll()
        a.consumer.subscribe(["t"], listener=a.listener)
        joined(a, b, count=2)
        assert a.id != first_id
        a.consumer.unsubscribe()
        a.consumer.assign([tp()])
        assert a.consumer.position(tp()) == 0


# Static members


def static(cluster: Cluster, instance_id: str, **settings: Any) -> Member:
    return Member(cluster, "t", group_instance_id=instance_id, **{"session_timeout_ms": LONG_SESSION_MS, **settings})


def test_a_static_member_that_comes_back_gets_what_it_had_and_nobody_else_notices():
    cluster = a_topic(4)
    with static(cluster, "i") as a, static(cluster, "j") as b:
        joined(a, b, count=4)
        mine, calls = a.numbers, [*b.listener.calls]
        a.close()
        assert a.listener.calls[-1] == ("revoked", mine)
        with static(cluster, "i") as again:
            run(lambda: again.numbers == mine, again, b)
            assert b.listener.calls == calls
            again.consumer.commit()


def test_of_two_that_use_one_instance_id_the_older_is_fenced_for_good():
    cluster = a_topic(2, "ab")
    with static(cluster, "i") as old:
        run(lambda: len(old.seen) == 4, old)
        with static(cluster, "i") as young:
            with pytest.raises(FencedInstanceIdError, match="'i' of group 'g' was taken over"):
                run(lambda: False, old, young)
            assert old.listener.calls[1:] == [("lost", [0, 1])]
            for _ in range(3):
                with pytest.raises(FencedInstanceIdError):
                    old.poll()
                with pytest.raises(FencedInstanceIdError):
                    old.consumer.commit({tp(): OffsetAndMetadata(1)})
            joined(young, count=2)
            old.close()
            send(cluster, "c")
            run(lambda: "c" in young.text, young)
            young.consumer.commit()


# Waiting


def test_a_wakeup_ends_a_poll_of_a_member_that_joins():
    cluster = a_topic(1)
    with Member(cluster, "t") as a:
        a.consumer.wakeup()
        with pytest.raises(WakeupError):
            a.poll(LONG_MS)
        joined(a, count=1)


@pytest.mark.slow
def test_many_members_share_as_many_partitions_and_leave_one_by_one():
    cluster = a_topic(12)
    with ExitStack() as stack:
        members = [stack.enter_context(Member(cluster, "t", heartbeat_interval_ms=200)) for _ in range(12)]
        joined(*members, count=12)
        while len(members) > 6:
            members.pop().close()
        joined(*members, count=12)
