"""Committing: what is committed by default and by name, in which order, what is refused, and when it is automatic."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from sparklog.consumer import Consumer
from sparklog.errors import (
    CommitFailedError,
    CommitStateUnknownError,
    IllegalStateError,
    InvalidArgumentError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    SparklogError,
    StoreUnavailableError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from sparklog.log import Cluster
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.storage import MemoryStore
from tests.consumer.group_support import FAST, Gate, Member, Outage, commits, joined, run
from tests.consumer.support import LONG_MS, a_cluster, a_consumer, send, take, text, tp, until, with_topic

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def a_topic(*batches: str, partitions: int = 1) -> Cluster:
    return with_topic(a_cluster(), *batches, partitions=partitions)


def by_hand(cluster: Cluster, *topics: str, **settings: Any) -> Consumer:
    """A member that commits itself."""
    given = {"group_id": "g", "enable_auto_commit": False, **FAST, **settings}
    return a_consumer(cluster, *topics, **given)


def committed(cluster: Cluster, *partitions: int, group: str = "g") -> list[int | None]:
    """What the group has committed, as somebody outside of it sees it."""
    with by_hand(cluster, group_id=group) as consumer:
        return [consumer.committed(tp(partition)) for partition in partitions or (0,)]


# By default and by name


def test_the_positions_are_committed_by_default_and_a_successor_goes_on_there():
    cluster = a_topic("abcde")
    with by_hand(cluster, "t") as first:
        take(first, 3, max_records=3)
        first.commit()
        assert first.committed(tp()) == 3
        take(first, 1)
    assert committed(cluster) == [3]
    with by_hand(cluster, "t") as second:
        assert text(take(second, 2)) == "de"


def test_offsets_are_committed_by_name_with_metadata_and_a_leader_epoch():
    with by_hand(a_topic("abc"), "t") as consumer:
        take(consumer, 1)
        wanted = OffsetAndMetadata(2, "half way", 5)
        consumer.commit({tp(): wanted})
        assert consumer.committed(tp()) == 2
        assert consumer.committed(tp(), metadata=True) == wanted
        assert consumer.position(tp()) == 3
        consumer.commit({})
        assert consumer.committed(tp()) == 2


def test_nothing_is_committed_where_nothing_was_and_of_partitions_nobody_has():
    with by_hand(a_topic("a", partitions=2), "t") as consumer:
        consumer.commit()  # there are no positions yet
        assert consumer.committed(tp()) is None
        assert consumer.committed(tp(), metadata=True) is None
        assert consumer.committed(tp(7, "never-was")) is None


def test_anybody_may_ask_what_is_committed_for_a_partition_that_is_not_its_own():
    with Member(a_topic("ab", partitions=2), "t", enable_auto_commit=False) as a:
        run(lambda: a.text == "ab", a)
        a.consumer.commit()
        with Member(a.consumer._runtime.cluster, "t", enable_auto_commit=False) as b:
            joined(a, b, count=2)
            for member in (a, b):
                assert member.consumer.committed(tp(0)) == 2
                assert member.consumer.committed(tp(1)) == 0


def test_the_members_metadata_names_its_stay_and_its_generation():
    with by_hand(a_topic("a"), "t", group_instance_id="i", client_id="mine") as consumer:
        assert consumer.group_metadata()[:3] == ("g", -1, "")
        take(consumer, 1)
        group_id, generation_id, member_id, instance_id = consumer.group_metadata()
        assert (group_id, generation_id, instance_id) == ("g", 1, "i")
        assert member_id.startswith("i-")


# Callbacks


class Told:
    """A callback of commits."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[int], str]] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, offsets: Offsets, error: Exception | None) -> None:
        self.calls.append(([committed.offset for committed in offsets.values()], type(error).__name__))
        self.threads.add(threading.current_thread())


