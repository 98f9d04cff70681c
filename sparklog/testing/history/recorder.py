"""Writes a history down while it happens, from any thread, and on disk before the call that it describes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sparklog.model import TopicPartition
from sparklog.testing.history.events import (
    Acknowledged,
    Assigned,
    CaughtUp,
    ConsumerOpened,
    Event,
    Failed,
    FinalOffset,
    FinalRead,
    Isolation,
    Lost,
    OffsetsSent,
    OffsetsSettled,
    Outcome,
    PartitionView,
    Polled,
    ProducerOpened,
    Revoked,
    Send,
    Snapshot,
    Sought,
    Source,
    TransactionBegun,
    TransactionEnded,
    TransactionEnding,
    Unknown,
)
from sparklog.testing.history.files import History, to_line

__all__ = ["ConsumerRecorder", "ProducerRecorder", "Recorder"]


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Recorder:
    """Gathers the events of one process. For several threads.

    With a path each event is a line that was handed to the operating system before the method returns: ``kill -9`` of
    the process loses none, and a line that is torn is dropped when the file is read.
    """

    def __init__(
        self, process: str = "", *, path: str | Path | None = None, now_ms: Callable[[], int] = _wall_ms
    ) -> None:
        """Begin.

        Args:
            process: goes before the name of each client, so that the clients of several processes differ; where a
                process is restarted, each life has a name of its own.
            path: a file that doesn't exist yet.
            now_ms: the time to note as a hint.
        Raises:
            FileExistsError.
        """
        self._process = process
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._order = 0
        self._events: list[Event] = []
        self._names: set[str] = set()
        self._file = None if path is None else open(path, "xb", buffering=0)  # noqa: SIM115 - closed by close()

    def producer(
        self, name: str, *, is_idempotent: bool = True, transactional_id: str | None = None
    ) -> ProducerRecorder:
        """The recorder of a new producer; a name is used once."""
        client = self._client(name)
        self.record(ProducerOpened, client, is_idempotent, transactional_id)
        return ProducerRecorder(self, client, transactional_id)

    def consumer(
        self,
        name: str,
        *,
        group: str | None = None,
        isolation: Isolation | str = Isolation.READ_COMMITTED,
        may_skip: bool = False,
        from_start: bool = False,
    ) -> ConsumerRecorder:
        """The recorder of a new consumer; a name is used once.

        Args:
            may_skip: its ``auto_offset_reset`` is ``latest``; see :class:`ConsumerOpened`.
            from_start: it is ``earliest``; likewise.
        Raises:
            ValueError: the name is taken, or both are said.
        """
        if may_skip and from_start:
            raise ValueError(f"consumer {name!r}: may_skip and from_start, expected one of them at most")
        client = self._client(name)
        self.record(ConsumerOpened, client, group, Isolation(isolation), may_skip, from_start)
        return ConsumerRecorder(self, client, group)

    def final_read(
        self,
        partition: tuple[str, int],
        *,
        log_start: int,
        log_end: int,
        offsets: Sequence[int],
        values: Sequence[str],
        isolation: Isolation | str = Isolation.READ_COMMITTED,
    ) -> None:
        """Note all that a partition holds, after everything has been recovered."""
        self.record(
            FinalRead,
            self._full("final"),
            TopicPartition(*partition),
            Isolation(isolation),
            log_start,
            log_end,
            tuple(offsets),
            tuple(values),
        )

    def final_offsets(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Note a group's committed offsets, after everything has been recovered; None where it has none."""
        for partition, offset in offsets.items():
            self.record(FinalOffset, self._full("final"), group, TopicPartition(*partition), offset)

    def reset_offsets(self, group: str, offsets: Mapping[TopicPartition, int], outcome: Outcome | str) -> None:
        """Note that an administrator has set a group's offsets (before the call: with the outcome unknown)."""
        client, commit = self._full("admin"), self.fresh("reset")
        settled = tuple((TopicPartition(*partition), offset) for partition, offset in offsets.items())
        self.record(OffsetsSent, client, commit, group, settled, None, True)
        self.record(OffsetsSettled, client, commit, Outcome(outcome), "")

    def record(self, event: Callable[..., Event], *fields: Any) -> None:
        """Note an event of this type: its fields after ``order`` and ``wall_ms``, the client first."""
        with self._lock:
            made = event(self._order, self._now_ms(), *fields)
            self._order += 1
            self._events.append(made)
            if self._file is not None:
                line = to_line(made)
                if self._file.write(line) != len(line):
                    raise OSError(f"{self._file.name}: an event was written in part, the disk may be full")

    def fresh(self, what: str) -> str:
        """A name that is unique in the history, for a transaction or a commit of offsets."""
        with self._lock:
            self._order += 1
            return self._full(f"{what}-{self._order}")

    def history(self) -> History:
        """The history that was recorded so far."""
        with self._lock:
            return History(self._events)

    def close(self) -> None:
        """Close the file; what is recorded later raises."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _client(self, name: str) -> str:
        client = self._full(name)
        with self._lock:
            if client in self._names:
                raise ValueError(f"there is a client {client!r} already: each has a name of its own")
            self._names.add(client)
        return client

    def _full(self, name: str) -> str:
        return f"{self._process}/{name}" if self._process else name


class ProducerRecorder:
    """Records what one producer does; the caller sends in the order in which it records (or holds a lock over both)."""

    def __init__(self, recorder: Recorder, client: str, transactional_id: str | None = None) -> None:
        self._record = recorder.record
        self._fresh = recorder.fresh
        self.client = client
        self.transactional_id = transactional_id
        self.transaction: str | None = None
        """The open one: what is sent belongs to it."""

    def send(
        self,
        value: str,
        topic: str,
        partition: int | None = None,
        *,
        key: str | None = None,
        is_tombstone: bool = False,
        source: Source | None = None,
    ) -> None:
        """Record that a value is about to be sent."""
        self._record(Send, self.client, value, topic, partition, key, self.transaction, is_tombstone, source)

    def acknowledged(self, value: str, partition: tuple[str, int], offset: int | None) -> None:
        """Record that a send succeeded; ``offset`` None or negative: it isn't known."""
        place = None if offset is None or offset < 0 else offset
        self._record(Acknowledged, self.client, value, TopicPartition(*partition), place)

    def failed(self, value: str, error: object = "") -> None:
        """Record that a send failed, and is certainly not in the log, nor ever will be."""
        self._record(Failed, self.client, value, _text(error))

    def unknown(self, value: str, error: object = "") -> None:
        """Record that a send failed, and may be in the log."""
        self._record(Unknown, self.client, value, _text(error))

    def begin(self, transaction: str | None = None) -> str:
        """Record that a transaction begins; its name is made up unless one is given that is unique in the history."""
        name = self._fresh("transaction") if transaction is None else transaction
        self._record(TransactionBegun, self.client, name)
        self.transaction = name
        return name

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Record that a group's offsets are about to be made part of the open transaction."""
        sent = tuple((TopicPartition(*partition), offset) for partition, offset in offsets.items())
        self._record(OffsetsSent, self.client, self._fresh("offsets"), group, sent, self._open(), False)

    def ending(self, *, is_commit: bool) -> None:
        """Record that the open transaction is about to be committed or aborted."""
        self._record(TransactionEnding, self.client, self._open(), is_commit)

    def ended(self, outcome: Outcome | str, error: object = "") -> None:
        """Record the outcome of a commit or an abort. After ``unknown`` the transaction stays open here: another
        outcome may follow."""
        outcome = Outcome(outcome)
        self._record(TransactionEnded, self.client, self._open(), outcome, _text(error))
        if outcome is not Outcome.UNKNOWN:
            self.transaction = None

    def _open(self) -> str:
        if self.transaction is None:
            raise RuntimeError(f"producer {self.client!r} has no open transaction")
        return self.transaction


