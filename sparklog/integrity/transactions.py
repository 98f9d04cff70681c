"""The logs of transactional ids, and what topics have of the transactions that they decide.

A transaction's records are in a topic if, and only if, an entry ``PrepareCommit`` names them; where the entry after it
says so, everywhere (protocol rules T1, deciding number, to
T4, open sessions). Entries are read before the topics are, so that what is complete there
must be in a topic that is loaded afterwards; what a topic has beyond them is looked up again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from sparklog.errors import CorruptLogError, InvalidTxnStateError, StoreError, UnsupportedVersionError
from sparklog.integrity.findings import Code, Counts, Finding, Subject
from sparklog.integrity.history import Published
from sparklog.integrity.log_listing import holes, list_numbered
from sparklog.integrity.unread import unread
from sparklog.log.cluster import Cluster
from sparklog.log.publishing import marker_app_id
from sparklog.paths import transaction_log
from sparklog.storage.each_alone import check_of_one, each_alone, read_each
from sparklog.txn.cleaning import KEEP_MS
from sparklog.txn.entries import TransactionEntry, TransactionLog, open_transaction_log
from sparklog.txn.overview import SessionMarker, may_be_open, readable_markers, transactional_ids
from sparklog.txn.states import STEPS, TransactionState, check_step

__all__ = ["TopicTransactions", "TransactionsSeen", "check_gone_topics", "check_topic_transactions", "see_transactions"]

UNFINISHED_MS = 5_000
"""A decision that is as old is left lying: its producer carries it out within that."""
_READ_AT_ONCE = 64
_UNREADABLE = Code.TRANSACTION_UNREADABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    """A transaction that is committed."""

    entry: TransactionEntry
    is_complete: bool
    """An entry says that it is carried out everywhere."""


@dataclass(slots=True, kw_only=True)
class _Log:
    """One transactional id's log, as it was read."""

    transactional_id: str
    findings: list[Finding] = field(default_factory=list)
    oldest: int = 0
    """The oldest number of the run that ends at the newest entry; 0 where there is none."""
    newest: TransactionEntry | None = None
    newest_ms: int = 0
    """Its modification time."""
    commits: dict[int, _Commit] = field(default_factory=dict)
    """By number: those of the run."""
    expired_at: int = 0
    """Number of the newest entry that took the id from whoever had it: topics may forget what came before. 0: none is
    kept."""

    def report(self, code: Code, seen: str, expected: str, topic: str | None = None) -> None:
        subject = Subject(topic=topic, transactional_id=self.transactional_id)
        self.findings.append(Finding(code=code, subject=subject, seen=seen, expected=expected))


@dataclass(kw_only=True)
class TransactionsSeen:
    """The logs of all transactional ids. What is asked for each topic is looked up in an index, which is made once."""

    cluster: Cluster
    logs: Mapping[str, _Log]

    @property
    def findings(self) -> list[Finding]:
        """The findings about all transactional ids."""
        return [finding for log in self.logs.values() for finding in log.findings]

    @property
    def counts(self) -> Counts:
        """How many transactional ids were looked at, and how many of their commits."""
        commits = sum(len(log.commits) for log in self.logs.values())
        return Counts(transactional_ids=len(self.logs), transactions=commits)

    @cached_property
    def producer_ids(self) -> set[int]:
        """The producer ids of the newest epochs."""
        return {log.newest.header.producer_id for log in self.logs.values() if log.newest is not None}

    def files_in_use(self, topic: str) -> Collection[str]:
        """The paths in a topic that decisions name which may not be carried out yet."""
        return self._in_use.get(topic, ())

    @cached_property
    def _in_use(self) -> Mapping[str, Collection[str]]:
        found: dict[str, set[str]] = {}
        for log in self.logs.values():
            for commit in log.commits.values():
                for topic, named in commit.entry.contents.topics.items() if not commit.is_complete else ():
                    found.setdefault(topic, set()).update(file.path for file in named.files)
        return found

    def complete_in(self, topic: str, topic_id: str) -> Sequence[tuple[_Log, int, int]]:
        """The transactions that are carried out everywhere and have files for a topic: the id's log, the number, and
        how many files; by id and number."""
        return self._complete.get((topic, topic_id), ())

    @cached_property
    def _complete(self) -> Mapping[tuple[str, str], Sequence[tuple[_Log, int, int]]]:
        found: dict[tuple[str, str], list[tuple[_Log, int, int]]] = {}
        for log in self.logs.values():
            for number, commit in log.commits.items():
                for topic, named in commit.entry.contents.topics.items() if commit.is_complete else ():
                    if named.files:
                        found.setdefault((topic, named.topic_id), []).append((log, number, len(named.files)))
        return found


