"""The batches that a topic has of producers that number them themselves: which batch is new, stored already, or comes
too early (rule L15, numbered batches; decision 0038). Only :func:`load_batches` calls the store.

A commit that has such batches says so twice: in a ``txn`` action for each producer and partition, which lasts, and in
``commitInfo``, with the offset of each batch, as long as the entry is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparklog.clock import Deadline
from sparklog.delta.actions import Entry, SetTransaction
from sparklog.delta.log import DeltaLog
from sparklog.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    DuplicateSequenceError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    SparklogError,
)
from sparklog.log.data.producer_batch import PlacedBatch, ProducerBatch
from sparklog.log.data.producer_stamp import SEQUENCE_MODULUS, next_sequence
from sparklog.log.producer_state import PRODUCER_EXPIRATION_MS, batches_app_id, parse_batches_app_id
from sparklog.log.reloading import reload_state
from sparklog.log.state import TopicState
from sparklog.storage.retrying import retry

__all__ = [
    "BATCHES_INFO",
    "ProducerBatches",
    "Verdict",
    "batch_actions",
    "batch_info",
    "load_batches",
    "search_older_batches",
    "unpacked",
]

BATCHES_INFO = "producer_batches"
_BATCH_FIELDS = 6
"""In ``commitInfo.sparklog``: [producer id, epoch, partition, base sequence, count, offset of its first record] of each
batch that the entry stores."""
_KEPT = 10
"""Twice as many as a client has under way, and as Kafka keeps (``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``). A writer
may give up the first of them, which is stored all the same, and store the others: then the client sends as many new
ones before it hears of the first (``proof/model/numbering.py``)."""
_MANY = 100_000
_SEQUENCE_BITS = 32
_FORGET_MS = PRODUCER_EXPIRATION_MS + 86_400_000
"""The table keeps their ``txn`` actions as long (rule L7, producer state)."""

_VERSIONS_BACK = 128
"""At least of so many versions the batches' offsets are known after a topic was loaded."""
_MOST_VERSIONS_BACK = 4_096
"""The bound where a batch comes that may lie before those: at 100 commits a second, as long as clients wait for an
answer before they ask again (``request.timeout.ms`` of 30 seconds)."""

Key = tuple[int, int]
"""Partition and producer id."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a batch is to be stored."""

    offset: int | None = None
    """It is stored, and this is the offset of its first record."""
    same_as: int | None = None
    """It is the batch at this place of those that are judged together, once more."""
    error: SparklogError | None = None
    """It is refused; ``DuplicateSequenceError``: it is stored, and its offset is known no more;
    ``CommitStateUnknownError``: it may be stored."""

    @property
    def is_new(self) -> bool:
        """Is it to be stored?"""
        return self.offset is None and self.same_as is None and self.error is None


@dataclass(slots=True)
class _Known:
    """The state that a partition has of a producer."""

    producer_epoch: int
    last_sequence: int
    updated_ms: int = 0
    recent: deque[tuple[ProducerBatch, Verdict]] = field(default_factory=lambda: _no_batches())
    """The newest batches, oldest first, each with the verdict of the same batch once more."""

    def copy(self) -> _Known:
        """A copy that may be changed alone."""
        return _Known(self.producer_epoch, self.last_sequence, self.updated_ms, self.recent.copy())

    def verdict_of(self, batch: ProducerBatch) -> Verdict | None:
        """The verdict of a batch that is among the newest; None: it isn't."""
        for known, verdict in self.recent:
            if known.base_sequence == batch.base_sequence and known == batch:  # most differ in the sequence
                return verdict
        return None

    def may_have_before(self, batch: ProducerBatch) -> bool:
        """May the batch be stored before those that are known?"""
        if batch.producer_epoch != self.producer_epoch or len(self.recent) == _KEPT:
            return False
        oldest = self.recent[0][0] if self.recent else None
        if oldest is not None and oldest.producer_epoch != batch.producer_epoch:
            return False
        end = self.last_sequence + 1 if oldest is None else oldest.base_sequence
        return (end - 1 - batch.last_sequence) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2

    @property
    def has_newest(self) -> bool:
        """Is the batch known that ends with the last sequence?"""
        newest = self.recent[-1][0] if self.recent else None
        return newest is not None and (newest.producer_epoch, newest.last_sequence) == (
            self.producer_epoch,
            self.last_sequence,
        )