def test_asynchronous_commits_are_called_back_in_order_in_the_callers_thread():
    told = Told()
    with by_hand(a_topic("abcde"), "t") as consumer:
        take(consumer, 5)
        futures = [consumer.commit_async({tp(): OffsetAndMetadata(offset)}, told) for offset in (1, 4, 2)]
        for future in futures:
            future.result(LONG_MS / 1000)
        assert told.calls == []  # only inside a call
        assert consumer.committed(tp()) == 2
        assert told.calls == []
        consumer.poll()
        assert told.calls == [([1], "NoneType"), ([4], "NoneType"), ([2], "NoneType")]
        assert told.threads == {threading.current_thread()}


@pytest.mark.parametrize("call", ["poll", "commit", "commit_async", "unsubscribe", "close"])
def test_callbacks_are_called_inside(call: str):
    told = Told()
    with by_hand(a_topic("ab"), "t") as consumer:
        take(consumer, 2)
        consumer.commit_async(callback=told).result(LONG_MS / 1000)
        getattr(consumer, call)()
        assert told.calls == [([2], "NoneType")]


def test_callbacks_are_called_inside_a_poll_that_waits():
    with by_hand(a_topic("ab"), "t") as consumer:
        take(consumer, 2)
        consumer.commit_async(callback=lambda offsets, error: consumer.wakeup())
        with pytest.raises(WakeupError):
            consumer.poll(timeout_ms=LONG_MS)


def test_a_synchronous_commit_and_its_callbacks_follow_earlier_commits_if_it_fails():
    told = Told()
    with by_hand(a_topic("abc", partitions=2), "t") as consumer:
        take(consumer, 3)
        for offset in (1, 2):
            consumer.commit_async({tp(): OffsetAndMetadata(offset)}, told)
        with pytest.raises(OffsetMetadataTooLargeError):
            consumer.commit({tp(): OffsetAndMetadata(3, "x" * 4_097)})
        assert told.calls == [([1], "NoneType"), ([2], "NoneType")]
        consumer.commit({tp(): OffsetAndMetadata(3, "x" * 4_096)})


def test_what_goes_wrong_is_told_to_the_callback_and_the_future():
    told = Told()
    with by_hand(a_topic("abc"), "t") as consumer:
        take(consumer, 3)
        failed = consumer.commit_async({tp(): OffsetAndMetadata(3, "x" * 5_000)}, told)
        missing = consumer.commit_async({tp(9): OffsetAndMetadata(0)}, told)
        consumer.commit_async({tp(): OffsetAndMetadata(1)}, told)
        consumer.commit({tp(): OffsetAndMetadata(2)})
        assert [call[1] for call in told.calls] == ["OffsetMetadataTooLargeError", "CommitFailedError", "NoneType"]
        assert isinstance(failed.exception(), OffsetMetadataTooLargeError)
        assert isinstance(missing.exception(), CommitFailedError)


def test_a_callback_may_commit_again_and_its_errors_leave_the_call_it_runs_in():
    with by_hand(a_topic("abc"), "t") as consumer:
        take(consumer, 3)

        def again(offsets: Offsets, error: Exception | None) -> None:
            assert error is None
            consumer.commit({tp(): OffsetAndMetadata(3)})
            raise RuntimeError("enough")

        consumer.commit_async({tp(): OffsetAndMetadata(1)}, again).result(LONG_MS / 1000)
        with pytest.raises(RuntimeError, match="enough"):
            consumer.poll()
        assert consumer.committed(tp()) == 3
        consumer.poll()


def test_a_callback_that_raises_does_not_keep_a_closing_consumer_in_the_group():
    cluster = a_topic("ab", partitions=2)
    a, b = Member(cluster, "t", enable_auto_commit=False), Member(cluster, "t", session_timeout_ms=60_000)
    joined(a, b, count=2)

    def fail(offsets: Offsets, error: Exception | None) -> None:
        raise RuntimeError("no")

    a.consumer.commit_async(callback=fail)
    with pytest.raises(RuntimeError, match="no"):
        a.close()
    assert a.listener.calls[-1][0] == "revoked"
    joined(b, count=2)
    b.close()


