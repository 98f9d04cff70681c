"""The newest commits of a topic, and what two of its versions differ in: all of it from the Delta log's entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparklog.config import TopicConfig
from sparklog.delta.actions import AddFile, Entry, Metadata, RemoveFile, SetTransaction
from sparklog.errors import InvalidArgumentError
from sparklog.log.cluster import Cluster
from sparklog.log.head import TopicHead, head_of_info
from sparklog.log.publishing import transactional_id_of
from sparklog.schemas import ValueSchema

__all__ = [
    "CommitSummary",
    "PartitionChange",
    "SettingChange",
    "VersionsCompared",
    "changed_fields",
    "compare_versions",
    "newest_commits",
]

_MOST_COMPARED = 2_000
_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSummary:
    """One commit of a topic."""

    version: int
    time_ms: int | None
    """By its writer's clock, ms since the epoch; None: it doesn't say."""
    operation: str
    engine: str
    added_files: int
    removed_files: int
    added_bytes: int
    added_records: int | None
    """Records of the files that it added; None where the number of one is unknown."""
    is_rewrite: bool
    """Did it only write anew what was there?"""
    transactional_ids: tuple[str, ...]
    """Ids of the transactions whose records it published; empty for others."""
    changes_table: bool
    """Does it change settings, partitions or the schema?"""
    is_of_earlier: bool
    """Is it of an earlier topic of this name, which was deleted since? Its records can't be shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A partition in two versions; offsets are None where a version has none."""

    partition: int
    start_before: int | None
    end_before: int | None
    start_after: int | None
    end_after: int | None

    @property
    def added_records(self) -> int | None:
        """Offsets that were given between the versions."""
        if self.end_before is None or self.end_after is None:
            return None
        return self.end_after - self.end_before


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting of the topic that differs between two versions."""

    name: str
    before: object
    after: object


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionsCompared:
    """The difference between two versions."""

    before: int
    after: int
    before_ms: int | None
    after_ms: int | None
    partitions: tuple[PartitionChange, ...]
    operations: tuple[tuple[str, int], ...]
    """Commits behind ``before`` up to ``after`` by their operation, most first."""
    added_files: int
    removed_files: int
    added_bytes: int
    settings: tuple[SettingChange, ...] | None
    """Settings that differ; None where a version is another engine's, which has none."""
    schema_ids: tuple[int, int] | None
    """The newest schema of the values in each version, 0 for none; None as above. Ids of an earlier topic are its own:
    the topic that is there now has other schemas under them."""
    of_earlier: tuple[int, ...]
    """The versions, of the two, that are of an earlier topic of this name, which was deleted since: their records can't
    be shown."""

    @property
    def has_other_schemas(self) -> bool:
        """Is there a schema of an earlier topic in it, of which the fields aren't known any more?"""
        return bool(self.of_earlier) and self.schema_ids is not None and any(self.schema_ids)


def newest_commits(cluster: Cluster, topic: str, newest: int, count: int, *, topic_id: str) -> list[CommitSummary]:
    """The commits up to a version, newest first; those whose entries were cleaned away are left out.

    Args:
        topic_id: of the topic that is there now.
    Raises:
        CorruptLogError, UnsupportedVersionError, StoreError.
    """
    entries = _entries(cluster, topic, range(max(0, newest - count + 1), newest + 1))
    return [_summary(entry, topic_id) for entry in reversed(entries) if entry is not None]


def compare_versions(cluster: Cluster, topic: str, before: int, after: int, *, topic_id: str) -> VersionsCompared:
    """The sum of what the commits behind ``before`` up to ``after`` did.

    Args:
        topic_id: of the topic that is there now.
    Raises:
        InvalidArgumentError: not in order, too far apart, or an entry was cleaned away.
    """
    if not 0 <= before < after:
        raise InvalidArgumentError(f"versions: got {before} and {after}, expected 0 or more, and the older first")
    if after - before > _MOST_COMPARED:
        raise InvalidArgumentError(f"versions: {after - before} apart, expected at most {_MOST_COMPARED}")
    first, *entries = _entries(cluster, topic, range(before, after + 1))
    if first is None or None in entries:
        at = next(before + number for number, entry in enumerate([first, *entries]) if entry is None)
        raise InvalidArgumentError(f"version {at} of topic {topic!r} doesn't exist (any more, or yet)")
    found = [entry for entry in entries if entry is not None]
    summaries = [_summary(entry, topic_id) for entry in found]
    starts, ends = _offsets(first, "log_start_offsets"), _offsets(first, "log_end_offsets")
    heads = _head(topic, first), _head(topic, found[-1])
    new_starts, new_ends = _offsets(found[-1], "log_start_offsets"), _offsets(found[-1], "log_end_offsets")
    return VersionsCompared(
        before=before,
        after=after,
        before_ms=_time_ms(first),
        after_ms=_time_ms(found[-1]),
        partitions=tuple(
            PartitionChange(
                partition=number,
                start_before=_at(starts, number),
                end_before=_at(ends, number),
                start_after=_at(new_starts, number),
                end_after=_at(new_ends, number),
            )
            for number in range(max(len(ends), len(new_ends)))
        ),
        operations=tuple(Counter(one.operation for one in summaries).most_common()),
        added_files=sum(one.added_files for one in summaries),
        removed_files=sum(one.removed_files for one in summaries),
        added_bytes=sum(one.added_bytes for one in summaries),
        settings=None if heads[0] is None or heads[1] is None else _changed(heads[0].config, heads[1].config),
        schema_ids=None
        if heads[0] is None or heads[1] is None
        else (heads[0].value_schema_id, heads[1].value_schema_id),
        of_earlier=tuple(one.version for one in (first, found[-1]) if _is_of_earlier(one, topic_id)),
    )