@dataclass(slots=True)
class TopicTransactions:
    """Compares what one topic publishes, entry by entry, with what was decided."""

    topic: str
    seen: TransactionsSeen
    findings: list[Finding] = field(default_factory=list)
    numbers: dict[str, set[int]] = field(default_factory=dict)
    """By transactional id: of the transactions that the kept log publishes, those that entries name."""
    first_numbers: dict[str, int] = field(default_factory=dict)
    """By transactional id: of the first transaction that the log which is kept publishes."""

    def meet(self, published: Published) -> None:
        """The topic's log publishes a transaction."""
        name, number = published.transactional_id, published.number
        self.first_numbers.setdefault(name, number)
        log = self.seen.logs.get(name)
        if log is not None and 0 < log.oldest > number:
            return  # its entry was cleaned: it was settled everywhere before (rule T6, an id's log)
        commit = log.commits.get(number) if log is not None else None
        entry = commit.entry if commit is not None else self._look_again(name, number)
        if entry is None:
            return
        self.numbers.setdefault(name, set()).add(number)
        self._compare(published, entry)

    def _look_again(self, name: str, number: int) -> TransactionEntry | None:
        """An entry that wasn't there, or is no commit. None: a finding was made, or it was cleaned meanwhile."""
        log = open_transaction_log(self.seen.cluster, name)
        try:
            entry = log.read_entry(number)
            if entry is not None and entry.state is TransactionState.PREPARE_COMMIT:
                return entry
            if entry is None and number < max(log.numbers(), default=0):
                return None
        except (CorruptLogError, UnsupportedVersionError):  # a finding about the id
            return None
        except StoreError as error:  # the same
            check_of_one(log.store, error)
            return None
        self._tell(
            Code.TRANSACTION_NOT_COMMITTED,
            name,
            f"the topic has transaction {number}, whose entry is {'not there' if entry is None else entry.state.value}",
            "only transactions that are committed",
        )
        return None

    def _compare(self, published: Published, entry: TransactionEntry) -> None:
        named = entry.contents.topics.get(self.topic)
        if named is None or named.topic_id != published.topic_id:
            self._tell(
                Code.TRANSACTION_NOT_COMMITTED,
                published.transactional_id,
                f"version {published.delta_version} has transaction {published.number}, whose entry doesn't name the "
                f"topic of id {published.topic_id}",
                "what the entry names",
            )
            return
        expected = {file.path: (file.partition, file.record_count) for file in named.files}
        if expected != dict(published.records):
            wrong = sorted(path for path in {*expected, *published.records} if _differ(path, expected, published))
            self._tell(
                Code.TRANSACTION_DIFFERS,
                published.transactional_id,
                f"version {published.delta_version} has {len(published.records)} files of transaction "
                f"{published.number}; {len(wrong)} aren't as decided: {', '.join(wrong[:3])}",
                f"the {len(expected)} files that its entry names, with their records",
            )

    def _tell(self, code: Code, transactional_id: str, seen: str, expected: str) -> None:
        subject = Subject(topic=self.topic, transactional_id=transactional_id)
        self.findings.append(Finding(code=code, subject=subject, seen=seen, expected=expected))