def batch_actions(batches: Sequence[tuple[int, ProducerBatch]], *, topic_id: str, now_ms: int) -> list[SetTransaction]:
    """The ``txn`` actions that record new batches of (partition, batch), in their order. ``now_ms``: wall clock."""
    newest = {(partition, batch.producer_id): batch for partition, batch in batches}
    return [
        SetTransaction(
            app_id=batches_app_id(topic_id, partition, producer_id),
            version=batch.producer_epoch << _SEQUENCE_BITS | batch.last_sequence,
            last_updated_ms=now_ms,
        )
        for (partition, producer_id), batch in newest.items()
    ]


def batch_info(batches: Sequence[tuple[int, ProducerBatch, int]]) -> Mapping[str, Any]:
    """The entry of ``commitInfo`` about new batches of (partition, batch, offset of its first record)."""
    rows = [
        [batch.producer_id, batch.producer_epoch, partition, batch.base_sequence, batch.count, offset]
        for partition, batch, offset in batches
    ]
    return {BATCHES_INFO: rows} if rows else {}


class ProducerBatches:
    """The batches of producers that one topic has, as of the newest entry that was noted."""

    def __init__(self, topic_id: str) -> None:
        self.is_complete = False
        """Was the topic loaded, so that a producer which isn't known has stored nothing (for days)?"""
        self.newest_version = -1
        """The newest entry that was noted."""
        self.known_from = 0
        """The first version of which the batches' offsets were noted, once the topic was loaded."""
        self.created_ms: int | None = None
        """When the topic's table was created, by the wall clock of who did it; None: that isn't known."""
        self._topic_id = topic_id
        self._known: dict[Key, _Known] = {}
        self._most = _MANY
        self._first: dict[Key, tuple[int, int]] = {}
        """Epoch and sequence of the first of the batches that were seen of a producer which isn't known."""

    def note_seen(self, partition: int, batches: Iterable[PlacedBatch]) -> None:
        """Note batches that are about to be judged, in the order of sending; may be another thread than the judge's.

        Of a producer that may have been forgotten any batch is taken, as in Kafka. If the first one that was seen can't
        be stored, the others must not be: they would be before it.
        """
        for batch in (placed.batch for placed in batches):
            key = (partition, batch.producer_id)
            if key in self._known:
                continue
            epoch, sequence = self._first.get(key, (-1, 0))
            is_before = epoch == batch.producer_epoch and _is_behind(sequence, batch.base_sequence)
            if epoch < batch.producer_epoch or is_before:
                if len(self._first) >= _MANY:
                    self._first.clear()
                self._first[key] = (batch.producer_epoch, batch.base_sequence)

    def note_entry(self, entry: Entry) -> None:
        """Note an entry that was applied."""
        self.newest_version = entry.version
        if self.is_complete:
            self._note(entry)

    def note_loaded(self, state: TopicState) -> None:
        """Note a topic that was loaded whole."""
        tail = () if state.whole is None else state.whole.tail
        if state.whole is not None:
            self.created_ms = state.whole.metadata.created_ms
        self.newest_version = state.position.version
        self.known_from = tail[0].version if tail else state.position.version + 1
        for known in self._known.values():  # between what they have and the tail others may be missing
            known.recent = _no_batches()
        for entry in tail:
            self._note(entry)
        for action in state.transactions.values():  # of producers of which the tail has nothing
            self._note_action(action)
        self.is_complete = True

    def note_older(self, entries: Iterable[Entry]) -> None:
        """Note entries of before those that were noted, oldest first: only their offsets are used."""
        newer = [(known, known.recent) for known in self._known.values()]
        for known, _ in newer:
            known.recent = _no_batches()
        for entry in entries:
            self._note_info(entry)
        for known, recent in newer:
            known.recent.extend(recent)

    def _note(self, entry: Entry) -> None:
        for action in entry.actions:
            if isinstance(action, SetTransaction):
                self._note_action(action)
        self._note_info(entry)

    def _note_info(self, entry: Entry) -> None:
        if entry.info is None or entry.info.get("topic_id") != self._topic_id:
            return
        for producer_id, epoch, partition, base_sequence, count, offset in _batches_of(entry):
            batch = ProducerBatch(
                producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence, count=count
            )
            known = self._known.get((partition, producer_id))
            if known is not None and known.verdict_of(batch) is None:
                known.recent.append((batch, Verdict(offset=offset)))

    def _note_action(self, action: SetTransaction) -> None:
        parsed = parse_batches_app_id(action.app_id)
        if parsed is None or parsed[0] != self._topic_id:
            return
        key = parsed[1:]
        epoch, sequence = unpacked(action.version)
        known = self._known.get(key)
        if known is None:
            self._first.pop(key, None)
            self._known[key] = known = _Known(epoch, sequence)
        known.producer_epoch, known.last_sequence = epoch, sequence
        known.updated_ms = action.last_updated_ms
        if len(self._known) > self._most:
            self._forget_old(action.last_updated_ms - _FORGET_MS)

    def _forget_old(self, before_ms: int) -> None:
        self._known = {key: known for key, known in self._known.items() if known.updated_ms >= before_ms}
        self._most = max(_MANY, 2 * len(self._known))

    def knows_all(self, state: TopicState) -> Callable[[int], bool]:
        """Whether every producer that has ever stored a numbered batch in a partition is known, by partition: none has
        where the log never had a record, and none is forgotten in a topic younger than producers are remembered.

        Args:
            state: of the topic, as of the newest entry that was noted.
        """
        ends, created_ms = state.head.log_end_offsets, self.created_ms
        is_young = created_ms is not None and state.log.clock.now_ms() - created_ms < PRODUCER_EXPIRATION_MS
        return lambda partition: is_young or (partition < len(ends) and ends[partition] == 0)

    def judge(self, batches: Sequence[tuple[int, ProducerBatch]], *, knows_all: Callable[[int], bool]) -> list[Verdict]:
        """Which of these batches, of (partition, batch), are to be stored together, in their order. Pure.

        Source of the rules: Kafka ``ProducerAppendInfo.checkSequence``, ``ProducerStateEntry.findDuplicateBatch``. A
        batch that ends with the last sequence of its epoch is stored, though its entry was cleaned away, and with it
        the offset: Kafka's clients take ``DUPLICATE_SEQUENCE_NUMBER`` for success. The first batch of a producer begins
        at 0, unless the producer may have been forgotten: else a batch that overtook it would keep it out for ever.

        Args:
            knows_all: as :meth:`knows_all` returns it.
        """
        drafts: dict[Key, _Known | None] = {}
        verdicts = []
        for place, (partition, batch) in enumerate(batches):
            key = (partition, batch.producer_id)
            if key not in drafts:
                known = self._known.get(key)
                drafts[key] = None if known is None else known.copy()
            verdict = self._judge_one(key, drafts[key], batch, knows_all)
            if verdict.is_new:
                draft = drafts[key] or _Known(0, 0)
                draft.producer_epoch, draft.last_sequence = batch.producer_epoch, batch.last_sequence
                draft.recent.append((batch, Verdict(same_as=place)))
                drafts[key] = draft
            verdicts.append(verdict)
        return verdicts

    @property
    def search_from(self) -> int:
        """The first version that is looked at for a batch that is repeated."""
        return max(0, self.newest_version + 1 - _MOST_VERSIONS_BACK)

    def may_be_older(self, batches: Iterable[tuple[int, ProducerBatch]]) -> bool:
        """May one of these batches, of (partition, batch), be stored by an entry before those that were noted?"""
        return self.known_from > self.search_from and any(
            known is not None and known.may_have_before(batch)
            for known, batch in ((self._known.get((partition, one.producer_id)), one) for partition, one in batches)
        )

    def _judge_one(
        self, key: Key, known: _Known | None, batch: ProducerBatch, knows_all: Callable[[int], bool]
    ) -> Verdict:
        if known is None:
            if batch.base_sequence and knows_all(key[0]):
                return _out_of_order(key, batch, 0)
            epoch, sequence = self._first.get(key, (-1, 0))
            is_too_early = epoch == batch.producer_epoch and _is_behind(batch.base_sequence, sequence)
            return _out_of_order(key, batch, sequence) if is_too_early else Verdict()
        again = known.verdict_of(batch)
        if again is not None:
            return again
        if batch.producer_epoch < known.producer_epoch:
            partition, producer_id = key
            return Verdict(
                error=InvalidProducerEpochError(
                    f"partition {partition} has epoch {known.producer_epoch} of producer {producer_id}; "
                    f"got a batch of epoch {batch.producer_epoch}"
                )
            )
        is_same_epoch = batch.producer_epoch == known.producer_epoch
        expected = next_sequence(known.last_sequence, 1) if is_same_epoch else 0
        if batch.base_sequence == expected:
            return Verdict()
        if self.may_be_older([(key[0], batch)]):
            return _not_known_yet(key, batch)
        if is_same_epoch and batch.last_sequence == known.last_sequence and not known.has_newest:
            return _stored_before(key, batch)
        return _out_of_order(key, batch, expected)