def test_a_commit_can_not_be_cancelled_by_its_future():
    with by_hand(a_topic("ab"), "t") as consumer:
        take(consumer, 2)
        future: Future[Any] = consumer.commit_async()
        assert not future.cancel()
        consumer.commit({tp(): OffsetAndMetadata(1)})
        assert consumer.committed(tp()) == 1


# What is refused


@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        ({tp(): OffsetAndMetadata(-1)}, InvalidArgumentError),
        ({tp(): OffsetAndMetadata(0, "", -2)}, InvalidArgumentError),
        ({tp(): OffsetAndMetadata(0, "é" * 2_049)}, OffsetMetadataTooLargeError),
        ({tp(): 5}, TypeError),
        ({"t": OffsetAndMetadata(0)}, TypeError),
        ([tp()], TypeError),
    ],
    ids=repr,
)
def test_what_is_no_offset_is_refused_and_nothing_is_committed(offsets: Any, error: type[Exception]):
    with by_hand(a_topic("ab"), "t") as consumer:
        take(consumer, 2)
        with pytest.raises(error):
            consumer.commit(offsets)
        assert consumer.committed(tp()) is None


def test_partitions_of_others_are_not_committed_nor_is_anything_beside_them():
    cluster = a_topic(partitions=2)
    with Member(cluster, "t") as a, Member(cluster, "t") as b:
        joined(a, b, count=2)
        both = {tp(0): OffsetAndMetadata(0, "mine"), tp(1): OffsetAndMetadata(0, "mine")}
        for member in (a, b):
            with pytest.raises(CommitFailedError, match=r"t-[01] .*doesn't own it \(any more\) in group 'g'"):
                member.consumer.commit(both)
            assert member.consumer.committed(tp(member.numbers[0]), metadata=True) in (None, OffsetAndMetadata(0))


def test_while_it_joins_a_member_is_told_to_poll_first():
    with by_hand(a_topic("ab"), "t") as consumer:
        with pytest.raises(RebalanceInProgressError, match="group 'g' is rebalancing; poll, then try again"):
            consumer.commit({tp(): OffsetAndMetadata(1)})
        take(consumer, 1)
        consumer.commit({tp(): OffsetAndMetadata(1)})


def test_who_polls_too_seldom_leaves_and_may_not_commit_what_others_read_by_then():
    """Kafka: CommitFailedException; the next poll calls on_partitions_lost and joins again."""
    cluster = a_topic("abcd", partitions=2)
    slow = Member(cluster, "t", max_poll_interval_ms=300, enable_auto_commit=False)
    with slow, Member(cluster, "t", enable_auto_commit=False, auto_offset_reset="earliest") as other:
        joined(slow, other, count=2)
        mine, first_id = slow.numbers, slow.id
        joined(other, count=2)
        for _ in range(2):
            with pytest.raises(CommitFailedError, match="longer than max_poll_interval_ms"):
                slow.consumer.commit()
        with pytest.raises(CommitFailedError):
            slow.consumer.commit({tp(mine[0]): OffsetAndMetadata(0)})
        assert slow.numbers == mine  # the application hasn't been told yet
        slow.poll()
        assert slow.listener.calls[-1] == ("lost", mine)
        joined(slow, other, count=2)
        run(lambda: commits(slow), slow, other)
        assert slow.id != first_id


