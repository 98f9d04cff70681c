"""A small mixed workload for any player, and its history: producers with and without transactions, a group that a
second member joins, a consume-transform-produce loop, a reader. Each in a thread, each with a seed of its own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

from proof.parity.player import PATIENCE_S, Committed, Listener, PlayedError, Player, Seen, ToSend
from sparklog.model import TopicPartition
from sparklog.testing.history import ConsumerRecorder, History, Isolation, Outcome, ProducerRecorder, Recorder, Source

__all__ = ["run_workload"]

IN, OUT = "in", "out"
PARTITIONS = [TopicPartition(topic, number) for topic in (IN, OUT) for number in range(2)]
INPUTS = PARTITIONS[:2]
SENDS, TRANSACTIONS = 30, 10
READERS, ETL = "readers", "etl"


def run_workload(player: Player, *, seed: int) -> History:
    """Run it to its end, and read all that is there."""
    return _Workload(player, seed).run()


class _Workload:
    def __init__(self, player: Player, seed: int) -> None:
        self._player = player
        self._seed = seed
        self._recorder = Recorder()
        self._written = threading.Event()
        """Nothing is sent to ``in`` any more."""
        self._wanted: dict[TopicPartition, int] | None = None
        """Of each input partition the last committed offset, once that is final."""

    def run(self) -> History:
        for topic in (IN, OUT):
            self._player.create_topic(topic, 2, {})
        writers: list[Callable[[], None]] = [lambda n=n: self._send_plainly(f"plain{n}") for n in range(2)]  # type: ignore[misc]
        writers += [lambda n=n: self._send_in_transactions(f"tx{n}") for n in range(2)]  # type: ignore[misc]
        others: list[Callable[[], None]] = [
            lambda: self._read_in_group("first", after=0),
            lambda: self._read_in_group("second", after=40),
            lambda: self._read_alone("all", Isolation.READ_UNCOMMITTED),
            self._transform,
        ]
        with ThreadPoolExecutor(len(writers) + len(others)) as threads:
            reading = [threads.submit(other) for other in others]
            try:
                for writing in [threads.submit(writer) for writer in writers]:
                    writing.result()
            finally:
                self._written.set()
            for one in reading:
                one.result()
        self._read_finally()
        return self._recorder.history()

    def _random(self, name: str) -> random.Random:
        return random.Random(f"{self._seed} {name}")

    def _send_plainly(self, name: str) -> None:
        rng, recorder = self._random(name), self._recorder.producer(name)
        self._player.open_producer(name, {})
        for number in range(SENDS):
            values = [f"{name}.{number}.{index}" for index in range(rng.randint(1, 3))]
            self._send(recorder, name, IN, [(value, rng.randrange(2), None) for value in values])

    def _send_in_transactions(self, name: str) -> None:
        rng, recorder = self._random(name), self._recorder.producer(name, transactional_id=name)
        self._player.open_producer(name, {"transactional.id": name})
        self._player.init_transactions(name)
        for number in range(TRANSACTIONS):
            self._player.begin(name)
            recorder.begin()
            values = [f"{name}.{number}.{index}" for index in range(rng.randint(2, 6))]
            for value in values:
                self._send(recorder, name, IN, [(value, rng.randrange(2), None)])
            self._end(recorder, name, is_commit=rng.random() < 0.7)

    def _send(
        self, recorder: ProducerRecorder, name: str, topic: str, records: Collection[tuple[str, int, Source | None]]
    ) -> None:
        for value, partition, source in records:
            recorder.send(value, topic, partition, source=source)
        wanted = [ToSend(topic, value.encode(), partition=partition) for value, partition, _ in records]
        places = self._player.send(name, wanted, lose_answer=False)
        for (value, _, _), (place, offset) in zip(records, places, strict=True):
            recorder.acknowledged(value, place, offset)

    def _end(self, recorder: ProducerRecorder, name: str, *, is_commit: bool) -> None:
        recorder.ending(is_commit=is_commit)
        (self._player.commit_transaction if is_commit else self._player.abort)(name)
        recorder.ended(Outcome.COMMITTED if is_commit else Outcome.ABORTED)

    def _read_in_group(self, name: str, *, after: int) -> None:
        """A member that commits what each poll returned; it joins once so many records are there."""
        self._wait_for_records(after)
        recorder = self._recorder.consumer(name, group=READERS, from_start=True)
        self._player.open_consumer(name, {"group.id": READERS, "isolation.level": "read_committed"})
        self._player.subscribe(name, [IN], _Recording(recorder))
        for _ in self._until_done(READERS):
            seen = self._polled(recorder, name, 20)
            if not seen:
                continue
            positions = {one.partition: one.offset + 1 for one in seen}
            commit = recorder.committing(positions)
            try:
                self._player.commit(name, {partition: Committed(offset) for partition, offset in positions.items()})
            except PlayedError as error:  # the partition is going elsewhere: another member reads it again
                recorder.committed(commit, Outcome.UNKNOWN, error)
            else:
                recorder.committed(commit)
        self._note_caught_up(recorder, READERS)

    def _read_alone(self, name: str, isolation: Isolation) -> None:
        recorder = self._recorder.consumer(name, isolation=isolation)
        self._player.open_consumer(name, {"isolation.level": isolation.value})
        recorder.assigned(dict.fromkeys(INPUTS, 0))
        self._player.assign(name, dict.fromkeys(INPUTS, 0))
        last = dict.fromkeys(INPUTS, -1)
        ends: dict[TopicPartition, int] | None = None
        deadline = time.monotonic() + 3 * PATIENCE_S
        while (ends is None or any(last[one] < end for one, end in ends.items())) and time.monotonic() < deadline:
            if ends is None and self._written.is_set():
                ends = self._last_offsets(isolation)
            for one in self._polled(recorder, name, 20):
                last[one.partition] = one.offset
        for partition in INPUTS:
            recorder.caught_up(partition, self._player.list_offset(partition, -1)[0])

    def _transform(self) -> None:
        """Each input becomes an output, in the transaction that commits its offset."""
        rng, inputs = self._random(ETL), self._recorder.consumer("etl-reader", group=ETL, from_start=True)
        recorder = self._recorder.producer("etl", transactional_id=ETL)
        self._player.open_consumer("etl-reader", {"group.id": ETL, "isolation.level": "read_committed"})
        self._player.subscribe("etl-reader", [IN], _Recording(inputs))
        self._player.open_producer("etl", {"transactional.id": ETL})
        self._player.init_transactions("etl")
        tries = 0
        for _ in self._until_done(ETL):
            seen = self._polled(inputs, "etl-reader", 10)
            if not seen:
                continue
            tries += 1
            self._player.begin("etl")
            recorder.begin()
            records = [
                (f"{one.partition.partition}@{one.offset}.{tries}", rng.randrange(2), Source(ETL, *_place(one)))
                for one in seen
            ]
            self._send(recorder, "etl", OUT, records)
            positions = {one.partition: one.offset + 1 for one in seen}
            recorder.send_offsets(ETL, positions)
            self._player.send_offsets("etl", "etl-reader", positions)
            is_commit = rng.random() < 0.7
            self._end(recorder, "etl", is_commit=is_commit)
            if not is_commit:
                for partition, offset in {one.partition: one.offset for one in reversed(seen)}.items():
                    self._player.seek("etl-reader", partition, offset)
                    inputs.sought(partition, offset)
        self._note_caught_up(inputs, ETL)

    def _polled(self, recorder: ConsumerRecorder, name: str, max_records: int) -> list[Seen]:
        seen = self._player.poll(name, 100, max_records)
        for partition in dict.fromkeys(one.partition for one in seen):
            mine = [one for one in seen if one.partition == partition]
            recorder.polled(partition, [one.offset for one in mine], [_text(one) for one in mine])
        return seen

    def _until_done(self, group: str) -> Iterator[None]:
        """A turn each until the group has committed all that is there, and nothing will come.

        Raises:
            TimeoutError: it hasn't within three times ``PATIENCE_S`` after the last send.
        """
        deadline: float | None = None
        while not self._is_done(group):
            if deadline is None and self._written.is_set():
                deadline = time.monotonic() + 3 * PATIENCE_S
            if deadline is not None and time.monotonic() > deadline:
                committed = self._player.group_offsets(group)
                raise TimeoutError(f"group {group!r} has committed {committed}, expected beyond {self._wanted}")
            yield

    def _note_caught_up(self, recorder: ConsumerRecorder, group: str) -> None:
        """The group is done: its members together must have seen all below what it has committed."""
        committed = self._player.group_offsets(group)
        for partition in INPUTS:
            recorder.caught_up(partition, committed[partition].offset)

    def _is_done(self, group: str) -> bool:
        """Has the group committed all that is there, and nothing will come?"""
        if not self._written.is_set():
            return False
        if self._wanted is None:
            self._wanted = self._last_offsets(Isolation.READ_COMMITTED)
        committed = self._player.group_offsets(group)
        return all(one in committed and committed[one].offset > last for one, last in self._wanted.items())

    def _last_offsets(self, isolation: Isolation) -> dict[TopicPartition, int]:
        found = dict.fromkeys(INPUTS, -1)
        for one in self._player.read(IN, isolation.value):
            found[one.partition] = one.offset
        return found

    def _wait_for_records(self, count: int) -> None:
        while sum(self._player.list_offset(partition, -1)[0] for partition in INPUTS) < count:
            if self._written.wait(0.02):
                return

    def _read_finally(self) -> None:
        for isolation in Isolation:
            for topic in (IN, OUT):
                seen = self._player.read(topic, isolation.value)
                for partition in (one for one in PARTITIONS if one.topic == topic):
                    mine = [one for one in seen if one.partition == partition]
                    self._recorder.final_read(
                        partition,
                        log_start=self._player.list_offset(partition, -2)[0],
                        log_end=self._player.list_offset(partition, -1)[0],
                        offsets=[one.offset for one in mine],
                        values=[_text(one) for one in mine],
                        isolation=isolation,
                    )
        for group in (READERS, ETL):
            committed = self._player.group_offsets(group)
            offsets = {one: committed[one].offset if one in committed else None for one in INPUTS}
            self._recorder.final_offsets(group, offsets)


class _Recording(Listener):
    def __init__(self, recorder: ConsumerRecorder) -> None:
        self._recorder = recorder

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._recorder.assigned(dict.fromkeys(sorted(partitions)))

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._recorder.revoked(sorted(partitions))

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self._recorder.lost(sorted(partitions))


def _place(seen: Seen) -> tuple[TopicPartition, int]:
    return seen.partition, seen.offset


def _text(seen: Seen) -> str:
    if seen.value is None:
        raise AssertionError(f"a record without a value: {seen}")
    return seen.value.decode()
