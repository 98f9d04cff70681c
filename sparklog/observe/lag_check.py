"""Do groups keep up: a check of their lag, in records and in time, for scripts and probes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from sparklog.errors import SparklogError
from sparklog.groups.admin.share_groups import ShareGroupDescription, all_share_groups
from sparklog.log.cluster import Cluster
from sparklog.observe.cluster_watch import ClusterWatch
from sparklog.observe.figures import ClusterFigures, GroupFigures
from sparklog.observe.health import HealthCheck, Verdict
from sparklog.texts import counted

__all__ = ["LagLimits", "check_lag", "lag_checks"]

_NAME = "lag"
_GROUP, _SHARE_GROUP = "group", "share group"


@dataclass(frozen=True, slots=True, kw_only=True)
class LagLimits:
    """The lag that a group may have."""

    most_records: int | None = None
    """Over all partitions of a group; None: any number."""
    most_ms: float | None = None
    """The longest that a group's oldest unread record may have been waiting; None: for ever."""
    groups: tuple[str, ...] = ()
    """The groups that are looked at, as patterns with ``*``, ``?`` and ``[…]``; empty: all."""

    def has(self, group: str) -> bool:
        """Whether a group is looked at."""
        return not self.groups or any(fnmatchcase(group, pattern) for pattern in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lag:
    """The lag of a group, over the topics that it reads."""

    records: int
    oldest_ms: int
    """How long the oldest unread record has been waiting, of those whose time is known."""
    unknown_count: int
    """Partitions with unread records of which no statistics state a timestamp."""
    uncommitted: int
    """The part of ``records`` in partitions for which nothing was ever committed."""


def check_lag(cluster: Cluster, limits: LagLimits) -> list[HealthCheck]:
    """Check the lag of groups, by one look of a :class:`~sparklog.observe.ClusterWatch` at all topics and groups, and
    that of share groups, by records alone: they don't keep since when theirs wait.

    Returns:
        A failed check for each group beyond a limit, or whose lag is unknown; without any, one check that is ok.
    """
    began = cluster.clock.ticks_ms()
    try:
        found = lag_checks(ClusterWatch(cluster).look(), limits, all_share_groups(cluster))
    except SparklogError as caught:
        error = caught.with_traceback(None)
        found = [_failed(" ".join(str(error).split()), error)]
    took_ms = cluster.clock.ticks_ms() - began
    return [replace(check, took_ms=took_ms) for check in found]


def lag_checks(
    figures: ClusterFigures, limits: LagLimits, shares: Mapping[str, ShareGroupDescription | Exception]
) -> list[HealthCheck]:
    """The verdicts on the groups of a look: as :func:`check_lag` returns them. Pure.

    Args:
        shares: the share groups, by name; the error of one that can't be read.
    """
    wanted = [(_GROUP, group.group_id, _lag_of(group)) for group in figures.groups]
    described = [each for each in shares.values() if not isinstance(each, Exception)]
    wanted += [(_SHARE_GROUP, each.group_id, _lag_of_share(each)) for each in described]
    wanted = [each for each in wanted if limits.has(each[1])]
    checks = [*_unknown(figures, limits, shares)]
    for kind, name, lag in wanted:
        excesses = [*_excesses(lag, limits)]
        if excesses:
            checks.append(_failed(f"{kind} {name}: {'; '.join(excesses)}"))
    if checks:
        return checks
    if wanted:
        _, name, lag = max(wanted, key=lambda each: each[2].records)
        detail = f"{counted(len(wanted), 'group')}; the most is {_records(lag.records)} of {name}"
    else:
        detail = "there are no groups"
    return [HealthCheck(name=_NAME, verdict=Verdict.OK, detail=detail)]


def _lag_of(group: GroupFigures) -> _Lag:
    """The lag of a group. Topics that none of its living members subscribes to are left out: their offsets stay."""
    read = [one for one in group.partitions if not group.subscribed or one.partition.topic in group.subscribed]
    behind = [one for one in read if one.lag > 0]
    uncommitted = sum(group.uncommitted.values())
    return _Lag(
        records=sum(one.lag for one in behind) + uncommitted,
        oldest_ms=max((one.lag_ms for one in behind if one.lag_ms is not None), default=0),
        unknown_count=sum(one.lag_ms is None for one in behind),
        uncommitted=uncommitted,
    )


def _lag_of_share(group: ShareGroupDescription) -> _Lag:
    records = sum(one.lag or 0 for one in group.partitions)
    return _Lag(records=records, oldest_ms=0, unknown_count=0, uncommitted=0)


def _excesses(lag: _Lag, limits: LagLimits) -> Iterator[str]:
    if limits.most_records is not None and lag.records > limits.most_records:
        never = f" ({lag.uncommitted:,} where it never committed)" if lag.uncommitted else ""
        yield f"a lag of {_records(lag.records)}{never}, expected {limits.most_records:,} at most"
    if limits.most_ms is None:
        return
    expected = f"expected {limits.most_ms / 1_000:g} s at most"
    if lag.oldest_ms > limits.most_ms:
        yield f"its oldest unread record has been waiting for {lag.oldest_ms / 1_000:,.1f} s, {expected}"
    elif lag.unknown_count:
        where = counted(lag.unknown_count, "partition")
        yield f"how long records have been waiting is unknown in {where}, {expected}"
    elif lag.uncommitted:
        yield f"it never committed where {_records(lag.uncommitted)} wait, for an unknown time, {expected}"


def _unknown(
    figures: ClusterFigures, limits: LagLimits, shares: Mapping[str, ShareGroupDescription | Exception]
) -> Iterator[HealthCheck]:
    """The checks that failed since something is missing or can't be read: then a lag is unknown, and not 0."""
    groups = {group.group_id for group in figures.groups}
    unread = {problem.name for problem in figures.problems if problem.kind == "group"}
    for pattern in limits.groups:
        if not any(fnmatchcase(name, pattern) for name in groups | unread | shares.keys()):
            yield _failed(f"no group matches {pattern}: expected one at least, with a member or a committed offset")
    for name, error in shares.items():
        if isinstance(error, Exception) and limits.has(name):
            why = " ".join(str(error).split())
            yield _failed(
                f"{_SHARE_GROUP} {name}: its lag is unknown: {why}", error if isinstance(error, SparklogError) else None
            )
    for problem in figures.problems:
        why = " ".join(str(problem.error).split())
        if problem.kind == "group" and limits.has(problem.name):
            yield _failed(f"group {problem.name}: its lag is unknown: {why}", problem.error)
        elif problem.kind == "topic":
            yield _failed(f"topic {problem.name}: the lag of groups that read it is unknown: {why}", problem.error)


def _failed(detail: str, error: SparklogError | None = None) -> HealthCheck:
    return HealthCheck(name=_NAME, verdict=Verdict.FAILED, detail=detail, error=error)


def _records(count: int) -> str:
    return counted(count, "record", by_thousands=True)
