"""Relays of outboxes on two SQLite databases of one cluster, which die at any call of a database or of a producer.

    python -m proof.simulation.outbox_relays --count 0..200

Applications write rows into both databases; their relays send them, and die, or lose the answer of a call, at a moment
that the seed determines. In between the databases are set back to backups, by which rows that were sent come back and
ids are given again; tables are renamed; and a relay is started on the other's database. Where a relay refuses, an
operator does what the error says. A seed plays the same again.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import sqlalchemy as sa

from sparklog import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.errors import InvalidArgumentError
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.outbox import OutboxError, Relay, create_table
from sparklog.outbox import relay as relay_module
from sparklog.outbox.positions import read_position
from sparklog.storage import MemoryStore

__all__ = ["Played", "play"]

TOPIC = "outbox.event.order"
_KEYS = 2
_ACTIONS = 16
_CALLS_OF_A_RUN = 60
_ATTEMPTS = 5
_NUMBERED = "position INTEGER, id INTEGER PRIMARY KEY AUTOINCREMENT, aggregatetype TEXT, aggregateid TEXT, payload BLOB"


class Death(BaseException):
    """As if the process had been killed."""


@dataclass(slots=True)
class Played:
    """What came of a seed."""

    problems: list[str] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    sent: list[tuple[bytes, int]] = field(default_factory=list)
    """Key and number of each record, in the partition's order."""


@dataclass(slots=True)
class _Fuse:
    """Counts the calls of a relay, and ends or disturbs one of them."""

    at: int | None = None
    kind: str = "death"
    count: int = 0
    met: Counter[str] = field(default_factory=Counter)

    def call(self, *, may_lose: bool = False) -> None:
        """Before and after each call that has an effect elsewhere."""
        self.count += 1
        if self.count == self.at:
            self.at = None
            kind = self.kind if may_lose else "death"
            self.met[kind] += 1
            if kind == "death":
                raise Death
            raise sa.exc.OperationalError("the statement", {}, Exception("the connection is lost"))


def _fused(fuse: _Fuse) -> type[Producer]:
    class Fused(Producer):
        """Whose every call may be the relay's last: before it has an effect, or after."""

        def init_transactions(self) -> None:
            fuse.call()
            Producer.init_transactions(self)
            fuse.call()

        def begin_transaction(self) -> None:
            Producer.begin_transaction(self)
            fuse.call()

        def send(self, *given: Any, **options: Any) -> Any:
            fuse.call()
            return Producer.send(self, *given, **options)

        def commit_transaction(self) -> None:
            fuse.call()
            Producer.commit_transaction(self)
            fuse.call()

    return Fused


