"""One thread at a time, one process, no copies; and ending a call from another thread."""

import copy
import os
import pickle
import threading
import time

import pytest

from sparklog.errors import IllegalStateError, WakeupError
from tests.consumer.support import (
    LONG_MS,
    a_cluster,
    a_consumer,
    refused_in_a_fork,
    send,
    take,
    text,
    tp,
    until,
    with_topic,
)


def waiting(consumer):
    """A thread that polls; and what came of it."""
    outcome = []

    def poll():
        try:
            outcome.append(consumer.poll(timeout_ms=LONG_MS))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=poll, name="the-poller")
    thread.start()
    until(lambda: len(consumer._runtime.fetch_state.waits) == 1)
    return thread, outcome


def test_a_second_thread_is_refused_by_name_while_the_first_is_in_a_call():
    with a_consumer(with_topic(a_cluster()), "t") as consumer:
        thread, outcome = waiting(consumer)
        until(lambda: consumer.metrics()["consumer-coordinator-metrics"]["assigned-partitions"] == 1)
        for call in (consumer.poll, consumer.close, lambda: consumer.seek(tp(), 0)):
            with pytest.raises(IllegalStateError, match=r"one thread at a time: thread MainThread .* the-poller"):
                call()
        assert consumer.metrics()
        assert (consumer.assignment(), consumer.subscription(), consumer.paused()) == ({tp()}, {"t"}, set())
        consumer.wakeup()
        thread.join()
        assert isinstance(outcome[0], WakeupError)
        assert consumer.assignment() == {tp()}  # by turns is allowed


def test_a_second_thread_that_iterates_while_the_first_is_in_a_call_is_refused_too():
    """✗ What was read ahead is handed out without a look at who is inside."""
    with a_consumer(with_topic(a_cluster(), "abc"), "t") as consumer:
        assert next(consumer).value == b"a"
        assert in_another_thread(lambda: next(consumer).value) == b"b"  # by turns is allowed
        with consumer._guard:  # as a call does
            assert isinstance(in_another_thread(lambda: next(consumer)), IllegalStateError)
        assert next(consumer).value == b"c"


def in_another_thread(call):
    outcome = []

    def run():
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return outcome[0]


def test_who_only_looks_is_refused_once_the_consumer_is_closed():
    consumer = a_consumer(with_topic(a_cluster()), "t")
    consumer.close()
    for call in (consumer.assignment, consumer.subscription, consumer.paused):
        with pytest.raises(IllegalStateError, match="closed"):
            call()


def test_a_wakeup_ends_a_poll_that_waits_and_the_next_goes_on():
    cluster = with_topic(a_cluster())
    with a_consumer(cluster, "t") as consumer:
        thread, outcome = waiting(consumer)
        consumer.wakeup()
        thread.join()
        assert [type(each) for each in outcome] == [WakeupError]
        send(cluster, "a")
        assert text(take(consumer, 1)) == "a"


def test_a_wakeup_while_nobody_waits_ends_the_next_call():
    with a_consumer(with_topic(a_cluster(), "a"), "t", consumer_timeout_ms=LONG_MS) as consumer:
        for call in (
            consumer.poll,
            consumer.poll_batches,
            lambda: next(consumer),
            lambda: consumer.end_offsets([tp()]),
        ):
            consumer.wakeup()
            with pytest.raises(WakeupError):
                call()
        assert text(take(consumer, 1)) == "a"


def test_a_deserializer_and_a_listener_may_call_the_consumer():
    cluster = with_topic(a_cluster(), "a")

    def positions(data):
        return consumer.position(tp())

    with a_consumer(cluster, value_deserializer=positions) as consumer:
        consumer.assign([tp()])
        assert take(consumer, 1)[0].value == 0


@pytest.mark.parametrize("make", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_consumer_is_neither_pickled_nor_copied(make):
    with a_consumer(a_cluster()) as consumer, pytest.raises(TypeError, match="can't be pickled or copied"):
        make(consumer)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system doesn't fork")
def test_every_call_in_a_forked_process_is_refused_but_close():
    cluster = with_topic(a_cluster(), "ab")
    with a_consumer(cluster, "t", max_poll_records=1, consumer_timeout_ms=LONG_MS) as consumer:
        assert next(consumer).value == b"a"
        looks = (consumer.assignment, consumer.subscription, consumer.paused, consumer.metrics)
        calls = (*looks, consumer.poll, lambda: next(consumer), lambda: consumer.seek(tp(), 0))
        assert refused_in_a_fork(calls, close=consumer.close) == len(calls)
        assert next(consumer).value == b"b"


def test_close_waits_for_the_request_under_way_no_longer_than_it_is_told():
    consumer = a_consumer(with_topic(a_cluster(), "a"), "t")
    take(consumer, 1)
    began = time.monotonic()
    with consumer._runtime.fetch_state.lock:
        consumer.close(timeout_ms=0)  # the thread can't go on
    assert time.monotonic() - began < LONG_MS / 1000
