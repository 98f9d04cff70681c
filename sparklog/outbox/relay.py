"""The relay: sends the rows of an outbox table to topics, each exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
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
from sparklog.outbox.positions import encode_position, ensure_position_topic, position_topic, read_position
from sparklog.outbox.rows import Row, backlog, read_rows, settle_rows
from sparklog.outbox.tables import DEFAULT_NAME, OutboxTable, inspect_table
from sparklog.outbox.waiting import Waiter, waiter_for
from sparklog.producer import FutureRecordMetadata, Producer

__all__ = ["OutboxError", "Relay", "RelayTakenOverError"]

_LOGGER = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
T = TypeVar("T")


class OutboxError(SparklogError):
    """A row can't be sent; the message names it. No row is skipped: the relay stops until the row is repaired."""


class RelayTakenOverError(SparklogError):
    """Another relay of the same name has started; this one can't send any more."""

    fatal = True


class Relay:
    """Sends the rows of one outbox table, in their order, each exactly once, even if processes die.

    A batch of rows and the relay's position, which is the ids of that batch, are sent in one transaction. After the
    commit the rows are deleted, or marked. A relay that starts fences its predecessors (its name determines the
    transactional id), reads the position, and first deletes or marks these rows: all remaining rows were never
    sent.

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
            name: of the relay, the table's by default: one relay of a name sends at a time.
            after: ``delete`` rows that were sent, or ``mark`` them in their column ``published_at``.
            batch_size: rows of a transaction, at most.
            poll_interval_s: how long to wait before the next look at a table in which nothing waits. PostgreSQL wakes
                the relay earlier where the driver is psycopg 3.
            max_outage_s: how long to try again where the database or the store can't be reached.
        Raises:
            InvalidArgumentError: of the arguments; there is no cluster. StoreError.
        """
        if after not in ("delete", "mark"):
            raise InvalidArgumentError(f"after={after!r}, expected delete or mark")
        if batch_size < 1 or poll_interval_s <= 0 or max_outage_s < 0:
            raise InvalidArgumentError(
                f"batch_size={batch_size}, poll_interval_s={poll_interval_s}, max_outage_s={max_outage_s}: expected 1 "
                "or more, more than 0, and 0 or more"
            )
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
        self.name = table.rpartition(".")[2] if name is None else name
        self._marks = after == "mark"
        self._batch_size = batch_size
        self._poll_interval_s = poll_interval_s
        self._max_outage_s = max_outage_s
        self._stopping = SafeEvent()
        self._table: OutboxTable | None = None
        self._producer: Producer | None = None
        self._waiter: Waiter | None = None
        self._is_settled = True
        """Are the rows of the newest batch known to be settled? Else the relay begins anew by its position."""
        self._sent_count = self._batch_count = self._outage_count = 0

    def run(self) -> None:
        """Send present and future rows until :meth:`stop` is called.

        Raises:
            OutboxError, RelayTakenOverError, InvalidArgumentError.
            SparklogError, sqlalchemy.exc.SQLAlchemyError: the store or the database can't be reached for
                ``max_outage_s``, or refuses permanently.
        """
        while not self._stopping.is_set():
            if self.run_once() < self._batch_size and not self._stopping.is_set():
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
        table, producer = self._opened()
        rows = read_rows(self._engine, table, self._batch_size)
        if not rows:
            return 0
        ids = [row.id for row in rows]
        self._commit(producer, rows, ids)
        # From here on the rows are sent. What fails now, or a death, is made good by the next :meth:`_opened`.
        self._is_settled = False
        settle_rows(self._engine, table, ids, marks=self._marks)
        self._is_settled = True
        self._sent_count += len(rows)
        self._batch_count += 1
        return len(rows)

    def _opened(self) -> tuple[OutboxTable, Producer]:
        """The table, and a producer before whose transaction all rows that were ever sent are settled."""
        if self._table is None:
            self._table = inspect_table(self._engine, self._table_name, marks=self._marks)
        if self._producer is not None and not self._is_settled:
            self._end_producer()
        if self._producer is None:
            ensure_position_topic(self._cluster, self.name)
            producer = Producer(self._cluster, transactional_id=f"outbox-relay-{self.name}")
            self._producer = producer  # whatever fails now, it is closed before the next one is made
            self._is_settled = False
            producer.init_transactions()
            sent = read_position(self._cluster, self.name)
            settle_rows(self._engine, self._table, sent, marks=self._marks)
            self._is_settled = True
        return self._table, self._producer

    def _commit(self, producer: Producer, rows: Sequence[Row], ids: Sequence[str]) -> None:
        """Send rows and the position in one transaction. An error says nothing about whether it is committed: the
        producer isn't used again, and the next reads the position."""
        try:
            producer.begin_transaction()
            futures = [(row, self._send(producer, row)) for row in rows]
            producer.send(position_topic(self.name), value=encode_position(ids), key=self.name.encode())
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
        return OutboxError(f"row {row.id} of table {self._table_name!r} can't be sent to topic {row.topic!r}: {error}")

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


def _may_pass(error: Exception) -> bool:
    """May the same call succeed later? A driver's operational errors are outages, deadlocks and locks, mostly."""
    if isinstance(error, SparklogError):
        return error.retriable or error.requires_abort
    return isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError) or bool(
        getattr(error, "connection_invalidated", False)
    )
