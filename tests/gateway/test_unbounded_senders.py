"""Where many clients send on, however much is unanswered, a round of Produce requests waits for more of them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.gateway import produce_rounds
from sparklog.gateway.unbounded_senders import MOST_BOUNDED, UnboundedSenders
from tests.gateway.test_produce_rounds import LARGE, cluster, needs_core, play, version_of

__all__ = ["cluster"]

AT_ONCE = MOST_BOUNDED + 1


def seen(*notes):
    senders = UnboundedSenders()
    for sender, size_bytes, now_s in notes:
        senders.note(sender, MOST_BOUNDED, size_bytes, now_s)
    return senders


def eight(size_bytes, now_s, first=0):
    return [(first + number, size_bytes, now_s) for number in range(8)]


def test_many_are_eight_that_send_much_within_a_moment():
    assert not seen().are_many(5.0)
    assert seen(*eight(16_384, 5.0)).are_many(5.0)
    assert not seen(*eight(16_383, 5.0)).are_many(5.0)
    assert not seen(*[(number % 7, 1_000_000, 5.0) for number in range(70)]).are_many(5.0)


def test_a_client_that_bounds_what_is_unanswered_does_not_count():
    senders = UnboundedSenders()
    for sender in range(8):
        senders.note(sender, MOST_BOUNDED - 1, 1_000_000, 5.0)
    assert not senders.are_many(5.0)


def test_a_client_is_known_by_what_it_did_while_it_goes_on_sending():
    """A quick store answers each request before the next one comes."""
    senders = seen(*eight(1, 5.0))
    for now_s in range(50, 500, 20):
        for sender in range(8):
            senders.note(sender, 0, 16_384, now_s)
        assert senders.are_many(now_s)
    for sender in range(8):
        senders.note(sender, 0, 16_384, 700.0)
    assert senders.are_many(700.0)


def test_a_client_that_was_silent_for_long_is_forgotten():
    senders = seen(*eight(16_384, 5.0), *eight(16_384, 70.0, first=8), *eight(16_384, 140.0, first=16))
    for sender in range(8):
        senders.note(sender, 0, 1_000_000, 150.0)
    assert senders.are_many(150.0) is False


def test_what_came_long_ago_does_not_count():
    assert seen(*eight(16_384, 5.0)).are_many(5.19)
    assert not seen(*eight(16_384, 5.0)).are_many(5.21)
    assert seen(*eight(16_384, 5.0), (1, 1, 5.15)).are_many(5.2)  # the first of the next period
    assert not seen(*eight(16_384, 5.0), (1, 1, 5.15)).are_many(5.26)
    assert not seen(*eight(16_384, 5.0), (1, 1, 7.0)).are_many(7.0)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40_000), st.floats(0, 0.1)), max_size=60))
def test_many_are_only_told_of_what_came_within_a_few_tenths_of_a_second(steps):
    """Whatever the moments: who are told to be many were so within the last 0.3 s."""
    now_s, notes = 0.0, []
    senders = UnboundedSenders()
    for sender, size_bytes, later_s in steps:
        now_s += later_s
        notes.append((sender, size_bytes, now_s))
        senders.note(sender, MOST_BOUNDED, size_bytes, now_s)
        if senders.are_many(now_s):
            lately = [one for one in notes if one[2] >= now_s - 0.3]
            assert len({one[0] for one in lately}) >= 8
            assert sum(one[1] for one in lately) >= 131_072
    assert all(one[2] <= other[2] for one, other in pairwise(notes))


async def one_after_the_other(gateway, connections):
    """Each client sends some requests without waiting, and has its answers before the next one sends."""
    for connection in range(connections):
        sent = [gateway.send(LARGE, connection=connection) for _ in range(AT_ONCE)]
        for one in sent:
            await gateway.told(one)


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


@needs_core
@pytest.mark.parametrize(("connections", "is_held"), [(7, False), (8, True)])
def test_a_round_waits_for_many_that_send_on_where_the_store_is_quick(cluster, monkeypatch, connections, is_held):
    """Of a quick store so few requests are unanswered at a time that these don't show how many clients are at work."""
    monkeypatch.setattr(produce_rounds, "_GATHER_S", 3_600)
    monkeypatch.setattr(produce_rounds, "_QUIET_S", 3_600)
    monkeypatch.setattr("sparklog.gateway.unbounded_senders._PERIOD_S", 3_600)

    async def script(gateway):
        await one_after_the_other(gateway, connections)
        before, later = version_of(cluster), []
        for connection in range(10):
            later.append(gateway.send(LARGE, connection=connection))
            await turns(5)
        assert any(one.is_sent for one in later) != is_held
        await gateway.rounds.close()
        offsets = [(await gateway.told(one))[0] for one in later]
        assert offsets == [*range(AT_ONCE * connections, AT_ONCE * connections + 10)]
        if is_held:
            assert version_of(cluster) == before + 1

    play(cluster, script)


@needs_core
def test_a_round_that_waits_is_sent_once_nothing_has_come_for_a_moment(cluster, monkeypatch):
    """Clients that do bound what is unanswered after all would wait as long as the gateway does."""
    monkeypatch.setattr(produce_rounds, "_GATHER_S", 3_600)
    monkeypatch.setattr("sparklog.gateway.unbounded_senders._PERIOD_S", 3_600)

    async def script(gateway):
        await one_after_the_other(gateway, 8)
        sent = [gateway.send(LARGE, connection=connection) for connection in range(8)]
        return [await gateway.told(one) for one in sent]

    assert play(cluster, script) == [[AT_ONCE * 8 + number] for number in range(8)]


@needs_core
def test_a_round_that_waits_is_sent_in_time_while_requests_keep_coming(cluster, monkeypatch):
    monkeypatch.setattr(produce_rounds, "_GATHER_S", 0.05)
    monkeypatch.setattr(produce_rounds, "_QUIET_S", 3_600)
    monkeypatch.setattr("sparklog.gateway.unbounded_senders._PERIOD_S", 3_600)

    async def script(gateway):
        await one_after_the_other(gateway, 8)
        sent = [gateway.send(LARGE, connection=0)]
        while not sent[0].is_done:
            sent.append(gateway.send(LARGE, connection=len(sent) % 8))
            await asyncio.sleep(0.005)
        return [await gateway.told(one) for one in sent]

    found = play(cluster, script)
    assert found == [[AT_ONCE * 8 + number] for number in range(len(found))]