class ConsumerRecorder:
    """Records what one consumer sees."""

    def __init__(self, recorder: Recorder, client: str, group: str | None) -> None:
        self._record = recorder.record
        self._fresh = recorder.fresh
        self.client = client
        self.group = group

    def assigned(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        """Record that these partitions were added, with the position at which each is begun (None: not known)."""
        found = tuple((TopicPartition(*partition), position) for partition, position in partitions.items())
        self._record(Assigned, self.client, found)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Record that these partitions were given back."""
        self._record(Revoked, self.client, tuple(TopicPartition(*partition) for partition in partitions))

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Record that these partitions belong to another member already."""
        self._record(Lost, self.client, tuple(TopicPartition(*partition) for partition in partitions))

    def sought(self, partition: tuple[str, int], offset: int | None) -> None:
        """Record that the consumer goes on at ``offset``; None: at an offset that isn't known."""
        self._record(Sought, self.client, TopicPartition(*partition), offset)

    def polled(
        self, partition: tuple[str, int], offsets: Sequence[int], values: Sequence[str], position: int | None = None
    ) -> None:
        """Record what a poll returned of one partition; ``position``: where the next goes on (None: last offset +
        1)."""
        self._record(Polled, self.client, TopicPartition(*partition), tuple(offsets), tuple(values), position)

    def snapshot(self, views: Sequence[PartitionView]) -> None:
        """Record the committed records of several partitions, all read as of one moment."""
        self._record(Snapshot, self.client, tuple(views))

    def caught_up(self, partition: tuple[str, int], position: int) -> None:
        """Record that nothing more is to be read, after everything has been recovered and nothing is sent any more."""
        self._record(CaughtUp, self.client, TopicPartition(*partition), position)

    def committing(self, offsets: Mapping[TopicPartition, int]) -> str:
        """Record that offsets are about to be committed; returns the name by which :meth:`committed` records
        the outcome."""
        if self.group is None:
            raise RuntimeError(f"consumer {self.client!r} has no group")
        commit = self._fresh("commit")
        sent = tuple((TopicPartition(*partition), offset) for partition, offset in offsets.items())
        self._record(OffsetsSent, self.client, commit, self.group, sent, None, False)
        return commit

    def committed(self, commit: str, outcome: Outcome | str = Outcome.COMMITTED, error: object = "") -> None:
        """Record the outcome of a commit of offsets."""
        self._record(OffsetsSettled, self.client, commit, Outcome(outcome), _text(error))


def _text(error: object) -> str:
    return f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
