"""Entries of another topic in a topic's log: finding them, and setting them aside (rule L8, one log).

An entry on which nothing stands is moved: copied into a folder ``_set_aside/`` of the log, and then deleted under its
own name, which becomes free again. Nobody of the topic can stand on it, as its clients refuse it; a client of the other
topic, whose position it is, finds it gone and loads the log. It may trust its position for ``tail_trust_ms`` still, so
it is moved only once that has passed without a further entry. Where entries stand on it, it stays, and an entry of ours
names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace

from sparklog.delta.actions import Entry
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path, set_aside_path
from sparklog.delta.snapshot import load_snapshot
from sparklog.errors import CorruptLogError, KafkaTimeoutError, SparklogError, UnsupportedVersionError
from sparklog.integrity.findings import Code, Finding, Subject
from sparklog.integrity.log_listing import LogListing, list_log_folder
from sparklog.log.commit import Commit, commit
from sparklog.log.other_topic import ACCEPTED_INFO, TopicIds, other_topic_error
from sparklog.log.shape import ID_PROPERTY
from sparklog.log.state import TopicState, load_state
from sparklog.storage.each_alone import read_each

__all__ = ["OtherTopics", "accepted_versions", "other_topics_findings", "set_aside", "without_accepted"]

_READ_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherTopics:
    """The entries of another topic in a log, from its newest checkpoint on."""

    topic_id: str
    """The topic's id."""
    entries: tuple[Entry, ...]
    removable: tuple[Entry, ...]
    """The newest of the log, on which nothing stands, or which lie beyond a gap."""
    accepted: frozenset[int]
    """Versions that a repair has named."""

    @property
    def left(self) -> list[int]:
        """The versions of those that stay and that no repair has named yet."""
        gone = {entry.version for entry in self.removable}
        return [e.version for e in self.entries if e.version not in gone and e.version not in self.accepted]


def find_other_topics(log: DeltaLog, listing: LogListing) -> OtherTopics:
    """Read a log from its newest checkpoint on. Entries that can't be read are passed over."""
    checkpoint = listing.checkpoint_version
    versions = [version for version in listing.entries if version >= max(0, checkpoint)]
    entries = list(_read(log, versions))
    ids = TopicIds(_first_id(log, checkpoint, entries))
    accepted: set[int] = set()
    beyond: list[Entry] = []
    before = checkpoint
    for entry in entries:
        is_other = ids.apply(entry)
        is_gap = before >= 0 and entry.version > before + 1
        beyond = [*beyond, entry] if is_other and (beyond or is_gap) else []
        accepted |= accepted_versions(entry)
        before = entry.version
    newest = {entry.version: entry for entry in (*ids.refused, *beyond)}
    return OtherTopics(
        topic_id=ids.topic_id,
        entries=tuple(ids.others),
        removable=tuple(entry for _, entry in sorted(newest.items())),
        accepted=frozenset(accepted),
    )


def _read(log: DeltaLog, versions: list[int]) -> Iterator[Entry]:
    for start in range(0, len(versions), _READ_AT_ONCE):
        some = versions[start : start + _READ_AT_ONCE]
        for version, data in zip(some, read_each(log.store, [log.path_of(one) for one in some]), strict=True):
            try:
                if isinstance(data, bytes):
                    yield log.decode(version, data)
            except (CorruptLogError, UnsupportedVersionError):  # findings of their own
                continue


def _first_id(log: DeltaLog, checkpoint: int, entries: list[Entry]) -> str:
    """The topic's id as of the checkpoint, or of the oldest entry that states one."""
    try:
        snapshot = load_snapshot(log, version=checkpoint) if checkpoint >= 0 else None
    except SparklogError:  # a finding of its own
        snapshot = None
    if snapshot is not None:
        return snapshot.metadata.configuration.get(ID_PROPERTY, "")
    stated = (entry.info.get("topic_id") for entry in entries if entry.info is not None)
    return str(next((one for one in stated if one), ""))