def _is_behind(sequence: int, other: int) -> bool:
    """Does a sequence come after another one?"""
    return 0 < (sequence - other) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2


def _no_batches() -> deque[tuple[ProducerBatch, Verdict]]:
    return deque(maxlen=_KEPT)


def _out_of_order(key: Key, batch: ProducerBatch, expected: int) -> Verdict:
    return Verdict(
        error=OutOfOrderSequenceError(
            f"{_named(key, batch)}: got a batch of sequence {batch.base_sequence} to {batch.last_sequence}, "
            f"expected {expected}"
        )
    )


def _not_known_yet(key: Key, batch: ProducerBatch) -> Verdict:
    """The topic was loaded anew while the batch was on its way: it is looked for when it comes again."""
    return Verdict(
        error=CommitStateUnknownError(
            f"{_named(key, batch)}: whether the batch of sequence {batch.base_sequence} to {batch.last_sequence} is "
            "stored wasn't looked up in time; send it again"
        )
    )


def _stored_before(key: Key, batch: ProducerBatch) -> Verdict:
    return Verdict(
        error=DuplicateSequenceError(
            f"{_named(key, batch)}: the batch of sequence {batch.base_sequence} to {batch.last_sequence} is stored, "
            "and the log entry with its offset was deleted"
        )
    )


