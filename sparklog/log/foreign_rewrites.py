"""Judging what the commits of other engines do to records that have offsets (rule F6, moved records). Pure.

Another engine may delete records, change their values and pack their files anew. It may not give offsets: for each
partition and base offset a commit of another engine has no more records than it removed, and no offset that it didn't
remove. A file that breaks this is refused. Where the commit removed records that it didn't put back, their partition
stops: who read on would pass over them.

The verdicts are ``txn`` actions, which the next commit of ours writes: so they outlive the log's entries. Whoever
loads a table judges the entries behind its checkpoint again, and comes to the same.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sparklog.delta.actions import FAR_FUTURE_MS, AddFile, Entry, RemoveFile, SetTransaction
from sparklog.log.data.refused import ForeignRewrites, Stop
from sparklog.log.data.segments import Segment

__all__ = ["facts_of", "gives_offsets", "judge", "record_actions", "rewrites_of", "still_unrecorded", "unrecorded"]

_REFUSED = "sparklog.refused."
_STOPPED = "sparklog.stopped."
_JUDGED = "sparklog.judged"
_STOP = re.compile(re.escape(_STOPPED) + r"(\d+)\.(\d+)\.(.*)", re.DOTALL)
_MOST_ENGINE_CHARACTERS = 200

_Key = tuple[int | None, int | None]
"""Partition and base offset."""


def gives_offsets(entry: Entry) -> bool:
    """Is it a commit of another engine that adds a file with a base offset? Only such a one is judged.

    A tool that gives offsets, knowing the topic's, says so: its commit states its own version as judged.
    """
    if entry.info is not None:
        return False
    adds = (action for action in entry.actions if isinstance(action, AddFile))
    if all(add.partition_values.get("base_offset") in (None, "") for add in adds):
        return False
    said = (action for action in entry.actions if isinstance(action, SetTransaction) and action.app_id == _JUDGED)
    return all(action.version < entry.version for action in said)


def judge(
    known: ForeignRewrites, entry: Entry, added: Sequence[Segment], live: Mapping[str, Segment]
) -> ForeignRewrites:
    """The facts after a commit of another engine.

    Args:
        added: the files that it adds, with the statistics that are to be had.
        live: the files that were live before, by path.
    """
    placed = [segment for segment in added if segment.base_offset is not None]
    if not placed:
        return known
    names = {action.path for action in entry.actions if isinstance(action, RemoveFile)}
    names |= {segment.path for segment in placed}  # a path that is live is described anew
    gone = [live[path] for path in names if path in live and live[path].base_offset is not None]
    if entry.commit_info.get("operation") == "RESTORE":  # what comes back was judged when it came first
        return ForeignRewrites(refused=known.refused, stops=known.stops, judged_version=entry.version)
    moved_by = _moves(known, gone)
    blamed = min(moved_by, default=entry.version)
    refused, partitions = _verdict(known, placed, gone, blamed, is_inherited=bool(moved_by))
    if refused:
        partitions |= {one.partition for one in known.stops if one.version in moved_by}
    engine = next((one.engine for one in known.stops if one.version == blamed), _engine(entry))
    stops = (Stop(partition=partition, version=blamed, engine=engine) for partition in sorted(partitions))
    return ForeignRewrites(
        refused={**known.refused, **refused} if refused else known.refused,
        stops=tuple(dict.fromkeys((*known.stops, *stops))),
        judged_version=entry.version,
    )


def _moves(known: ForeignRewrites, gone: Sequence[Segment]) -> set[int]:
    """The versions that moved records, among those that removed files are blamed on. Whatever the commit writes of such
    files keeps their partitions stopped, under the oldest of these versions: undoing it returns all records."""
    stopping = {one.version for one in known.stops}
    return {known.refused[one.path] for one in gone if one.path in known.refused} & stopping


def _verdict(
    known: ForeignRewrites, placed: Sequence[Segment], gone: Sequence[Segment], version: int, *, is_inherited: bool
) -> tuple[dict[str, int], set[int]]:
    """The files that are refused, with the versions that are to blame, and the partitions that stop.

    Args:
        version: the one that is to blame for what the commit did.
        is_inherited: it is also to blame for every other file that this commit has refused.
    """
    removed, added = _by_key(one for one in gone if one.path not in known.refused), _by_key(placed)
    inherited = {_key(one): known.refused[one.path] for one in gone if one.path in known.refused}
    refused: dict[str, int] = {}
    partitions: set[int] = set()
    is_elsewhere = False
    for key, files in added.items():
        if key in removed:
            if _keeps_offsets(removed[key], files):
                continue
            partitions |= {key[0]} if key[0] is not None else set()
            blamed = version
        else:
            files = [one for one in files if one.path not in known.refused]
            blamed = version if is_inherited else inherited.get(key, version)
            is_elsewhere |= key not in inherited and bool(files)
        refused.update((one.path, blamed) for one in files)
    if is_elsewhere:
        kept = {key: files for key, files in added.items() if key in removed and files[0].path not in refused}
        partitions |= {key[0] for key, files in removed.items() if key[0] is not None and _loses(files, kept.get(key))}
    return refused, partitions


def _keeps_offsets(removed: Sequence[Segment], added: Sequence[Segment]) -> bool:
    """Can the added files of one base offset hold records of the removed ones alone? True where the statistics are
    missing: a file that can't be read has an error of its own."""
    before, after = _count(removed), _count(added)
    if before is None or after is None:
        return True
    least, most = min(one.first_offset for one in removed), max(one.last_offset for one in removed)
    covered = 0
    end = least
    for one in sorted(added, key=lambda one: one.first_offset):
        if one.first_offset < least or one.last_offset > most:
            return False
        covered += max(0, one.last_offset + 1 - max(end, one.first_offset))
        end = max(end, one.last_offset + 1)
    return after <= before and after <= covered