class _Service:
    """A database with an outbox, its application and its relay."""

    def __init__(self, name: str, folder: Path, fuse: _Fuse, *, key: str, is_numbered: bool) -> None:
        self.name, self.path, self.fuse, self.key, self.is_numbered = (
            name,
            folder / f"{name}.db",
            fuse,
            key,
            is_numbered,
        )
        self.table = "outbox"
        self.engine = sa.create_engine(f"sqlite:///{self.path}")
        self.is_moved = False
        """Was the table renamed, or the file exchanged, since the relay ran to its end?"""
        self.must: set[int] = set()
        self.may: set[int] = set()
        """Numbers of rows that are to be sent once, and of those that a backup has taken back: once at most."""
        self.next = 0
        self.backup: set[int] | None = None
        if is_numbered:
            with self.engine.begin() as connection:
                connection.execute(sa.text(f"CREATE TABLE outbox ({_NUMBERED})"))
        else:
            create_table(self.engine)

    def relays_engine(self) -> tuple[sa.Engine, list[Any]]:
        """The relay's own, whose calls may be its last; and the driver's connections, which end with it."""
        engine, fuse = sa.create_engine(f"sqlite:///{self.path}"), self.fuse
        opened: list[Any] = []
        dialect: Any = engine.dialect
        commit = dialect.do_commit

        def lossy_commit(connection: Any) -> None:
            fuse.call(may_lose=True)
            commit(connection)
            fuse.call(may_lose=True)

        def executed(_: Any, cursor: Any, *__: Any) -> None:
            try:
                fuse.call()
            except Death:
                cursor.close()  # a process that is dead holds no lock
                raise

        dialect.do_commit = lossy_commit
        sa.event.listen(engine, "connect", lambda connection, _: opened.append(connection))
        sa.event.listen(engine, "before_cursor_execute", lambda *_: fuse.call(may_lose=True))
        sa.event.listen(engine, "after_cursor_execute", executed)
        return engine, opened

    def write(self, count: int) -> None:
        """Rows in a transaction of the application's."""
        with self.engine.begin() as connection:
            for _ in range(count):
                key = f"{self.key}{self.next % _KEYS}"
                values: dict[str, Any] = {"aggregatetype": "order", "aggregateid": key, "payload": b"%d" % self.next}
                if self.is_numbered:
                    values["position"] = self.next  # by which an operator who gives a row another id changes no order
                else:
                    values["id"] = f"{self.name}-{self.next}-{len(self.may)}"
                target = sa.table(self.table, *map(sa.column, values))
                connection.execute(sa.insert(target).values(values))
                self.must.add(self.next)
                self.next += 1

    def back_up(self) -> None:
        """Keep a copy of the database, and of what it promises."""
        self.engine.dispose()
        shutil.copyfile(self.path, f"{self.path}.backup")
        self.backup = set(self.must)
        self.backup_table = self.table

    def restore(self, *, is_same_file: bool) -> None:
        """Set the database back. What was written since then is gone, and may have been sent before."""
        assert self.backup is not None
        self.engine.dispose()
        if is_same_file:
            shutil.copyfile(f"{self.path}.backup", self.path)
        else:
            shutil.copyfile(f"{self.path}.backup", f"{self.path}.new")
            os.replace(f"{self.path}.new", self.path)
        self.may |= self.must - self.backup
        self.must &= self.backup
        self.is_moved |= self.table != self.backup_table
        self.table = self.backup_table

    def rename(self) -> None:
        """Give the table another name."""
        name = "events" if self.table == "outbox" else "outbox"
        with self.engine.begin() as connection:
            connection.execute(sa.text(f"ALTER TABLE {self.table} RENAME TO {name}"))
        self.table, self.is_moved = name, True

    def repair(self, cluster: Cluster) -> None:
        """As the error says: of rows whose ids the relay has sent, delete those that were sent, and give others new
        ids."""
        ids = read_position(cluster, self.name)
        records = {(key, number) for key, number in _records(cluster)}
        with self.engine.begin() as connection:
            query = sa.text(f"SELECT id, aggregateid, payload FROM {self.table}")
            for id, key, payload in connection.execute(query).all():
                if id in ids:
                    was_sent = (str(key).encode(), int(payload)) in records
                    change = f"DELETE FROM {self.table}" if was_sent else f"UPDATE {self.table} SET id = :new"
                    given = {"id": id} if was_sent else {"id": id, "new": id + 1_000_000 + self.next}
                    connection.execute(sa.text(f"{change} WHERE id = :id"), given)


