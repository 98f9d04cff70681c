"""Kafka's idempotent producers at two gateways in simulated time (rule L15): under lost answers, requests that
come late, crashes, and naps of up to an hour. A seed plays the same again.

    python -m proof.simulation.numbered_producers --count 0..500

A gateway is played by what judges in it: a producer of sparklog's that is given numbered batches, alone and those of
several clients together, as ``gateway.produce`` and ``gateway.produce_rounds`` give them. A client numbers its batches,
has up to five under way, sends again what isn't answered when its gateway dies or when it moves to the other, and now
and then gives up and begins an epoch.
"""

from __future__ import annotations

import argparse
import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from unittest import mock

import numpy as np
import pyarrow as pa

from proof.simulation.cluster.threads import simulated
from proof.simulation.cluster.weather import Weather, forecast
from proof.simulation.cluster.world import HOUR_MS, Process, World
from proof.simulation.many_producers import SimulatedExecutor
from sparklog import parallel
from sparklog.delta.log import DeltaLog
from sparklog.errors import InvalidProducerEpochError, OutOfOrderSequenceError, SparklogError
from sparklog.log import Cluster, create_topic
from sparklog.log.data.producer_batch import ProducerBatch
from sparklog.log.data.schema import HEADERS
from sparklog.log.follow import TopicFollower
from sparklog.producer import Producer
from sparklog.producer.outcome import Outcome, Piece, results_of_pieces
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.storage.retrying import RetryingStore

__all__ = ["Played", "play"]

TOPIC, PARTITIONS = "t", 2
_UNDER_WAY = 5
_BATCHES = 25
"""Of each client, in all of its epochs."""
_DELIVERY_MS = (600.0, 25_000.0)
_ANSWER_MS = 40_000.0
"""A client waits for so long before it takes its connection for broken."""
_TICK_MS = 20.0
_LIMIT_MS = 30 * HOUR_MS

Key = tuple[int, int, int]
"""Client, epoch, sequence."""
Answer = tuple[Key, int | None, BaseException | None]
"""Of a batch: the offset of its first record, or an error."""


@dataclass(slots=True)
class Played:
    """What happened, and what was promised and not kept."""

    acknowledged: dict[Key, int] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Connection:
    """What a client sent to one life of a gateway, and what it is answered."""

    def __init__(self) -> None:
        self.requests: list[tuple[Key, int, int]] = []
        """Batches with their partition and count."""
        self.answers: list[Answer] = []


class Gateway:
    """One after the other, processes that take connections."""

    def __init__(self, run: _Run, name: str) -> None:
        self._run = run
        self._name = name
        self._lives = 0
        self.connections: list[Connection] = []
        self.process = self._begin()

    def restart(self) -> None:
        """Start it anew where it is dead."""
        if self.process.is_dead:
            self.connections = []
            self._run.played.met["gateways that died"] += 1
            self.process = self._begin()

    def _begin(self) -> Process:
        self._lives += 1
        process = self._run.world.process(f"{self._name}.{self._lives}")
        process.kept.append(self._run.world.spawn(process, "main", partial(self._live, process)))
        return process

    def _live(self, process: Process) -> None:
        run = self._run
        bound_ms = run.chance.choice(_DELIVERY_MS)
        producer = Producer(
            run.cluster(process),
            acks="all" if run.chance.random() < 0.5 else 1,
            linger_ms=0,
            delivery_timeout_ms=bound_ms,
            request_timeout_ms=bound_ms,
            max_block_ms=25_000,
        )
        process.kept.append(producer)
        while not run.is_over:
            run.world.pause(run.chance.expovariate(1 / _TICK_MS))
            waiting = [(connection, *request) for connection in self.connections for request in connection.requests]
            for connection in self.connections:
                connection.requests.clear()
            if run.chance.random() < 0.25 and self._send_together(producer, waiting):
                run.played.met["sent together"] += len(waiting) > 1
                continue
            for request in waiting:
                self._send(producer, *request)

    def _send_together(self, producer: Producer, waiting: Sequence[tuple[Connection, Key, int, int]]) -> bool:
        """Send batches of several clients as pieces of one; False: they can't be, and nothing was sent."""
        if not waiting:
            return True
        pieces = [Piece(count, _numbers(key, count)) for _, key, _, count in waiting]
        rows = pa.concat_tables([_rows(key, partition, count) for _, key, partition, count in waiting])
        try:
            future = producer._try_send_rows(
                TOPIC,
                rows,
                pieces,
                greatest_partition=max(partition for _, _, partition, _ in waiting),
                size_bytes=rows.nbytes,
                least_timestamp_ms=1_000,
                largest_bytes=100,
            )
        except SparklogError:
            return False
        if future is not None:
            future.when_outcome(partial(self._tell, waiting))
        return future is not None

    def _tell(self, waiting: Sequence[tuple[Connection, Key, int, int]], outcome: Outcome) -> None:
        if outcome.error is not None:
            for connection, key, _, _ in waiting:
                connection.answers.append((key, None, outcome.error))
            return
        results = results_of_pieces(outcome, [count for *_, count in waiting])
        for (connection, key, _, _), result in zip(waiting, results, strict=True):
            if isinstance(result, int):
                connection.answers.append((key, result, None))
            else:
                connection.answers.append((key, None, next(iter(result.values()))))

    def _send(self, producer: Producer, connection: Connection, key: Key, partition: int, count: int) -> None:
        try:
            future = producer._send_batch(TOPIC, _rows(key, partition, count), _numbers(key, count))
        except SparklogError as error:
            connection.answers.append((key, None, error))
            return
        future.add_callback(lambda found: connection.answers.append((key, found.offsets[0].as_py(), None)))
        future.add_errback(lambda error: connection.answers.append((key, None, error)))


