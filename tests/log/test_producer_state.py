"""Epoch and counter rules of idempotent appends."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog.delta.actions import SetTransaction
from sparklog.errors import InvalidArgumentError, InvalidProducerEpochError, OutOfOrderSequenceError
from sparklog.log.producer_state import (
    MAX_COUNTER,
    MAX_PRODUCER_EPOCH,
    PRODUCER_EXPIRATION_MS,
    ProducerEntry,
    is_duplicate_commit,
    new_producer_id,
    producer_entry,
    producer_txn,
)

APPEND, DUPLICATE = "append", "duplicate"
KNOWN = ProducerEntry(producer_epoch=3, counter=7)


def decide(known, epoch, counter):
    try:
        duplicate = is_duplicate_commit(known, topic="orders", producer_id=9, producer_epoch=epoch, counter=counter)
    except (InvalidProducerEpochError, OutOfOrderSequenceError) as error:
        return type(error)
    return DUPLICATE if duplicate else APPEND


# Source: Kafka ProducerAppendInfo.checkSequence, with the counter of commits in place of sequences.
@pytest.mark.parametrize(
    ("rule", "known", "epoch", "counter", "expected"),
    [
        ("last + 1", KNOWN, 3, 8, APPEND),
        ("the newest again", KNOWN, 3, 7, DUPLICATE),
        ("an older one again", KNOWN, 3, 0, DUPLICATE),
        ("a gap", KNOWN, 3, 9, OutOfOrderSequenceError),
        ("an older epoch, whatever its counter", KNOWN, 2, 8, InvalidProducerEpochError),
        ("an older epoch from 0", KNOWN, 0, 0, InvalidProducerEpochError),
        ("a newer epoch starts at 0", KNOWN, 4, 0, APPEND),
        ("a much newer epoch starts at 0", KNOWN, MAX_PRODUCER_EPOCH, 0, APPEND),
        ("a newer epoch that starts later", KNOWN, 4, 1, OutOfOrderSequenceError),
        ("a newer epoch that goes on counting", KNOWN, 4, 8, OutOfOrderSequenceError),
        ("an unknown producer from 0", None, 0, 0, APPEND),
        ("an unknown producer at any counter", None, 5, 77, APPEND),
        ("the first after 0", ProducerEntry(producer_epoch=0, counter=0), 0, 1, APPEND),
        ("0 again", ProducerEntry(producer_epoch=0, counter=0), 0, 0, DUPLICATE),
    ],
)
def test_a_commit_follows_its_producers_last(rule, known, epoch, counter, expected):
    assert decide(known, epoch, counter) == expected, rule


@pytest.mark.parametrize(
    ("epoch", "counter", "message"),
    [
        (2, 8, "invalid producer epoch: topic=orders, producer_id=9, epoch=2, the topic has seen 3"),
        (3, 9, "out of order commit: topic=orders, producer_id=9, epoch=3, counter=9, expected=8"),
        (4, 1, "out of order commit: topic=orders, producer_id=9, epoch=4, counter=1, expected=0"),
    ],
)
def test_an_error_tells_what_was_seen_and_expected_and_asks_for_an_abort(epoch, counter, message):
    with pytest.raises((InvalidProducerEpochError, OutOfOrderSequenceError)) as caught:
        is_duplicate_commit(KNOWN, topic="orders", producer_id=9, producer_epoch=epoch, counter=counter)
    assert str(caught.value) == message
    assert caught.value.requires_abort
    assert not caught.value.retriable


@given(st.integers(0, MAX_PRODUCER_EPOCH), st.integers(0, MAX_COUNTER), st.integers(0, 2**63 - 1))
@example(MAX_PRODUCER_EPOCH, MAX_COUNTER, 2**63 - 1)
@example(0, 0, 0)
def test_epoch_and_counter_share_one_long_of_a_txn_action(epoch, counter, producer_id):
    entry = ProducerEntry(producer_epoch=epoch, counter=counter)
    txn = producer_txn(producer_id, entry, now_ms=5)
    assert 0 <= txn.version < 2**63
    assert txn.last_updated_ms == 5  # rule L7: it expires
    assert producer_entry({txn.app_id: txn}, producer_id) == entry


def test_a_newer_epoch_is_a_greater_number_so_that_the_newest_txn_counts():
    last = producer_txn(9, ProducerEntry(producer_epoch=3, counter=MAX_COUNTER), now_ms=0)
    first = producer_txn(9, ProducerEntry(producer_epoch=4, counter=0), now_ms=0)
    assert first.version == last.version + 1


@pytest.mark.parametrize(("epoch", "counter"), [(MAX_PRODUCER_EPOCH + 1, 0), (0, MAX_COUNTER + 1), (-1, 0), (0, -1)])
def test_what_does_not_fit_is_refused(epoch, counter):
    with pytest.raises(InvalidArgumentError, match=f"epoch {epoch} or counter {counter} out of range"):
        producer_txn(9, ProducerEntry(producer_epoch=epoch, counter=counter), now_ms=0)


def test_bounds_are_kafkas_epoch_and_what_is_left_of_a_long():
    assert (MAX_PRODUCER_EPOCH, MAX_COUNTER) == (2**15 - 1, 2**48 - 1)
    assert PRODUCER_EXPIRATION_MS == 7 * 24 * 60 * 60 * 1000


def test_a_producer_is_known_by_its_own_txn_alone():
    others = {"10": SetTransaction(app_id="10", version=5, last_updated_ms=0)}
    assert producer_entry(others, 1) is None
    assert producer_entry({}, 1) is None
    assert producer_entry(others, 10) == ProducerEntry(producer_epoch=0, counter=5)


def test_producer_ids_are_63_bits_and_differ():
    ids = {new_producer_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(0 <= one < 2**63 for one in ids)
    assert max(ids) > 2**60