def _named(key: Key, batch: ProducerBatch) -> str:
    partition, producer_id = key
    return f"partition {partition}, producer {producer_id}, epoch {batch.producer_epoch}"


def unpacked(version: int) -> tuple[int, int]:
    """Epoch and last sequence of a ``txn`` action's version."""
    return version >> _SEQUENCE_BITS, version & (SEQUENCE_MODULUS - 1)


def load_batches(
    state: TopicState, batches: ProducerBatches, *, wanted: Sequence[tuple[int, ProducerBatch]], deadline: Deadline
) -> TopicState:
    """The topic loaded whole, so that ``batches``, which observes it, knows all producers; once for a writer.

    Besides loading, a GET for each version that lies before those which loading reads, 128 in all at most, and a LIST;
    and what :func:`search_older_batches` costs. Raises ``StoreError``, and as :func:`~sparklog.log.state.open_state`.
    """
    loaded = retry(lambda: reload_state(state), deadline=deadline)
    _look_back(loaded.log, batches, loaded.position.version + 1 - _VERSIONS_BACK, deadline=deadline)
    search_older_batches(loaded, batches, wanted, deadline=deadline)
    return loaded


def search_older_batches(
    state: TopicState, batches: ProducerBatches, wanted: Sequence[tuple[int, ProducerBatch]], *, deadline: Deadline
) -> None:
    """Note entries of further back, as long as one of the ``wanted`` batches, of (partition, batch), may lie there.

    A GET for each version, 4,096 at most for each time that the topic is loaded, and a LIST for each 128 of them.
    Raises ``StoreError``.
    """
    while batches.may_be_older(wanted):
        first = max(batches.search_from, batches.known_from - _VERSIONS_BACK)
        _look_back(state.log, batches, first, deadline=deadline)


def _look_back(log: DeltaLog, batches: ProducerBatches, first: int, *, deadline: Deadline) -> None:
    """Note the entries from this version on that lie before those which are known."""
    older = range(max(0, first), batches.known_from)
    if not older:
        return
    try:
        entries = retry(lambda: _entries_left(log, older), deadline=deadline)
    except CorruptLogError:  # below the checkpoint nobody else needs it, so an append mustn't fail by it
        entries = []
    batches.note_older(entries)
    batches.known_from = older.start if len(entries) == len(older) else 0


def _entries_left(log: DeltaLog, versions: Sequence[int]) -> list[Entry]:
    """The entries that no cleanup was to delete. Below the mark of one a process that slept may have created another
    entry under a name that became free (rule L3, cleanup)."""
    found = log.read_raw_entries(versions)
    mark = log.cleaned_below()
    return [one[0] for version, one in zip(versions, found, strict=True) if one is not None and version >= mark]


def _batches_of(entry: Entry) -> Sequence[Sequence[int]]:
    """The batches that an entry lists. Raises ``CorruptLogError`` where these are none."""
    listed = (entry.info or {}).get(BATCHES_INFO, ())
    for batch in listed if isinstance(listed, list | tuple) else [listed]:
        if not isinstance(batch, list | tuple) or len(batch) != _BATCH_FIELDS or {*map(type, batch)} != {int}:
            raise CorruptLogError(f"version {entry.version}: {BATCHES_INFO} lists {batch!r:.100}, expected six numbers")
    return listed  # type: ignore[no-any-return]