def accepted_versions(entry: Entry) -> set[int]:
    """The versions of entries of another topic that a repair's entry names."""
    named = (entry.info or {}).get(ACCEPTED_INFO, ())
    return {one for one in named if isinstance(one, int)} if isinstance(named, list) else set()


def without_accepted(findings: Iterable[Finding], accepted: Set[int]) -> list[Finding]:
    """The findings, those of entries that a repair has named as what they are since."""
    return [
        replace(one, code=Code.TOPIC_ID_ACCEPTED)
        if one.code is Code.TOPIC_ID_WRONG and one.subject.delta_version in accepted
        else one
        for one in findings
    ]


def other_topics_findings(log: DeltaLog, listing: LogListing, topic: str) -> Iterator[Finding]:
    """The entries of other topics in a log that can't be loaded."""
    found = find_other_topics(log, listing)
    for entry in found.entries:
        stated = None if entry.info is None else entry.info.get("topic_id")
        yield Finding(
            code=Code.TOPIC_ID_ACCEPTED if entry.version in found.accepted else Code.TOPIC_ID_WRONG,
            subject=Subject(topic=topic, delta_version=entry.version),
            seen=str(other_topic_error(log.table, entry.version, stated=stated, topic_id=found.topic_id)),
            expected=f"topic id {found.topic_id}",
        )


def set_aside(log: DeltaLog, *, now_ms: int, timeout_ms: float) -> list[str]:
    """Set aside the entries of another topic on which nothing stands, and name those that stay. Safe to repeat, to
    kill, and to run beside clients.

    Args:
        now_ms: the store's time.
    Returns:
        What was done, a line each.
    Raises:
        KafkaTimeoutError: the newest entry is too young, or others write: repair again later.
        CorruptLogError, StoreError, …: see :func:`~sparklog.log.commit.commit`.
    """
    listing = list_log_folder(log)
    found = find_other_topics(log, listing)
    done: list[str] = []
    if found.removable:
        newest = found.removable[-1].version
        left_ms = log.tail_trust_ms - (now_ms - listing.entries[newest])
        if left_ms > 0:
            raise KafkaTimeoutError(
                f"{log.table}, version {newest}, is an entry of another topic and younger than "
                f"{log.tail_trust_ms / 1000:g} s: its writer may go on: repair again in {left_ms / 1000:.0f} s"
            )
        for entry in reversed(found.removable):  # the newest first: what is left has nothing on it, either
            done.append(_move(log, entry))
    if found.left or done:
        _commit_repair(log, found.left, timeout_ms)
    if found.left:
        named = ", ".join(map(str, found.left))
        done.append(f"named the entries of another topic that stay, as others stand on them: versions {named}")
    return done


def _move(log: DeltaLog, entry: Entry) -> str:
    path = entry_path(log.table, entry.version)
    if list_log_folder(log).newest != entry.version:
        raise KafkaTimeoutError(f"{log.table}: another entry came after version {entry.version}: repair again")
    data = log.store.read(path)
    if log.decode(entry.version, data).token != entry.token:
        raise KafkaTimeoutError(f"{log.table}: version {entry.version} is another entry by now: repair again")
    aside = set_aside_path(log.table, entry.version, entry.token)
    log.store.put(aside, data, sync=True)
    log.store.delete([path])
    return f"set version {entry.version} aside, an entry of another topic: {aside}"


def _commit_repair(log: DeltaLog, left: list[int], timeout_ms: float) -> None:
    """An entry of the topic's: it takes the name that became free, and names those that stay."""
    state = load_state(log)
    topic_id, is_asked = state.head.topic_id, False

    def decide(now: TopicState) -> Commit | None:
        nonlocal is_asked
        if now.head.topic_id != topic_id or (is_asked and not left):
            return None  # another entry of the topic has the name
        is_asked = True
        info = {ACCEPTED_INFO: left} if left else {}
        return Commit(actions=(), head=now.head, operation="REPAIR", info=info)

    commit(state, decide, deadline=log.clock.deadline_in(timeout_ms), sync=True)