def _loses(removed: Sequence[Segment], added: Sequence[Segment] | None) -> bool:
    before, after = _count(removed), 0 if added is None else _count(added)
    return before is None or after is None or after < before


def _count(files: Sequence[Segment]) -> int | None:
    counts = [one.record_count for one in files]
    ranges = [bound for one in files for bound in (one.min_offset_delta, one.max_offset_delta)]
    return None if None in counts or None in ranges else sum(count or 0 for count in counts)


def _by_key(files: Iterable[Segment]) -> dict[_Key, list[Segment]]:
    found: dict[_Key, list[Segment]] = defaultdict(list)
    for one in files:
        found[_key(one)].append(one)
    return found


def _key(segment: Segment) -> _Key:
    return segment.partition, segment.base_offset


def _engine(entry: Entry) -> str:
    info = entry.commit_info
    engine = str(info.get("engineInfo") or info.get("clientVersion") or "another engine")
    return f"{engine} ({info.get('operation') or 'an operation without a name'})"[:_MOST_ENGINE_CHARACTERS]


def facts_of(rewrites: ForeignRewrites) -> dict[str, int]:
    """The facts as ``txn`` actions keep them: a number by ``appId``."""
    found = {f"{_REFUSED}{path}": version for path, version in rewrites.refused.items()}
    found |= {f"{_STOPPED}{one.partition}.{one.version}.{one.engine}": one.version for one in rewrites.stops}
    return found | ({_JUDGED: rewrites.judged_version} if rewrites.judged_version >= 0 else {})


def rewrites_of(transactions: Mapping[str, SetTransaction]) -> ForeignRewrites:
    """The facts that a table's ``txn`` actions state."""
    judged = transactions.get(_JUDGED)
    if judged is None:
        return ForeignRewrites()
    stops = ((_STOP.fullmatch(name), txn) for name, txn in transactions.items() if name.startswith(_STOPPED))
    return ForeignRewrites(
        refused={
            name.removeprefix(_REFUSED): txn.version for name, txn in transactions.items() if name.startswith(_REFUSED)
        },
        stops=tuple(
            Stop(partition=int(found[1]), version=txn.version, engine=found[3])
            for found, txn in sorted(stops, key=lambda pair: pair[1].version)
            if found is not None
        ),
        judged_version=judged.version,
    )


def unrecorded(rewrites: ForeignRewrites, transactions: Mapping[str, SetTransaction]) -> dict[str, int]:
    """The facts that no ``txn`` action states yet."""
    return {
        name: version
        for name, version in facts_of(rewrites).items()
        if (found := transactions.get(name)) is None or found.version < version
    }


def still_unrecorded(facts: Mapping[str, int], entry: Entry) -> dict[str, int]:
    """The facts that are left to be recorded after an entry."""
    recorded = {action.app_id: action.version for action in entry.actions if isinstance(action, SetTransaction)}
    return {name: version for name, version in facts.items() if recorded.get(name, -1) < version}


def record_actions(facts: Mapping[str, int]) -> list[SetTransaction]:
    """The ``txn`` actions that record facts for good."""
    return [
        SetTransaction(app_id=name, version=version, last_updated_ms=FAR_FUTURE_MS) for name, version in facts.items()
    ]