def test_partitions_assigned_by_hand_are_committed_only_while_the_group_is_empty():
    cluster = a_topic("abcd", partitions=2)
    with by_hand(cluster) as one, by_hand(cluster) as other:
        one.assign([tp(0)])
        other.assign([tp(0), tp(1)])
        take(one, 4)
        one.commit()
        assert other.committed(tp()) == 4
        other.commit({tp(): OffsetAndMetadata(1), tp(1): OffsetAndMetadata(0)})
        assert one.committed(tp()) == 1
        with Member(cluster, "t") as member:
            run(lambda: member.text == "bcd", member)
            for _ in range(2):
                with pytest.raises(CommitFailedError, match="group 'g' has members") as refused:
                    one.commit({tp(): OffsetAndMetadata(2)})
                assert isinstance(refused.value.__cause__, UnknownMemberIdError)
        one.commit({tp(): OffsetAndMetadata(3)})
        assert other.committed(tp()) == 3
        with Member(cluster, "t") as member:
            run(lambda: member.numbers, member)
        one.commit({tp(): OffsetAndMetadata(2)})  # they came and left, and nobody had noticed
        assert other.committed(tp()) == 2


def test_a_member_begins_at_offsets_that_were_committed_without_a_subscription():
    cluster = a_topic("ab")
    with by_hand(cluster) as consumer:
        consumer.commit({tp(): OffsetAndMetadata(1)})
        assert consumer.committed(tp()) == 1
    with by_hand(cluster, "t") as member:
        assert text(take(member, 1)) == "b"


@pytest.mark.parametrize("partition", [tp(1), tp(0, "nowhere")], ids=repr)
def test_what_is_not_there_has_no_offset(partition: TopicPartition):
    """Source: Kafka ``OffsetCommit``: UNKNOWN_TOPIC_OR_PARTITION."""
    with by_hand(a_topic("ab")) as consumer:
        with pytest.raises(UnknownTopicOrPartitionError, match=f"{partition.topic}-{partition.partition} wasn't"):
            consumer.commit({tp(): OffsetAndMetadata(1), partition: OffsetAndMetadata(1)})
        assert consumer.committed(tp()) is None


# Waiting


