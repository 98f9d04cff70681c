"""What holds at every moment of a world: seen in all entries that anybody in it creates, or applies to what he knows of
a topic."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any, NamedTuple
from unittest import mock

from proof.simulation.cluster.totals import WatchedTotals
from sparklog.errors import CorruptLogError, InvalidTxnStateError
from sparklog.groups.offsets.offset_files import decode_rows
from sparklog.groups.offsets.rows import OffsetRow, Rows, Stamp
from sparklog.log.data.object_paths import object_path
from sparklog.log.state import TopicState
from sparklog.model import TopicPartition
from sparklog.paths import GROUPS_FOLDER, TOPICS_FOLDER, TRANSACTIONS_FOLDER, group_offsets_table, transaction_log
from sparklog.storage import CreateResult, ObjectStore
from sparklog.testing.wrapped_store import WrappedStore
from sparklog.txn.entries import TransactionEntry, decode_transaction
from sparklog.txn.session import TIMED_OUT
from sparklog.txn.states import TransactionState, check_step

__all__ = ["Watch", "WatchedStore"]

_LOGS = (TRANSACTIONS_FOLDER, TOPICS_FOLDER, GROUPS_FOLDER)
_TABLE_LOG = "/_delta_log"
_NOBODY = Stamp(0, "")


class _Head(NamedTuple):
    """Of a topic at one version."""

    topic_id: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]


class _Decision(NamedTuple):
    """The newest entry of a transactional id's log."""

    entry: TransactionEntry
    at_ms: float
    holder: str
    """Which process began the epoch; empty: whoever took the id from its producer."""


class _Offsets:
    """What a group has committed: stamps never get older, and the committed offset moves only by whoever took the
    partition under the stamp that was there (rule G1).

    A row that goes, for its age or by an administrator, is no breach; nor is one that another topic of the same name
    begins anew, nor a pending offset that anybody settles. Offsets that were committed without a member are anybody's.

    Args:
        table: its folder, for messages.
        violate: told what isn't so.
    """

    def __init__(self, table: str, violate: Callable[[str], object]) -> None:
        self.forgotten: set[TopicPartition] = set()
        """Whose row went at some time."""
        self._table = table
        self._violate = violate
        self.rows: Rows = {}
        self._stamps: dict[TopicPartition, Stamp] = {}
        """The newest of each, also of a row that went since."""
        self._holders: dict[TopicPartition, str] = {}
        """Which process wrote that stamp."""

    def see(self, who: str, rows: Rows) -> None:
        """A process created the table's next version."""
        before, self.rows = self.rows, rows
        self.forgotten |= before.keys() - rows.keys()
        for partition, row in rows.items():
            old = before.get(partition)
            if old != row:
                self._see_move(who, partition, old, row)
                self._see_stamp(who, partition, old, row.stamp)

    def _see_stamp(self, who: str, partition: TopicPartition, old: OffsetRow | None, stamp: Stamp) -> None:
        newest = self._stamps.get(partition)
        if newest is not None:
            is_taken_twice = old is not None and old.stamp.member != "" and stamp.generation == newest.generation
            if stamp.generation < newest.generation or (is_taken_twice and stamp != newest):
                self._violate(f"{self._table}: {partition} is owned under {stamp} after {newest}")
        if newest != stamp or old is None:
            self._stamps[partition], self._holders[partition] = stamp, who

    def _see_move(self, who: str, partition: TopicPartition, old: OffsetRow | None, row: OffsetRow) -> None:
        if not row.stamp.member:
            return
        old = old or OffsetRow(topic_id=row.topic_id, stamp=_NOBODY, committed=None, commit_timestamp_ms=0)
        holder = self._holders[partition] if old.stamp.member else ""
        is_begun_anew = row.committed is None and row.topic_id != old.topic_id
        is_settled = old.pending is not None and row.pending is None and row.committed == old.pending.committed
        moves: list[tuple[object, object]] = []
        if row.committed != old.committed and not (is_begun_anew or is_settled):
            moves.append((old.committed, row.committed))
        if row.pending is not None and row.pending != old.pending:
            moves.append((old.pending, row.pending))
        for before, after in moves:
            if who != holder:
                owner = f"{holder} owns it under {old.stamp}" if holder else "nobody owns it"
                self._violate(f"{self._table}: {who} moved the offset of {partition}: {before} to {after}, but {owner}")
        if row.topic_id == old.topic_id and _offset(row) < _offset(old):
            self._violate(f"{self._table}: {partition} went back from {old.committed} to {row.committed} by {who}")


