"""A committer whose commits fail or are late: which batches fail, in which order, and which are tried again."""

from __future__ import annotations

import random
from typing import cast

import pytest

from sparklog.errors import (
    CommitStateUnknownError,
    KafkaTimeoutError,
    StoreFullError,
)
from sparklog.log import Cluster, TopicWriter
from sparklog.storage import CreateResult, MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, WrappedStore
from tests.producer.support import (
    IMPATIENT,
    LONG_S,
    HeldStore,
    Switch,
    a_producer,
    a_topic,
    assert_empty,
    error_of,
    eventually,
    through,
    values,
)
from tests.support import records, within


def test_a_commit_whose_outcome_is_unknown_fails_with_an_error_that_says_so() -> None:
    """Not retriable: the same send again could store the record twice."""
    memory = MemoryStore()
    cluster = a_topic(memory)
    switch = Switch(FaultKind.LOST_REQUEST, "create")
    with a_producer(through(FaultyStore(memory, switch.fault), cluster), **IMPATIENT) as producer:
        producer.send("t", b"before").get(LONG_S)
        switch.on()
        error = error_of(producer.send("t", b"unknown"))
        assert isinstance(error, CommitStateUnknownError)
        assert not error.retriable
        switch.off()
        assert producer.send("t", b"after").get(LONG_S).offset == 1
        assert_empty(producer)
    assert values(cluster) == [b"before", b"after"]


def test_a_batch_whose_time_is_over_fails_and_a_later_one_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(random, "uniform", lambda least, most: least)  # a writer that lost rests for no time
    memory, clock = MemoryStore(), ManualClock()
    cluster = a_topic(memory, clock)
    held = HeldStore(Overtaken(memory, cluster, until_ticks_ms=110_000))
    with a_producer(through(held, cluster), batch_size=0, delivery_timeout_ms=100_000) as producer:
        held.hold("create")
        sent = []
        for value in (b"0", b"1", b"2"):  # the first keeps the committer busy until the others are uploaded
            if value == b"2":
                clock.advance(60_000)
            sent.append(producer.send("t", value))
            eventually(lambda: producer.metrics()["producer-metrics"]["requests-in-flight"] == len(sent))
            held.wait_until_reached()
        eventually(lambda: len(producer._pipelines.get("t")._committer._uploaded) == 2)
        held.let_go()
        producer.flush(LONG_S)
        assert [type(future.exception) for future in sent] == [type(None), KafkaTimeoutError, type(None)]
        assert 110_000 <= clock.ticks_ms() < 160_000
        assert_empty(producer)
    assert [value for value in values(cluster) if value != b"other"] == [b"0", b"2"]


class Overtaken(WrappedStore):
    """A store on which others are faster with each commit but the first, until a time: they take ten seconds."""

    def __init__(self, store: MemoryStore, cluster: Cluster, *, until_ticks_ms: float) -> None:
        super().__init__(store)
        self._clock, self._until_ticks_ms = cast(ManualClock, cluster.clock), until_ticks_ms
        self._other = TopicWriter(cluster.topic_log("t"), "t")
        self._is_first = True

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        if not self._is_first and self._clock.ticks_ms() < self._until_ticks_ms:
            self._clock.advance(10_000)
            self._other.append(self._other.upload([(0, records("other"))]), deadline=within(self._other, 1_000))
        self._is_first = False
        return super().create(path, data, sync=sync)


def test_a_record_that_failed_to_upload_fails_in_the_order_of_sending() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    held = HeldStore(FaultyStore(memory, Fault(kind=FaultKind.DISK_FULL, ops=["put"], skip=1)))
    told: list[object] = []
    with a_producer(through(held, cluster), batch_size=0) as producer:
        held.hold("create")
        sent = [producer.send("t", b"0")]
        held.wait_until_reached()
        for value in (b"1", b"2"):
            sent.append(producer.send("t", value))
            eventually(lambda: producer.metrics()["producer-metrics"]["requests-in-flight"] == len(sent))
        for number, future in enumerate(sent):
            future.add_callback(lambda result, number=number: told.append(number))
            future.add_errback(lambda error, number=number: told.append((number, type(error))))
        held.let_go()
        producer.flush(LONG_S)
        assert told == [0, (1, StoreFullError), 2]
        assert_empty(producer)
    assert values(cluster) == [b"0", b"2"]