def changed_fields(schemas: Sequence[ValueSchema], before: int, after: int) -> list[tuple[str, str, str]]:
    """The fields in which two of a topic's schemas differ, by path, with the type in each; empty: it isn't there.

    Args:
        schemas: all of the topic's of which the versions are; their ids are 1, 2, …
        before: an id; 0 for no schema.
    """
    kinds = [dict(schemas[one - 1].field_types()) if 0 < one <= len(schemas) else {} for one in (before, after)]
    paths = dict.fromkeys([*kinds[0], *kinds[1]])
    found = [(path, kinds[0].get(path, ""), kinds[1].get(path, "")) for path in paths]
    return [one for one in found if one[1] != one[2]]


def _head(topic: str, entry: Entry) -> TopicHead | None:
    return None if entry.info is None else head_of_info(topic, entry.version, entry.info)


def _changed(before: TopicConfig, after: TopicConfig) -> tuple[SettingChange, ...]:
    names = sorted({*before.explicit, *after.explicit})
    return tuple(
        SettingChange(name=name, before=before[name], after=after[name])
        for name in names
        if before[name] != after[name]
    )


def _entries(cluster: Cluster, topic: str, versions: range) -> list[Entry | None]:
    log = cluster.topic_log(topic)
    found: list[Entry | None] = []
    for start in range(0, len(versions), _AT_ONCE):
        some = versions[start : start + _AT_ONCE]
        data = log.store.read_many([log.path_of(version) for version in some])
        found += [None if one is None else log.decode(version, one) for version, one in zip(some, data, strict=True)]
    return found


def _is_of_earlier(entry: Entry, topic_id: str) -> bool:
    """Is there another topic, or none, as of an entry? Another engine's doesn't say."""
    return entry.info is not None and (bool(entry.info.get("deleted")) or entry.info.get("topic_id") != topic_id)


def _summary(entry: Entry, topic_id: str) -> CommitSummary:
    adds = [action for action in entry.actions if isinstance(action, AddFile)]
    removes = [action for action in entry.actions if isinstance(action, RemoveFile)]
    counts = [None if one.stats is None else one.stats.get("numRecords") for one in adds]
    return CommitSummary(
        version=entry.version,
        time_ms=_time_ms(entry),
        operation=str(entry.commit_info.get("operation", "?"))[:100],
        engine=str(entry.commit_info.get("engineInfo", "?"))[:100],
        added_files=len(adds),
        removed_files=len(removes),
        added_bytes=sum(one.size_bytes for one in adds),
        added_records=sum(one for one in counts if isinstance(one, int)) if None not in counts else None,
        is_rewrite=bool(adds) and not any(add.data_change for add in adds) and not any(r.data_change for r in removes),
        transactional_ids=_transactional_ids(entry),
        changes_table=any(isinstance(one, Metadata) for one in entry.actions),
        is_of_earlier=_is_of_earlier(entry, topic_id),
    )


def _transactional_ids(entry: Entry) -> tuple[str, ...]:
    found = (transactional_id_of(one.app_id) for one in entry.actions if isinstance(one, SetTransaction))
    return tuple(dict.fromkeys(name for name in found if name is not None))


def _time_ms(entry: Entry) -> int | None:
    found = entry.commit_info.get("timestamp")
    return found if isinstance(found, int) else None


def _offsets(entry: Entry, name: str) -> Sequence[Any]:
    found = (entry.info or {}).get(name)
    return found if isinstance(found, list) else ()


def _at(offsets: Sequence[Any], number: int) -> int | None:
    return offsets[number] if number < len(offsets) and isinstance(offsets[number], int) else None