def _rows(key: Key, partition: int, count: int) -> pa.Table:
    client, epoch, sequence = key
    values = [f"{client}:{epoch}:{sequence + number}".encode() for number in range(count)]
    return pa.table(
        {
            "timestamp": pa.array(np.full(count, 1_000, np.int64)),
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.nulls(count, HEADERS),
            "partition": pa.array(np.full(count, partition, np.int32)),
        }
    )


def _numbers(key: Key, count: int) -> ProducerBatch:
    client, epoch, sequence = key
    return ProducerBatch(producer_id=client, producer_epoch=epoch, base_sequence=sequence, count=count)


class Client:
    """An idempotent producer, with one partition of its own or of several."""

    def __init__(self, run: _Run, number: int) -> None:
        self._run = run
        self._number = number
        self._partition = number % PARTITIONS
        self._epoch = self._sequence = 0
        self._left = _BATCHES
        self._waiting: dict[Key, int] = {}
        """Batches that aren't answered, in order, with their counts."""
        self._gateway = run.gateways[0]
        self._connection = Connection()
        self._heard_ms = 0.0
        self.is_done = False

    def live(self) -> None:
        run = self._run
        self._connect()
        while self._left or self._waiting:
            run.world.pause(run.chance.expovariate(1 / (3 * _TICK_MS)))
            self._take_answers()
            if self._gateway.process.is_dead or run.world.now - self._heard_ms > _ANSWER_MS:
                self._connect()
            elif self._waiting and run.chance.random() < 0.03:
                run.played.met["moves"] += 1
                self._connect()
            elif self._waiting and run.chance.random() < 0.004:
                run.played.met["epochs given up"] += 1
                self._epoch, self._sequence, self._waiting = self._epoch + 1, 0, {}
                self._connect()
            elif self._left and len(self._waiting) < _UNDER_WAY and run.chance.random() < 0.7:
                self._send_new()
        self.is_done = True

    def _connect(self) -> None:
        """Another connection, to any gateway; what isn't answered is sent again, in order."""
        self._gateway = self._run.chance.choice(self._run.gateways)
        self._connection = Connection()
        self._heard_ms = self._run.world.now
        self._gateway.connections.append(self._connection)
        for key in self._waiting:
            self._send(key)

    def _send_new(self) -> None:
        count = self._run.chance.choice([1, 1, 2, 5])
        key = (self._number, self._epoch, self._sequence)
        self._sequence += count
        self._left -= 1
        if not self._waiting:
            self._heard_ms = self._run.world.now
        self._waiting[key] = count
        self._send(key)

    def _send(self, key: Key) -> None:
        self._connection.requests.append((key, self._partition, self._waiting[key]))

    def _take_answers(self) -> None:
        played = self._run.played
        answers, self._connection.answers = self._connection.answers, []
        for key, offset, error in answers:
            self._heard_ms = self._run.world.now
            if key not in self._waiting:
                continue
            if offset is not None:
                played.acknowledged[key] = offset
                del self._waiting[key]
            elif isinstance(error, InvalidProducerEpochError):
                played.problems.append(f"{key} is of the newest epoch, and was refused: {error}")
            elif isinstance(error, OutOfOrderSequenceError) and key == next(iter(self._waiting)):
                played.problems.append(f"{key} is the next, and was refused: {error}")
            else:
                played.met["refused" if isinstance(error, OutOfOrderSequenceError) else "unknown"] += 1
                self._send(key)
        if played.problems:
            self._left, self._waiting = 0, {}