class _World:
    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.played = Played()
        self.fuse = _Fuse(met=self.played.met)
        self.cluster = open_cluster(MemoryStore())
        with Admin(self.cluster) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=1)])
        self.are_alike = self.random.random() < 0.5
        """Do both databases have rows of the same ids and contents? Then no operator could tell whose was sent, and
        none is set back."""
        is_numbered = self.random.random() < 0.6
        keys = ("k", "k") if self.are_alike else ("a", "b")
        self.services = [
            _Service(name, folder, self.fuse, key=key, is_numbered=is_numbered)
            for name, key in zip("ab", keys, strict=True)
        ]
        self._dead: list[Relay] = []

    def act(self) -> None:
        """One thing happens."""
        service = self.random.choice(self.services)
        action = self.random.choices(
            ("write", "run", "back up", "restore", "rename", "mix up"), (5, 8, 2.5, 3, 0.7, 1.5)
        )[0]
        if action == "write":
            service.write(self.random.randint(1, 5))
        elif action == "run":
            self.fuse.at = self.fuse.count + self.random.randint(1, _CALLS_OF_A_RUN)
            self.fuse.kind = self.random.choice(("death", "lost answer"))
            self.run(service)
            has_died, self.fuse.at = self.fuse.at is None, None
            if has_died and self.may_restore(service) and self.random.random() < 0.4:  # the operator's way out
                self.played.met["restored"] += 1
                service.restore(is_same_file=True)
                service.write(self.random.randint(1, 5))
        elif action == "back up":
            service.back_up()
        elif action == "restore" and self.may_restore(service):
            self.played.met["restored"] += 1
            service.restore(is_same_file=self.random.random() < 0.5)
        elif action == "rename":
            service.rename()
        elif action == "mix up":
            self.mix_up(service)

    def may_restore(self, service: _Service) -> bool:
        """Is there a backup that the world can judge by?"""
        return service.backup is not None and not self.are_alike

    def run(self, service: _Service) -> None:
        """The relay sends what waits, dies, or refuses until the operator has done what it says."""
        for _ in range(_ATTEMPTS):
            try:
                self._relay(service, service.name, is_same=service.is_moved)
            except Death:
                return
            except (OutboxError, InvalidArgumentError) as error:
                self.played.met["refused"] += 1
                if "isn't as relay" in str(error):
                    service.repair(self.cluster)
                elif "--same-table" in str(error):
                    service.is_moved = True
                else:
                    raise
            else:
                service.is_moved = False
                return
        self.played.problems.append(f"relay {service.name} refuses for ever")

    def mix_up(self, service: _Service) -> None:
        """The relay of the other service is started on this database, once it has a position."""
        other = next(each for each in self.services if each is not service)
        if any(number in other.must for _, number in _records(self.cluster)) and _has_position(
            self.cluster, other.name
        ):
            self.played.met["mixed up"] += 1
            try:
                self._relay(service, other.name, is_same=False)
            except (OutboxError, InvalidArgumentError):
                return

    def _relay(self, service: _Service, name: str, *, is_same: bool) -> None:
        engine, opened = service.relays_engine()
        relay = Relay(self.cluster, engine, table=service.table, name=name, same_table=is_same, batch_size=3)
        self._dead.append(relay)
        try:
            relay.run_until_empty()
        finally:
            for connection in opened:
                connection.close()

    def end(self) -> None:
        """Everything is sent, and judged."""
        for service in self.services:
            self.run(service)
        for relay in self._dead:
            relay._end_producer()  # what a dead process was about to do isn't waited for
        self.played.sent = _records(self.cluster)
        counts: Counter[tuple[bytes, int]] = Counter(self.played.sent)
        most: Counter[tuple[bytes, int]] = Counter()
        least: Counter[tuple[bytes, int]] = Counter()
        for service in self.services:
            for number in service.must | service.may:
                record = (f"{service.key}{number % _KEYS}".encode(), number)
                most[record] += 1
                least[record] += number in service.must
        for record in most.keys() | counts.keys():
            if not least[record] <= counts[record] <= most[record]:
                self.played.problems.append(
                    f"{record} is there {counts[record]} times, expected {least[record]} to {most[record]}"
                )
        if not self.are_alike:
            for key in {key for key, _ in self.played.sent}:
                numbers = [number for each, number in self.played.sent if each == key]
                if numbers != sorted(numbers):
                    self.played.problems.append(f"records of {key!r} are out of order: {numbers}")
        for service in self.services:
            service.engine.dispose()


def play(seed: int) -> Played:
    """Play a seed to its end."""
    with tempfile.TemporaryDirectory(prefix="sparklog-outbox-") as folder:
        world = _World(seed, Path(folder))
        with (
            mock.patch.object(relay_module, "Producer", _fused(world.fuse)),
            mock.patch.object(relay_module, "_FIRST_PAUSE_S", 0.0),
        ):
            for _ in range(_ACTIONS):
                world.act()
            world.fuse.at = None
            world.end()
        return world.played


def _records(cluster: Cluster) -> list[tuple[bytes, int]]:
    at = TopicPartition(TOPIC, 0)
    found: list[tuple[bytes, int]] = []
    with Consumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([at])
        end = consumer.end_offsets([at])[at]
        while consumer.position(at) < end:
            for record in consumer.poll(timeout_ms=1_000).get(at, []):
                found.append((record.key, int(record.value)))
    return found


def _has_position(cluster: Cluster, name: str) -> bool:
    with Admin(cluster) as admin:
        is_there = f"outbox.relay.{name}" in admin.list_topics()
    return is_there and bool(read_position(cluster, name))


def main(arguments: Sequence[str] | None = None) -> None:
    """Play seeds, and tell what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", default="0..100", help="FIRST..LAST, the seeds")
    first, last = map(int, parser.parse_args(arguments).count.split(".."))
    logging.disable(logging.CRITICAL)
    met: Counter[str] = Counter()
    for seed in range(first, last):
        played = play(seed)
        met += played.met
        for problem in played.problems:
            print(f"seed {seed}: {problem}")
    print(dict(met))


if __name__ == "__main__":
    main()