def _offset(row: OffsetRow) -> int:
    return -1 if row.committed is None else row.committed.offset


class Watch:
    """A version has one content, whoever reads it; log starts and ends never go back, and totals are right; no
    transaction is timed out too early, and nobody is fenced by himself; only who owns a partition moves its committed
    offset.

    Args:
        violate: told what isn't so.
        now_ms: the world's time.
        counts: where strays are counted: entries whose number was decided, and cleaned, long before.
    """

    def __init__(self, violate: Callable[[str], object], *, now_ms: Callable[[], float], counts: Counter[str]) -> None:
        self._violate = violate
        self._now_ms = now_ms
        self._counts = counts
        self._newest: dict[str, int] = {}
        """By folder of a log."""
        self._decisions: dict[str, _Decision] = {}
        """By folder."""
        self._tokens: dict[tuple[str, int], str] = {}
        self._heads: dict[str, dict[int, _Head]] = {}
        self._offsets: dict[str, _Offsets] = {}
        """By folder of a group's offset table."""
        self._totals: dict[str, WatchedTotals] = {}
        """By folder of a topic's log."""
        self.on_rows: Callable[[str, Rows, Rows], object] = lambda who, before, after: None
        """Called with each new version of an offset table: who created it, the rows before it, and its own."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See every entry that is applied."""
        apply_entry = TopicState.apply_entry

        def watch(state: TopicState, entry: Any, position: Any, **kwargs: Any) -> None:
            apply_entry(state, entry, position, **kwargs)
            self._see(state)

        with mock.patch.object(TopicState, "apply_entry", watch):
            yield

    def _see(self, state: TopicState) -> None:
        table, position, head = state.log.table, state.position, state.head
        token = self._tokens.setdefault((table, position.version), position.token)
        if token != position.token:
            self._violate(f"{table}: version {position.version} forks: {token} and {position.token}")
        found = _Head(head.topic_id, head.log_start_offsets, head.log_end_offsets)
        seen = self._heads.setdefault(table, {}).setdefault(position.version, found)
        if token == position.token and seen != found:
            self._violate(f"{table}: version {position.version} is {seen} to one and {found} to another")

    def see_created(self, who: str, path: str, data: bytes, read: Callable[[str], bytes]) -> None:
        """An object was created by a process, dead or alive.

        Args:
            read: gives what lies in the store, in no time.
        """
        number = _number_of(path)
        if number is None:
            return
        folder = path.rpartition("/")[0]
        newest = self._newest.get(folder, -1)
        if number < newest:
            self._counts["strays"] += 1
            return
        if number == newest:
            self._violate(f"{path} was the newest of its log, and is created again")
            return
        self._newest[folder] = number
        if folder.startswith(TRANSACTIONS_FOLDER):
            self._see_decision(who, folder, decode_transaction(number, path, data))
        elif folder.startswith(GROUPS_FOLDER) and folder.endswith(_TABLE_LOG):
            self._see_offsets(who, folder.removesuffix(_TABLE_LOG), path, data, read)
        elif folder.startswith(TOPICS_FOLDER):
            self._see_topic(folder, number, path, data)

    def _see_topic(self, folder: str, number: int, path: str, data: bytes) -> None:
        self._totals.setdefault(folder, WatchedTotals(self._violate, self._counts)).see(number, path, data)

    def begin_anew(self, left: Mapping[str, bytes]) -> None:
        """Everybody has died, and this is left; what was there before may be forgotten."""
        self.check_course()
        before = self._decisions
        self._newest, self._decisions, self._tokens, self._heads, self._offsets = {}, {}, {}, {}, {}
        self._totals = {}
        for path in sorted(left):
            number, folder = _number_of(path), path.rpartition("/")[0]
            if number is None:
                continue
            self._newest[folder] = number
            if folder.startswith(TRANSACTIONS_FOLDER):
                entry = decode_transaction(number, path, left[path])
                known = before.get(folder)
                holder = known.holder if known is not None and known.entry.header == entry.header else ""
                self._decisions[folder] = _Decision(entry, -math.inf, holder)
            elif folder.startswith(TOPICS_FOLDER):
                with suppress(CorruptLogError):  # the power loss has torn it
                    self._see_topic(folder, number, path, left[path])

    def _see_offsets(self, who: str, table: str, path: str, data: bytes, read: Callable[[str], bytes]) -> None:
        added = [json.loads(line)["add"]["path"] for line in data.splitlines() if line.startswith(b'{"add"')]
        if len(added) != 1:
            self._violate(f"{path} adds {len(added)} files, expected the one that has all rows")
            return
        file = object_path(table, added[0])
        seen = self._offsets.setdefault(table, _Offsets(table, self._violate))
        before, after = seen.rows, decode_rows(file, read(file))
        seen.see(who, after)
        self.on_rows(who, before, after)
        self._counts["versions of offset tables"] += 1

    def has_forgotten(self, group: str, partition: TopicPartition) -> bool:
        """Did what a group had committed go, for its age or by an administrator?"""
        seen = self._offsets.get(group_offsets_table(group))
        return seen is not None and partition in seen.forgotten

    def _see_decision(self, who: str, folder: str, entry: TransactionEntry) -> None:
        at_ms = self._now_ms()
        before = self._decisions.get(folder)
        begins = before is None or before.entry.header != entry.header
        holder = ("" if entry.reason else who) if before is None or begins else before.holder
        self._decisions[folder] = _Decision(entry, at_ms, holder)
        try:
            check_step(before.entry.state if before else None, entry.state)
        except InvalidTxnStateError as error:
            self._violate(f"{folder}: {error}")
        if before is None:
            return
        if entry.previous != before.entry.token:
            self._violate(f"{folder}: entry {entry.version} doesn't follow the one before it")
        age_ms = at_ms - before.at_ms
        is_timed_out = entry.state is TransactionState.PREPARE_ABORT and entry.reason.startswith(TIMED_OUT)
        if is_timed_out and age_ms <= before.entry.header.timeout_ms - 1:
            self._violate(f"{folder}: timed out too early, after {age_ms:.0f} ms of {before.entry.header.timeout_ms}")

    def check_fenced(self, who: str, transactional_id: str) -> None:
        """A process was told that another took its transactional id: is it so?"""
        newest = self._decisions.get(transaction_log(transactional_id).rstrip("/"))
        if newest is None or newest.holder == who:
            self._violate(f"{who} was fenced, but nobody took {transactional_id} from it")

    def check_course(self) -> None:
        """In the end: did a log start or end go back?"""
        for table, seen in self._heads.items():
            for (old_version, old), (new_version, new) in pairwise(sorted(seen.items())):
                if old.topic_id == new.topic_id and (_fell(old.starts, new.starts) or _fell(old.ends, new.ends)):
                    self._violate(f"{table}: went back from {old} at {old_version} to {new} at {new_version}")


def _number_of(path: str) -> int | None:
    """Of an entry of a log; None for any other object."""
    folder, _, name = path.rpartition("/")
    number, dot, suffix = name.partition(".")
    return int(number) if number.isdigit() and dot + suffix == ".json" and folder.startswith(_LOGS) else None


def _fell(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    return len(new) < len(old) or any(after < before for before, after in zip(old, new, strict=False))


class WatchedStore(WrappedStore):
    """The store of one process: what it creates is seen, when it arrives.

    Args:
        store: carries the calls out.
        who: the process.
        watch: told.
    """

    def __init__(self, store: ObjectStore, who: str, watch: Watch) -> None:
        super().__init__(store)
        self._who = who
        self._watch = watch

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        result = super().create(path, data, sync=sync)
        if result is CreateResult.CREATED:
            self._watch.see_created(self._who, path, data, self._store.read)
        return result