class _Run:
    """One world."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, start_ms=1_700_000_000_000)
        self.chance = random.Random(f"numbered {seed}")
        self.played = Played()
        self.is_over = False
        self._memory: ObjectStore = MemoryStore(clock=self.world.process("store").clock)
        expected = replace(forecast(self.world.random), night=0.0, skews=False, drifts=False)
        self._weather = Weather(self.world, expected)
        self._director = self.world.process("director")
        self._weather.spared.add(self._director)
        self.gateways: list[Gateway] = []

    def cluster(self, process: Process) -> Cluster:
        """The cluster as a process sees it."""
        store = self._weather.store(self._memory, process, is_folder=False)
        return Cluster(cluster_id="c", store=RetryingStore(store, clock=process.clock), clock=process.clock)

    def play(self) -> Played:
        has_threads = mock.patch.object(parallel, "ThreadPoolExecutor", SimulatedExecutor)
        with simulated(self.world), has_threads:
            self.world.run(self._director, self._direct)
        for process in self.world.processes:  # nobody is left to close what the dead have opened
            for client in process.kept:
                if isinstance(client, Producer):
                    client._pipelines.ended = client._pipelines.ended or SparklogError("its world has ended")
        self.played.problems += [f"thread {name} ended: {error!r}" for name, error in self.world.broken]
        self.played.met.update(self.world.counts)
        return self.played

    def _direct(self) -> None:
        world, chance = self.world, self.chance
        log = self.cluster(self._director).topic_log(TOPIC)
        create_topic(log, TOPIC, num_partitions=PARTITIONS)
        self.gateways += [Gateway(self, f"gateway{number}") for number in range(2)]
        clients = [Client(self, number) for number in range(chance.randint(1, 3))]
        for client in clients:
            process = world.process(f"client{client._number}")
            process.kept.append(world.spawn(process, "main", client.live))
        self._weather.is_calm = False
        while not all(client.is_done for client in clients) and not self.played.problems:
            world.pause(chance.expovariate(1 / 500))
            if chance.random() < 0.01:
                self.played.met["naps of gateways"] += 1
                chance.choice(self.gateways).process.freeze(chance.choice([3_000, 45_000, HOUR_MS]))
            if world.now > _LIMIT_MS / 2:
                self._weather.is_calm = True
            if world.now > _LIMIT_MS:
                self.played.problems.append("the clients don't come to an end")
            for gateway in self.gateways:
                gateway.restart()
        self.is_over = self._weather.is_calm = True
        self._check(self._read(log))

    def _read(self, log: DeltaLog) -> dict[int, list[str]]:
        """The values of each partition, by offset."""
        follower = TopicFollower(log, TOPIC)
        while not follower.caught_up:
            follower.poll()
        found: dict[int, list[str]] = {}
        for partition in range(PARTITIONS):
            found[partition] = []
            while len(found[partition]) < follower.head.log_end_offsets[partition]:
                rows = follower.read(partition, len(found[partition]))
                found[partition] += [value.decode() for value in rows["value"].to_pylist()]
        return found

    def _check(self, stored: dict[int, list[str]]) -> None:
        problems = self.played.problems
        for partition, values in stored.items():
            numbers = [tuple(map(int, value.split(":"))) for value in values]
            if twice := [number for number, count in Counter(numbers).items() if count > 1]:
                problems.append(f"partition {partition} has twice: {twice}")
            for client in {number[0] for number in numbers}:
                own = [number for number in numbers if number[0] == client]
                if own != sorted(own):
                    problems.append(f"partition {partition} has in another order: {own}")
        for key, offset in self.played.acknowledged.items():
            values = stored[key[0] % PARTITIONS]
            if values[offset : offset + 1] != [":".join(map(str, key))]:
                problems.append(f"{key} was acknowledged at {offset}, where there is {values[offset : offset + 1]}")


def play(seed: int) -> Played:
    """Play a seed; what was promised is in :attr:`Played.problems` where it wasn't kept."""
    return _Run(seed).play()


def main() -> int:
    """Play seeds; 1 where one found something."""
    parser = argparse.ArgumentParser(prog="python -m proof.simulation.numbered_producers", description=__doc__)
    parser.add_argument("--count", default="0..200", help="first and last seed, the last exclusive")
    logging.disable(logging.CRITICAL)
    first, last = map(int, parser.parse_args().count.split(".."))
    met: Counter[str] = Counter()
    bad = acknowledged = 0
    for seed in range(first, last):
        played = play(seed)
        met += played.met
        acknowledged += len(played.acknowledged)
        for problem in played.problems:
            print(f"seed {seed}: {problem}", flush=True)
        bad += bool(played.problems)
    print(f"{last - first} seeds, {bad} with problems; {acknowledged} acknowledged; met {dict(sorted(met.items()))}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