def check_topic_transactions(
    met: TopicTransactions, *, topic_id: str, markers: Mapping[str, int], is_whole: bool, is_sound: bool
) -> Iterator[Finding]:
    """Does a topic have every transaction that is complete and names it? Also reports what :meth:`meet` found. Pure.

    Args:
        topic_id: of the topic as it was loaded after the entries were read; it lives.
        markers: the version of each of its ``txn`` actions, by appId.
        is_whole: its log is kept from its first entry on.
        is_sound: all entries that are kept could be read.
    """
    yield from met.findings
    for log, number, file_count in met.seen.complete_in(met.topic, topic_id):
        name = log.transactional_id
        marker = markers.get(marker_app_id(name), 0)
        is_forgotten = number < log.expired_at and not marker
        # Those of a topic come in their order: behind the first that its log shows none may be left out.
        first = 0 if is_whole else met.first_numbers.get(name, number)
        is_left_out = is_sound and number > first and number not in met.numbers.get(name, ())
        if (marker < number and not is_forgotten) or is_left_out:
            yield Finding(
                code=Code.TRANSACTION_NOT_VISIBLE,
                subject=Subject(topic=met.topic, transactional_id=name),
                seen=f"transaction {number} isn't there; the newest is {marker}",
                expected=f"its {file_count} files: entry {number + 1} says that it is carried out",
            )


def check_gone_topics(seen: TransactionsSeen, topics: Mapping[str, str | None]) -> Iterator[Finding]:
    """Decisions that name topics which are no more. Pure.

    Args:
        topics: by name: the id of each that lives; None: unknown.
    """
    for name, log in seen.logs.items():
        gone = {
            (topic, named.topic_id)
            for commit in log.commits.values()
            for topic, named in commit.entry.contents.topics.items()
            if topics.get(topic, "") not in (None, named.topic_id)
        }
        for topic, topic_id in sorted(gone):
            yield Finding(
                code=Code.TRANSACTION_TOPIC_GONE,
                subject=Subject(topic=topic, transactional_id=name),
                seen=f"entries name the topic of id {topic_id}, which is no more",
                expected="nothing: what was meant for it is nowhere",
            )


def see_transactions(cluster: Cluster) -> TransactionsSeen:
    """Read the logs of all transactional ids, up to 32 at a time, and check each by itself.

    A LIST and a GET for each entry that is kept: those of ten minutes, or 500. Of one that can't be read there is a
    finding. Raises ``StoreError``: the store can't be read.
    """
    markers, unlisted = readable_markers(cluster)
    now_ms = cluster.clock.now_ms()
    ids = transactional_ids(cluster)
    found = each_alone(cluster.store, lambda name: _see(cluster, name, markers.get(name, ()), now_ms), ids)
    logs = {}
    for name, log in zip(ids, found, strict=True):
        logs[name] = _Log(transactional_id=name) if isinstance(log, Exception) else log
        errors = [one for one in (log, unlisted.get(name)) if isinstance(one, Exception)]
        logs[name].findings += [unread(one, Subject(transactional_id=name), _UNREADABLE) for one in errors]
    return TransactionsSeen(cluster=cluster, logs=logs)


def _see(cluster: Cluster, name: str, markers: Collection[SessionMarker], now_ms: int) -> _Log:
    seen = _Log(transactional_id=name)
    log = open_transaction_log(cluster, name)
    listed = list_numbered(cluster.store, transaction_log(name))
    if not listed:
        return seen
    for first, end in holes(listed):
        if _may_be_cleaned(listed, end):
            continue
        seen.report(
            Code.TRANSACTION_LOG_GAP,
            f"entries {first} to {end - 1} are missing, though {first - 1} and {end} are there",
            "every entry from the oldest that is kept on",
        )
    newest = seen.oldest = max(listed)
    while seen.oldest - 1 in listed:
        seen.oldest -= 1
    entries = _read(log, range(seen.oldest, newest + 1), seen)
    _check_chain(seen, entries)
    by_number = {entry.version: entry for entry in entries}
    for entry in entries:
        if entry.state is TransactionState.PREPARE_COMMIT:
            after = by_number.get(entry.version + 1)
            is_complete = after is not None and after.state is TransactionState.COMPLETE_COMMIT
            seen.commits[entry.version] = _Commit(entry=entry, is_complete=is_complete)
    seen.expired_at = max((entry.version for entry in entries if entry.is_expired), default=0)
    seen.newest = by_number.get(newest)
    seen.newest_ms = listed[newest]
    if seen.newest is not None:
        _check_age(log, seen, seen.newest, markers, now_ms=now_ms)
    return seen


def _may_be_cleaned(listed: Mapping[int, int], end: int) -> bool:
    """Whether a hole below entry ``end`` may be what a cleaning left that was killed: it deletes in no order (rule T6,
    an id's log).

    Args:
        listed: the modification time of each entry that is there.
    """
    newest = max(listed)
    return end < newest and listed[newest] - listed[end] >= KEEP_MS