def test_a_wakeup_ends_the_wait_for_a_commit_and_the_next_commit_goes_on():
    outage = Outage(MemoryStore())
    with by_hand(with_topic(outage.cluster, "ab"), "t") as consumer:
        take(consumer, 2)
        outage.is_on = True
        timer = threading.Timer(0.02, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.commit({tp(): OffsetAndMetadata(1)})
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.committed(tp())
        outage.is_on = False
        consumer.commit()
        assert consumer.committed(tp()) == 2


def test_calls_that_wait_for_an_unreachable_store_time_out_and_nothing_is_given_up():
    store = MemoryStore()
    outage = Outage(store)
    with by_hand(with_topic(outage.cluster, "ab"), "t", default_api_timeout_ms=40) as consumer:
        take(consumer, 2)
        outage.is_on = True
        calls: list[Callable[[], object]] = [
            consumer.commit,
            lambda: consumer.commit(timeout_ms=10),
            lambda: consumer.committed(tp(), timeout_ms=10),
        ]
        for call in calls:
            with pytest.raises((KafkaTimeoutError, StoreUnavailableError)) as caught:
                call()
            assert isinstance(caught.value, SparklogError)
            assert caught.value.retriable or isinstance(caught.value, CommitStateUnknownError)
        told = Told()
        future = consumer.commit_async(callback=told)
        assert future.exception(LONG_MS / 1000) is not None
        outage.is_on = False
        until(lambda: consumer.committed(tp(), timeout_ms=LONG_MS) is None)
        consumer.commit(timeout_ms=LONG_MS)
        assert committed(a_cluster(store)) == [2]
        assert told.calls == [([2], "KafkaTimeoutError")]


def test_a_commit_not_begun_in_time_never_lands_and_one_that_had_begun_is_unknown():
    """✗ A commit times out, the application goes back to what it had committed before, and the commit lands."""
    gate = Gate(MemoryStore())
    with by_hand(with_topic(a_cluster(gate), "abc"), "t") as consumer:
        take(consumer, 3)
        consumer.commit({tp(): OffsetAndMetadata(1)})
        gate.shut()
        with pytest.raises(CommitStateUnknownError, match="is under way, and may still"):
            commit_until_it_begins(consumer, {tp(): OffsetAndMetadata(2)})
        assert gate.waiting.is_set()
        with pytest.raises(KafkaTimeoutError, match="and won't be") as late:
            consumer.commit({tp(): OffsetAndMetadata(3)}, timeout_ms=10)
        assert (type(late.value), late.value.retriable) == (KafkaTimeoutError, True)
        gate.open()
        assert consumer.committed(tp()) == 2


def commit_until_it_begins(consumer: Consumer, offsets: Offsets) -> None:
    """On a busy machine its turn may not have come when its time is over."""
    for timeout_ms in (50, 500):
        try:
            consumer.commit(offsets, timeout_ms=timeout_ms)
        except KafkaTimeoutError as error:
            if isinstance(error, CommitStateUnknownError):
                raise
    consumer.commit(offsets, timeout_ms=LONG_MS / 2)


def test_a_commit_that_is_done_as_its_time_ends_is_done():
    with by_hand(a_topic("ab"), "t") as consumer:
        take(consumer, 2)
        commits = consumer._runtime.commits_for("commit")
        committing = commits.commit({tp(): OffsetAndMetadata(1)})
        committing.result(LONG_MS / 1000)
        commits.give_up(committing, 5)


# Automatic commits


def test_what_a_poll_returned_is_committed_by_the_next_and_not_before():
    cluster = a_topic("abcd")
    with Member(cluster, "t", auto_commit_interval_ms=0, max_poll_records=2) as member:
        run(lambda: member.text == "ab", member)
        member.consumer.commit_async({}).result(LONG_MS / 1000)  # all before it is done
        assert committed(cluster) in ([None], [0])
        run(lambda: member.text == "abcd", member)
        until(lambda: committed(cluster) == [2])
        member.poll()
        until(lambda: committed(cluster) == [4])


@pytest.mark.parametrize("how", ["poll", "poll_batches", "iterate"])
def test_what_a_consumer_that_died_had_not_come_back_for_is_read_again(how: str):
    """The guarantee of at least once: a crash right after poll returned, before the next one."""
    cluster = a_topic("ab", "cd")
    first = a_consumer(cluster, "t", group_id="g", **FAST, auto_commit_interval_ms=0, max_poll_records=2)
    if how == "poll":
        until(lambda: first.poll() != {})
    elif how == "poll_batches":
        until(lambda: first.poll_batches(max_records=2) != {})
    else:
        assert [next(first).value, next(first).value] == [b"a", b"b"]
    first._close(LONG_MS, auto_commit=False)  # as a crash, but that it leaves at once
    with Member(cluster, "t") as second:
        run(lambda: second.text == "abcd", second)


def test_automatic_commits_keep_their_interval():
    cluster = a_topic("abcd")
    with Member(cluster, "t", auto_commit_interval_ms=3_600_000, max_poll_records=1) as member:
        run(lambda: member.text == "abcd", member)
        member.consumer.commit_async({}).result(LONG_MS / 1000)
        assert committed(cluster) in ([None], [0])
    assert committed(cluster) == [4]


def test_an_interval_that_ends_while_a_poll_waits_is_kept():
    cluster = a_topic("ab")
    with Member(cluster, "t", auto_commit_interval_ms=30) as member:
        run(lambda: member.text == "ab", member)

        def wait() -> None:
            with pytest.raises(WakeupError):
                member.consumer.poll(timeout_ms=LONG_MS)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: committed(cluster) == [2])
        member.consumer.wakeup()
        thread.join()


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
@pytest.mark.parametrize("auto", [True, False])
def test_the_positions_are_committed_at_the_end_if_that_is_automatic(end: str, auto: bool):
    cluster = a_topic("abc")
    with Member(cluster, "t", enable_auto_commit=auto, auto_commit_interval_ms=3_600_000) as member:
        run(lambda: member.text == "abc", member)
        getattr(member.consumer, end)()
        assert committed(cluster) == [3 if auto else None]


