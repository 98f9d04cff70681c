"""The numbers that a writer's records carry."""

from __future__ import annotations

from sparklog.log.data.producer_stamp import SEQUENCE_MODULUS, ProducerStamp
from sparklog.log.data.sequences import ProducerSequences


def test_each_partition_is_numbered_for_itself_and_goes_on():
    sequences = ProducerSequences(7)
    assert sequences.number([(0, 3), (1, 2), (0, 1)]).stamps == (
        ProducerStamp(7, 0, 0),
        ProducerStamp(7, 0, 0),
        ProducerStamp(7, 0, 3),
    )
    assert sequences.number([(0, 1), (1, 1)]).stamps == (ProducerStamp(7, 0, 4), ProducerStamp(7, 0, 2))


def test_sequences_wrap_to_zero():
    sequences = ProducerSequences(7)
    sequences.number([(0, SEQUENCE_MODULUS - 1)])
    assert [stamp.base_sequence for stamp in sequences.number([(0, 2), (0, 1)]).stamps] == [SEQUENCE_MODULUS - 1, 1]


def test_numbers_that_are_given_back_are_given_again():
    sequences = ProducerSequences(7)
    sequences.number([(0, 3)])
    sequences.give_back(sequences.number([(0, 5), (1, 1)]))
    assert sequences.number([(0, 1), (1, 1)]).stamps == (ProducerStamp(7, 0, 3), ProducerStamp(7, 0, 0))


def test_numbers_behind_which_others_came_leave_a_gap():
    sequences = ProducerSequences(7)
    failed = sequences.number([(0, 3)])
    sequences.number([(0, 2)])
    sequences.give_back(failed)
    assert sequences.number([(0, 1)]).stamps == (ProducerStamp(7, 0, 5),)


def test_another_producer_begins_anew_and_takes_nothing_back_of_the_one_before():
    sequences = ProducerSequences(7)
    old = sequences.number([(0, 3)])
    sequences.begin_anew(8, 2)
    sequences.give_back(old)
    assert sequences.number([(0, 1)]).stamps == (ProducerStamp(8, 2, 0),)
    sequences.begin_anew(8, 2)
    assert sequences.number([(0, 1)]).stamps == (ProducerStamp(8, 2, 1),)
    assert (sequences.producer_id, sequences.producer_epoch) == (8, 2)
