"""Requests that the log shows: what was written between two looks at a cluster, and what looking costs. Pure.

A log shows who wrote. It doesn't show who read, nor what maintenance deleted, so all of this is a lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.observe.figures import ClusterFigures, GroupFigures, TopicFigures
from sparklog.prices import Requests
from sparklog.txn.states import TransactionState

__all__ = ["DAY_MS", "heartbeats_a_day", "look_requests", "written_between"]

DAY_MS = 86_400_000.0
_HEARTBEAT_MS = 3_000.0
"""``heartbeat.interval.ms`` by default; what a member has isn't written anywhere."""
_LISTINGS = 5


def written_between(before: ClusterFigures, now: ClusterFigures) -> Mapping[str, Requests]:
    """By what they were for: a PUT for each commit of a topic, one for each file that there are more of, two for each
    group that committed offsets, however often it did."""
    topics = {one.name: one for one in before.topics}
    groups = {one.group_id: one for one in before.groups}
    committed = sum(_has_committed(groups.get(one.group_id), one) for one in now.groups)
    return {
        "commits to topics": Requests(puts=sum(_puts(topics.get(one.name), one) for one in now.topics)),
        "commits of offsets": Requests(puts=2 * committed),
    }


def look_requests(figures: ClusterFigures) -> Requests:
    """One look at a cluster in which nothing was committed."""
    is_open = (one.state is TransactionState.ONGOING or one.state.is_prepared for one in figures.transactions)
    gets = len(figures.topics) + len(figures.groups) + sum(is_open)
    return Requests(gets=gets, lists=len(figures.groups) + _LISTINGS)


def heartbeats_a_day(figures: ClusterFigures) -> Requests:
    """The heartbeats of the members that live: each a PUT, a GET and a LIST, at the default interval. Source:
    docs/groups.md, What it costs."""
    members = sum(one.member_count for one in figures.groups)
    return Requests(puts=1, gets=1, lists=1).times(members * DAY_MS / _HEARTBEAT_MS)


def _puts(before: TopicFigures | None, now: TopicFigures) -> int:
    if before is None or before.topic_id != now.topic_id:
        return 0
    return max(0, now.delta_version - before.delta_version) + max(0, _files(now) - _files(before))


def _files(topic: TopicFigures) -> int:
    return sum(one.file_count for one in topic.partitions)


def _has_committed(before: GroupFigures | None, now: GroupFigures) -> bool:
    return before is not None and _newest_ms(now) > _newest_ms(before)


def _newest_ms(group: GroupFigures) -> int:
    return max((one.commit_ms for one in group.partitions), default=0)