def test_a_commit_at_the_end_that_takes_too_long_is_told_as_what_it_is(caplog: pytest.LogCaptureFixture):
    """✗ "automatic commit failed: ", though it lands a moment later."""
    gate = Gate(MemoryStore())
    consumer = by_hand(with_topic(a_cluster(gate), "abc"), "t", enable_auto_commit=True)
    take(consumer, 3)
    gate.shut()
    consumer.close(timeout_ms=10)
    gate.open()
    told = r"were (not committed within [\d.]+ ms|neither read nor changed).*(won't be|may still be carried out)"
    assert re.search(told, caplog.text)


def test_a_block_that_ends_with_an_error_commits_nothing():
    """Source: kafka-python ``KafkaConsumer.__exit__``: nobody knows whether what was under way is processed."""
    cluster = a_topic("abc")

    def fail() -> None:
        with Member(cluster, "t") as member, member.consumer:
            run(lambda: member.text == "abc", member)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert committed(cluster) in ([None], [0])


def test_positions_of_what_is_taken_away_are_committed_before_another_reads_it():
    cluster = a_topic("abc", partitions=2)
    send(cluster, "xyz", partition=1)
    with Member(cluster, "t", auto_commit_interval_ms=3_600_000) as a:
        run(lambda: len(a.seen) == 6, a)
        with Member(cluster, "t") as b:
            joined(a, b, count=2)
            moved = b.numbers[0]
            assert b.consumer.position(tp(moved)) == 3
            assert b.seen == []
            assert a.listener.calls == [("assigned", [0, 1]), ("revoked", [moved])]


def test_partitions_assigned_by_hand_are_committed_automatically_also_at_the_end():
    cluster = a_topic("abc", partitions=2)
    with a_consumer(cluster, group_id="g", auto_commit_interval_ms=3_600_000, **FAST) as consumer:
        consumer.assign([tp(0)])
        take(consumer, 3)
        consumer.assign([tp(1)])
        assert consumer.committed(tp(0)) == 3


def test_asking_for_a_position_commits_nothing_and_takes_nothing_away():
    """What the last poll returned may still be under way."""
    cluster = a_topic("ab", partitions=2)
    send(cluster, "xy", partition=1)
    with Member(cluster, "t", auto_commit_interval_ms=0) as a:
        run(lambda: len(a.seen) == 4, a)
        a.poll()
        a.consumer.commit()
        send(cluster, "c")
        send(cluster, "z", partition=1)
        run(lambda: len(a.seen) == 6, a)
        b = Member(cluster, "t")
        b.poll()
        until(lambda: a.consumer.group_metadata().generation_id == 2)
        a.consumer.seek_to_beginning(tp(0))
        assert a.consumer.position(tp(0)) == 0
        a.consumer.seek(tp(0), 3)
        assert a.numbers == [0, 1]
        assert a.consumer.committed(tp(1)) == 2
        joined(a, b, count=2)
        b.close()


def test_failed_automatic_commits_do_not_end_a_poll():
    outage = Outage(MemoryStore())
    cluster = with_topic(outage.cluster, "ab")
    with Member(cluster, "t", auto_commit_interval_ms=0, default_api_timeout_ms=50) as member:
        run(lambda: member.text == "ab", member)
        outage.path, outage.is_on = "/offsets/", True
        for _ in range(10):
            member.poll(10)
        outage.is_on = False
        run(lambda: member.consumer.committed(tp(), timeout_ms=LONG_MS) == 2, member)


def test_a_closed_consumer_commits_nothing():
    consumer = by_hand(a_topic("a"), "t")
    consumer.close()
    for call in (consumer.commit, consumer.commit_async, consumer.group_metadata):
        with pytest.raises(IllegalStateError, match="closed"):
            call()
