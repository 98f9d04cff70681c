"""The relay: sends the rows of an outbox table to topics, each exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from sparklog.clock import Clock
from sparklog.errors import (
    InvalidArgumentError,
    ProducerFencedError,
    SparklogError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from sparklog.interrupts import SafeEvent
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.logs import about, without_content
from sparklog.outbox.beginning import (
    check_place,
    default_name,
    look_over,
    refuse_anew,
    refuse_other_relays,
    refuse_set_back,
    settle_newest,
)
from sparklog.outbox.errors import OutboxError, RelayTakenOverError
from sparklog.outbox.ids import told, told_some
from sparklog.outbox.memory import Memory
from sparklog.outbox.places import Look
from sparklog.outbox.positions import (
    Position,
    encode_position,
    ensure_position_topic,
    key_of,
    position_topic,
    read_positions,
)
from sparklog.outbox.rows import Row, Seen, as_record, backlog, columns_of, digest_of, read_rows
from sparklog.outbox.settling import Sent, settle_rows
from sparklog.outbox.tables import DEFAULT_NAME, Order, OutboxTable, inspect_table, order_of
from sparklog.outbox.waiting import Waiter, waiter_for
from sparklog.producer import FutureRecordMetadata, Producer

__all__ = ["OutboxError", "Relay", "RelayTakenOverError"]

_LOGGER = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_MOST_POSITION_BYTES = 2**19
"""Half of what a topic takes by default."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Opened:
    """All that a batch needs; all rows that were ever sent are settled when it is made."""

    table: OutboxTable
    columns: tuple[str, ...]
    """The columns by whose contents a row is recognised."""
    order: Order
    look: Look
    """A look at the table before its columns were read."""
    producer: Producer
    memory: Memory


