"""The newest commits of very many topics: a LIST for each, side by side, and then the entries of many in one call.

To read an entry by itself takes as much computing for a thread to wait and to be woken as for the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from sparklog.delta.listing import Listing, list_short_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.snapshot import newest_of_listing
from sparklog.errors import StoreError
from sparklog.log.cluster import Cluster
from sparklog.observe.topic_watch import NewestTopic, TopicWatch, newest_topic, topic_of_newest
from sparklog.parallel import AT_ONCE, attempt, parallel_results

__all__ = ["ListedTopic", "NewestTopics", "listed_topic", "newest_topics"]

_TOGETHER = AT_ONCE
"""Entries that are read by one call: as many as a store's client reads side by side."""

ReadTopic = NewestTopic | TopicWatch | None
_Alone = partial[ReadTopic]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTopic:
    """A topic of which the log was listed."""

    name: str
    log: DeltaLog
    listing: Listing | None
    """None where it takes more than a LIST."""


def listed_topic(cluster: Cluster, name: str) -> ListedTopic:
    """A topic with the listing of its log. A LIST. Raises what listing a log raises."""
    log = cluster.topic_log(name)
    return ListedTopic(name=name, log=log, listing=list_short_log(log))


class NewestTopics:
    """The newest commits of any number of topics, by calls that somebody makes side by side.

    A call lists the log of one topic. Topics that follow each other make a group, and the call that is the last of its
    group reads the entries of all of them, while others go on to list.
    """

    def __init__(self, cluster: Cluster, names: Sequence[str]) -> None:
        """Reads nothing."""
        self._cluster = cluster
        self.found: dict[str, ReadTopic | Exception] = {}
        """The topics or the errors, by name; of a group once all its calls have ended."""
        groups = [_Group(names[at : at + _TOGETHER]) for at in range(0, len(names), _TOGETHER)]
        self.calls: list[Callable[[], None]] = [
            partial(self._look, group, name) for group in groups for name in group.names
        ]
        """One for each name, in their order."""

    def _look(self, group: _Group, name: str) -> None:
        group.listed[name] = attempt(partial(listed_topic, self._cluster), name)
        if next(group.ended) < len(group.names):  # by the GIL, each call has a number of its own
            return
        there = [one for one in group.listed.values() if isinstance(one, ListedTopic)]
        read = attempt(partial(newest_topics, self._cluster), there)
        found = (
            dict.fromkeys((one.name for one in there), read)
            if isinstance(read, Exception)
            else dict(zip((one.name for one in there), read, strict=True))
        )
        self.found |= {each: one if isinstance(one, Exception) else found[each] for each, one in group.listed.items()}


class _Group:
    """Topics whose newest entries are read by one call."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.listed: dict[str, ListedTopic | Exception] = {}
        self.ended = count(1)
        """Numbers of the calls that have ended."""


def newest_topics(cluster: Cluster, listed: Sequence[ListedTopic]) -> list[ReadTopic | Exception]:
    """Topics by their newest commits, in their order, as :func:`~sparklog.observe.topic_watch.newest_topic` tells them,
    or the errors that it raises. A GET for each, in one call; for one that this doesn't tell of as many as that
    takes."""
    paths = [one.log.path_of(one.listing.newest_version) if one.listing is not None else "" for one in listed]
    wanted = [path for path in paths if path]
    try:
        data = dict(zip(wanted, cluster.store.read_many(wanted), strict=True)) if wanted else {}
    except StoreError:  # because of one of them, maybe: each by itself tells
        data = {}
    found: list[ReadTopic | Exception | _Alone] = [
        attempt(lambda pair: _read(cluster, pair[0], data.get(pair[1])), pair)
        for pair in zip(listed, paths, strict=True)
    ]
    alone = [one for one in found if isinstance(one, partial)]
    done = iter(parallel_results(lambda call: call(), alone))
    return [next(done) if isinstance(one, partial) else one for one in found]


def _read(cluster: Cluster, one: ListedTopic, data: bytes | None) -> ReadTopic | _Alone:
    """A topic of its newest entry, or what has to be done for it alone, as it takes more requests."""
    newest = None if one.listing is None else newest_of_listing(one.log, one.listing, data)
    if newest is None:
        return partial(newest_topic, cluster, one.name)
    if newest.entry.info is None:
        return partial(topic_of_newest, cluster, one.name, newest)
    return topic_of_newest(cluster, one.name, newest)