def _read(log: TransactionLog, numbers: range, seen: _Log) -> list[TransactionEntry]:
    entries: list[TransactionEntry] = []
    for start in range(numbers.start, numbers.stop, _READ_AT_ONCE):
        chunk = range(start, min(start + _READ_AT_ONCE, numbers.stop))
        for number, data in zip(chunk, read_each(log.store, [log.path_of(one) for one in chunk]), strict=True):
            if isinstance(data, Exception):
                seen.findings.append(unread(data, Subject(transactional_id=seen.transactional_id), _UNREADABLE))
                continue
            if data is None:  # cleaned meanwhile, as may be all before it
                entries.clear()
                seen.oldest = number + 1
                continue
            try:
                entries.append(log.decode(number, data))
            except (CorruptLogError, UnsupportedVersionError) as error:
                seen.report(Code.TRANSACTION_UNREADABLE, str(error), "an entry that is whole")
    return entries


def _check_chain(seen: _Log, entries: list[TransactionEntry]) -> None:
    if entries and entries[0].version == 1:
        _check_pair(seen, None, entries[0])
    for before, after in pairwise(entries):
        if after.version == before.version + 1:
            _check_pair(seen, before, after)


def _check_pair(seen: _Log, before: TransactionEntry | None, after: TransactionEntry) -> None:
    token = before.token if before is not None else ""
    if after.previous != token:
        seen.report(
            Code.TRANSACTION_STEP,
            f"entry {after.version} follows an entry of token {after.previous!r}",
            f"{token!r}, that of the entry before it",
        )
    try:
        check_step(before.state if before is not None else None, after.state)
    except InvalidTxnStateError:
        allowed = sorted(state.value for state in STEPS[before.state if before is not None else None])
        seen.report(
            Code.TRANSACTION_STEP, f"entry {after.version} is {after.state.value}", f"one of {', '.join(allowed)}"
        )
        return
    if before is None:
        return
    was, is_ = before.header, after.header
    is_same = (was.producer_id, was.producer_epoch) == (is_.producer_id, is_.producer_epoch)
    is_next = is_.producer_epoch == was.producer_epoch + 1 if was.producer_id == is_.producer_id else True
    if (after.state is TransactionState.EMPTY and not (is_next and not is_same)) or (
        after.state is not TransactionState.EMPTY and not is_same
    ):
        seen.report(
            Code.TRANSACTION_STEP,
            f"entry {after.version}, {after.state.value}, is of epoch {is_.producer_epoch} of producer "
            f"{is_.producer_id}, after epoch {was.producer_epoch} of producer {was.producer_id}",
            "a new epoch with Empty, and only there",
        )


def _check_age(
    log: TransactionLog, seen: _Log, newest: TransactionEntry, markers: Collection[SessionMarker], *, now_ms: int
) -> None:
    age_ms = now_ms - seen.newest_ms
    if newest.state.is_prepared:
        if age_ms >= UNFINISHED_MS:
            what = "committed" if newest.state is TransactionState.PREPARE_COMMIT else "aborted"
            seen.report(
                Code.TRANSACTION_UNFINISHED,
                f"transaction {newest.version} was {what} {age_ms / 1000:.0f} s ago, and may not be carried out "
                "everywhere",
                "that to take a moment: the next producer with the id, idle consumers and recover_transactions do it",
            )
        return
    known = [marker for marker in markers if marker.number <= newest.version]
    idle_ms = min([age_ms, *(now_ms - marker.modified_ms for marker in known)])
    if newest.is_forced or idle_ms <= newest.header.abort_after_ms:
        return
    if any(may_be_open(log, newest, marker) for marker in known):
        seen.report(
            Code.TRANSACTION_TIMED_OUT,
            f"a transaction may be open: nothing was decided or begun for {idle_ms / 1000:.0f} s",
            f"a decision within transaction_timeout_ms={newest.header.timeout_ms}, or a producer that is closed",
        )


def _differ(path: str, expected: Mapping[str, tuple[int, int]], published: Published) -> bool:
    return expected.get(path) != published.records.get(path)
