"""Ctrl-C at any moment of a consumer's calls: what nobody was handed is in no position, and is read again."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from sparklog import ConsumerRebalanceListener, TopicPartition
from tests.consumer.group_support import FAST
from tests.consumer.support import LONG_MS, a_cluster, a_consumer, take, text, tp, until, with_topic
from tests.interrupting import POINTS, interrupt, numbers

LETTERS = "abcdefghijklmnopqrstuvwxyz"


STRIDE = {"instruction": 37, "call": 3}
"""Every so many points: a poll has thousands."""


@pytest.mark.parametrize("call", ["poll", "poll_batches"])
@pytest.mark.parametrize("point", POINTS)
def test_an_interrupted_poll_moves_no_position_and_the_next_returns_its_records(call: str, point: str) -> None:
    with a_consumer(with_topic(a_cluster(), LETTERS * 40)) as consumer:
        consumer.assign([tp()])
        position = len(take(consumer, 1, max_records=1))
        poll = getattr(consumer, call)
        for at in numbers():
            was_reached = interrupt(lambda: poll(LONG_MS, max_records=2), at=STRIDE[point] * at, point=point)
            if not was_reached:
                position += 2
            assert consumer.position(tp()) == position
            [record] = take(consumer, 1, max_records=1)
            assert record.offset == position
            position += 1
            if not was_reached:
                break
        assert at > 5


def test_close_after_an_interrupted_poll_commits_only_what_earlier_polls_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = with_topic(a_cluster(), LETTERS)
    consumer = a_consumer(cluster, "t", group_id="g", **FAST)
    first = text(take(consumer, 3, max_records=3))
    with monkeypatch.context() as patched:
        draining = consumer._runtime.record_buffer
        patched.setattr(draining, "_intercepted", interrupting)
        with pytest.raises(KeyboardInterrupt):
            until(lambda: bool(consumer.poll(LONG_MS, max_records=5)))
    consumer.close()
    with a_consumer(cluster, "t", group_id="g", **FAST) as other:
        assert other.committed(tp()) == len(first) == 3
        assert text(take(other, 1, max_records=1)) == "d"


def interrupting(found: object) -> object:
    raise KeyboardInterrupt


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("call", ["seek", "seek_to_beginning", "pause", "resume", "assign"])
def test_after_another_call_that_is_interrupted_anywhere_no_record_is_passed_over(call: str, point: str) -> None:
    with a_consumer(with_topic(a_cluster(), LETTERS, partitions=2)) as consumer:
        for at in numbers():
            consumer.assign([tp()])
            consumer.seek(tp(), 5)
            assert text(take(consumer, 1, max_records=1)) == "f"
            calls = {
                "seek": lambda: consumer.seek(tp(), 10),
                "seek_to_beginning": lambda: consumer.seek_to_beginning(tp()),
                "pause": lambda: consumer.pause(tp()),
                "resume": lambda: consumer.resume(tp()),
                "assign": lambda: consumer.assign([tp(), tp(1)]),
            }
            was_reached = interrupt(calls[call], at=STRIDE[point] * at, point=point)
            consumer.resume(tp())
            [record] = take(consumer, 1, max_records=1)
            assert record.value.decode() == LETTERS[record.offset]
            assert record.offset in {"seek": (6, 10), "seek_to_beginning": (6, 0)}.get(call, (6,))
            assert text(take(consumer, 1, max_records=1)) == LETTERS[record.offset + 1]
            if not was_reached:
                break


class Revocations(ConsumerRebalanceListener):
    """Counts the calls that give partitions up."""

    count = 0

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.count += 1

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        pass


def test_an_interrupted_unsubscribe_leaves_all_as_it_was_or_nothing_subscribed() -> None:
    """✗ The assignment is emptied and the topics stay subscribed: polls return nothing, without an error."""
    with a_consumer(with_topic(a_cluster(), LETTERS)) as consumer:
        uncalled = []
        for at in numbers():
            listener = Revocations()
            consumer.subscribe(["t"], listener=listener)
            assert text(take(consumer, 1, max_records=1)) == "a"
            was_reached = interrupt(consumer.unsubscribe, at=at, point="call")
            if consumer.subscription() is not None:
                assert text(take(consumer, 1, max_records=1)) == "b"
            consumer.unsubscribe()
            if not was_reached:
                break
            if not listener.count:
                uncalled.append(at)
        assert at > 20
        assert len(uncalled) <= 1  # between the end of the subscription and the call, nobody can know