class Relay:
    """Sends the rows of one outbox table, in their order, each exactly once, even if processes die.

    A batch of rows and the relay's position, which is the ids of that batch and a digest of each row's contents, are
    sent in one transaction. After the commit the rows are deleted, or marked. A relay that starts fences its
    predecessors (its name determines the transactional id), reads the position, and first deletes or marks these rows:
    all remaining rows were never sent. Where it can't tell whether a row was sent, as after the table was exchanged for
    another, it refuses with an error that says what to do.

    Only one thread at a time may use it, except for :meth:`stop` and :meth:`metrics`.
    """

    def __init__(
        self,
        cluster: str | Path | Cluster,
        database: str | Engine,
        *,
        table: str = DEFAULT_NAME,
        name: str | None = None,
        after: str = "delete",
        order_by: str | None = None,
        unordered: bool = False,
        same_table: bool = False,
        batch_size: int = 1_000,
        poll_interval_s: float = 0.5,
        max_outage_s: float = 300.0,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Connects to nothing but the cluster yet.

        Args:
            database: SQLAlchemy's URL or engine.
            table: its name in the database, perhaps ``schema.table``.
            name: of the relay, the table's by default: one relay of a name sends at a time, and always the same table.
            after: ``delete`` rows that were sent, or ``mark`` them in their column ``published_at``.
            order_by: the column that gives the order in which rows were written, where neither a numbered column
                ``position`` nor integer ids do.
            unordered: records of one aggregate may come in another order than their rows.
            same_table: once, after an error that asks for it: the table was moved or restored, and is the same.
            batch_size: rows of a transaction, at most.
            poll_interval_s: how long to wait before the next look at a table in which nothing waits. PostgreSQL wakes
                the relay earlier where the driver is psycopg 3.
            max_outage_s: how long to try again where the database or the store can't be reached.
        Raises:
            InvalidArgumentError: of the arguments; there is no cluster. StoreError.
        """
        _check_settings(after, batch_size, poll_interval_s, max_outage_s, order_by, unordered)
        self._owns_store = not isinstance(cluster, Cluster)
        self._cluster = (
            cluster
            if isinstance(cluster, Cluster)
            else open_cluster(cluster, storage_options=storage_options, clock=clock, create=False)
        )
        self._clock = self._cluster.clock
        self._engine = sa.create_engine(database, pool_pre_ping=True) if isinstance(database, str) else database
        self._owns_engine = isinstance(database, str)
        self._table_name = table
        self.name = default_name(self._cluster, table) if name is None else name
        self._order_by, self._unordered, self._same_table = order_by, unordered, same_table
        self._marks = after == "mark"
        self._batch_size = batch_size
        self._poll_interval_s, self._max_outage_s = poll_interval_s, max_outage_s
        self._stopping = SafeEvent()
        self._table: OutboxTable | None = None
        self._producer: Producer | None = None
        self._opened: _Opened | None = None
        self._waiter: Waiter | None = None
        self._is_settled = True
        """Are the rows of the newest batch known to be settled? Else the relay begins anew by its position."""
        self._may_be_more = False  # did the newest look at the table leave rows there?
        self._sent_count = self._batch_count = self._outage_count = 0

    def run(self) -> None:
        """Send present and future rows until :meth:`stop` is called.

        Raises:
            OutboxError, RelayTakenOverError, InvalidArgumentError.
            SparklogError, sqlalchemy.exc.SQLAlchemyError: the store or the database can't be reached for
                ``max_outage_s``, or refuses permanently.
        """
        while not self._stopping.is_set():
            self.run_once()
            if not self._may_be_more and not self._stopping.is_set():
                self._wait()

    def run_once(self) -> int:
        """Send one batch of rows; returns their number, 0 if there are none. Raises as :meth:`run`."""
        return self._despite_outages(self._send_batch)

    def run_until_empty(self) -> int:
        """Send batches until no rows are left; returns the number of rows sent. Raises as :meth:`run`."""
        total = 0
        while not self._stopping.is_set():
            count = self.run_once()
            total += count
            if count == 0:
                break
        return total

    def stop(self) -> None:
        """Make :meth:`run` end after its current batch. From any thread, and from signal handlers."""
        self._stopping.set()

    def metrics(self) -> dict[str, float]:
        """``rows-waiting`` and ``lag-seconds`` (of the oldest, -1 where it isn't known) as of now, by a query;
        ``rows-sent-total``, ``batches-sent-total``, ``outages-total`` since the relay was made."""
        waiting = backlog(self._engine, self._table or inspect_table(self._engine, self._table_name, marks=self._marks))
        unknown_s = 0.0 if waiting.count == 0 else -1.0
        lag_s = unknown_s if waiting.oldest_s is None else waiting.oldest_s
        return {
            "rows-waiting": float(waiting.count),
            "lag-seconds": lag_s,
            "rows-sent-total": float(self._sent_count),
            "batches-sent-total": float(self._batch_count),
            "outages-total": float(self._outage_count),
        }

    def close(self) -> None:
        """Close the connections. A batch whose transaction isn't committed is aborted."""
        self.stop()
        self._end_producer(timeout_s=30.0)
        if self._waiter is not None:
            self._waiter.close()
            self._waiter = None
        if self._owns_engine:
            self._engine.dispose()
        if self._owns_store:
            self._cluster.store.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # One batch.

    def _send_batch(self) -> int:
        opened = self._open()
        while True:
            rows, look = read_rows(self._engine, opened.table, opened.order, self._batch_size)
            self._may_be_more = len(rows) == self._batch_size
            if look is None:
                return 0
            if look.is_of_another(opened.look):
                opened = self._opened = self._go_on_with_what_is_there(opened)
                continue
            digests = [digest_of(row, opened.columns) for row in rows]
            if not self._settle_known(opened, rows, digests):
                break
        if opened.memory.is_set_back(look.counter) and not self._same_table:
            newest = opened.memory.newest
            refuse_set_back(look.place, self.name, look.counter, None if newest is None else newest.counter)
        sent = Sent(opened.columns, [(row.id, digest) for row, digest in zip(rows, digests, strict=True)])
        count = self._commit(opened, rows, sent, look.counter)
        if count < len(rows):
            self._may_be_more = True
            sent = Sent(sent.columns, sent.digests[:count])
        # From here on the rows are sent. What fails now, or a death, is made good by the next :meth:`_open`.
        self._is_settled = False
        try:
            settle_rows(self._engine, opened.table, sent, marks=self._marks)
        except OutboxError as error:
            self._tell_taken_over(opened, sent, error)
            raise OutboxError(f"relay {self.name!r}: {error}") from error
        self._is_settled = True
        self._sent_count += count
        self._batch_count += 1
        return count

    def _settle_known(self, opened: _Opened, rows: Sequence[Seen], digests: Sequence[str]) -> bool:
        """Settle those rows that were sent in earlier batches, whose rows were settled before: they have come back."""
        known: list[tuple[Seen, str]] = []
        place = opened.look.place
        for row, digest in zip(rows, digests, strict=True):
            batch = opened.memory.batch_of(row, opened.columns, digest)
            if batch is None:
                continue
            is_same = batch.place is not None and batch.place.is_same(place)
            if not self._same_table and (batch.place is None or not is_same or batch.place.may_be_anew(place)):
                refuse_anew(place, self.name, [row.id])
            known.append((row, digest))
        if not known:
            return False
        _LOGGER.warning(
            "relay %s: row %s came back after being sent, as after a backup of the database was restored: they aren't "
            "sent again",
            self.name,
            told_some([row.id for row, _ in known]),
            extra=about(relay=self.name),
        )
        sent = Sent(opened.columns, [(row.id, digest) for row, digest in known])
        settle_rows(self._engine, opened.table, sent, marks=self._marks)
        return True

    def _open(self) -> _Opened:
        """The table, and a producer before whose transaction all rows that were ever sent are settled."""
        if self._producer is not None and not self._is_settled:
            self._end_producer()
        if self._producer is None or self._opened is None:
            self._opened = self._begin()
        return self._opened

    def _go_on_with_what_is_there(self, opened: _Opened) -> _Opened:
        """The table was changed or made anew: the rows of all batches are settled, in the one that was there before."""
        table, look, order = self._look()
        if opened.memory.newest is not None:
            check_place(opened.memory.newest, look.place, self.name, is_same=self._same_table)
        return replace(opened, table=table, columns=columns_of(table), order=order, look=look)

    def _look(self) -> tuple[OutboxTable, Look, Order]:
        self._table, look = look_over(self._engine, self._table_name, marks=self._marks)
        return self._table, look, order_of(self._table, by=self._order_by, is_unordered=self._unordered)

    def _begin(self) -> _Opened:
        table, look, order = self._look()
        if not order.is_promised:
            warning = "relay %s: records of one aggregate may come in another order than their rows"
            _LOGGER.warning(warning, self.name, extra=about(relay=self.name))
        ensure_position_topic(self._cluster, self.name)
        producer = Producer(self._cluster, transactional_id=f"outbox-relay-{self.name}")
        self._producer = producer  # whatever fails now, it is closed before the next one is made
        self._is_settled = False
        producer.init_transactions()
        positions = read_positions(self._cluster, self.name)
        opened = _Opened(table, columns_of(table), order, look, producer, Memory(positions))
        if positions:
            self._go_on(opened, positions[-1])
        else:
            refuse_other_relays(self._cluster, self._engine, table, look.place, self.name)
        self._is_settled = True
        return opened

    def _go_on(self, opened: _Opened, newest: Position) -> None:
        """Settle what a predecessor has sent, once it is sure that it was of this table."""
        table, place, is_same = opened.table, opened.look.place, self._same_table
        check_place(newest, place, self.name, is_same=is_same)
        settle_newest(self._engine, table, place, self.name, newest, marks=self._marks, is_same=is_same)
        if is_same:  # from now on nobody has to be told
            sent = newest.sent if newest.place is not None else Sent(opened.columns, [])
            self._commit(opened, [], sent, opened.look.counter)

    def _tell_taken_over(self, opened: _Opened, sent: Sent, error: OutboxError) -> None:
        """Rows that aren't there were settled by a relay that has taken over, if one has: then it can't write its
        position once more.

        Raises:
            RelayTakenOverError: one has.
        """
        try:
            newest = opened.memory.newest
            self._commit(opened, [], sent, None if newest is None else newest.counter)
        except RelayTakenOverError:
            raise
        except SparklogError as other:
            error.add_note(f"whether another relay {self.name!r} has begun isn't known: {other}")

    def _commit(self, opened: _Opened, rows: Sequence[Seen], sent: Sent, counter: int | None) -> int:
        """Send rows and the position in one transaction; returns how many, less than ``sent`` has where the position
        would be too large. An error says nothing about whether it is committed: the producer isn't used again, and the
        next reads the position."""
        producer = opened.producer
        position, data = self._position(opened, sent, counter)
        count = len(position.sent)
        try:
            producer.begin_transaction()
            records = [as_record(row, self._table_name) for row in rows[:count]]
            futures = [(record, self._send(producer, record)) for record in records]
            key = key_of(self.name, position.number)
            producer.send(position_topic(self.name), value=data, key=key, partition=0)  # which alone is read
            try:
                producer.commit_transaction()
            except TransactionAbortableError:  # a record can't be stored: the abort's error names it
                producer.abort_transaction()
                for row, future in futures:
                    error = future.exception if future.is_done else None
                    if error is not None and not isinstance(error, TransactionAbortedError):
                        raise self._refused(row, error) from error
                raise
        except ProducerFencedError as error:
            self._end_producer()
            raise RelayTakenOverError(f"another relay {self.name!r} has begun: {error}") from error
        except BaseException:
            self._end_producer()
            raise
        opened.memory.add(position)
        return count

    def _position(self, opened: _Opened, sent: Sent, counter: int | None) -> tuple[Position, bytes]:
        """The position of a batch, and its bytes, which a topic can store: of less rows, where they would be too
        many."""
        number, first = opened.memory.next_numbers()
        while True:
            position = Position(number=number, first=first, place=opened.look.place, sent=sent, counter=counter)
            data = encode_position(position)
            if len(data) <= _MOST_POSITION_BYTES or len(sent) <= 1:
                return position, data
            sent = Sent(sent.columns, sent.digests[: len(sent) // 2])

    def _send(self, producer: Producer, row: Row) -> FutureRecordMetadata:
        try:
            return producer.send(row.topic, row.value, row.key, row.headers)
        except UnknownTopicOrPartitionError as error:
            raise self._refused(row, error) from error
        except SparklogError as error:
            if error.retriable or error.fatal or error.requires_abort:
                raise
            raise self._refused(row, error) from error

    def _refused(self, row: Row, error: Any) -> SparklogError:
        may_pass = isinstance(error, SparklogError) and (error.retriable or error.fatal)
        if may_pass and not isinstance(error, UnknownTopicOrPartitionError):
            return error  # type: ignore[no-any-return]
        return OutboxError(
            f"row {told(row.id)} of table {self._table_name!r} can't be sent to topic {row.topic!r}: {error}"
        )

    def _end_producer(self, timeout_s: float = 0.0) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout_s)

    # Outages.

    def _despite_outages(self, call: Callable[[], T]) -> T:
        """Call, and again where the database or the store can't be reached now, for ``max_outage_s`` at most."""
        deadline = self._clock.deadline_in(self._max_outage_s * 1_000)
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return call()
            except (SparklogError, sa.exc.DBAPIError) as error:
                if not _may_pass(error) or deadline.has_passed or self._stopping.is_set():
                    raise
                self._outage_count += 1
                cause = without_content(error.orig if isinstance(error, sa.exc.DBAPIError) and error.orig else error)
                _LOGGER.warning(
                    "relay %s: tried again in %.1f s: %s", self.name, pause_s, cause, extra=about(relay=self.name)
                )
            self._stopping.wait(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _wait(self) -> None:
        if self._waiter is None:
            self._waiter = waiter_for(self._engine, self._table_name, self._stopping)
        self._waiter.wait(self._poll_interval_s)


def _check_settings(
    after: str, batch_size: int, poll_interval_s: float, max_outage_s: float, order_by: str | None, unordered: bool
) -> None:
    if order_by is not None and unordered:
        raise InvalidArgumentError(f"order_by={order_by!r} and unordered=True, expected one of them")
    if after not in ("delete", "mark"):
        raise InvalidArgumentError(f"after={after!r}, expected delete or mark")
    if batch_size < 1 or poll_interval_s <= 0 or max_outage_s < 0:
        raise InvalidArgumentError(
            f"batch_size={batch_size}, poll_interval_s={poll_interval_s}, max_outage_s={max_outage_s}: expected 1 "
            "or more, more than 0, and 0 or more"
        )


def _may_pass(error: Exception) -> bool:
    """May the same call succeed later? A driver's operational errors are outages, deadlocks and locks, mostly."""
    if isinstance(error, SparklogError):
        return error.retriable or error.requires_abort
    return isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError) or bool(
        getattr(error, "connection_invalidated", False)
    )
