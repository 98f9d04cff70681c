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
from sparklog.parallel import AT_ONCE, attempt

__all__ = ["Alone", "ListedTopic", "NewestTopics", "listed_topic", "newest_topics"]

_TOGETHER = AT_ONCE
"""Entries that are read by one call: as many as a store's client reads side by side."""

ReadTopic = NewestTopic | TopicWatch | None
Alone = partial[ReadTopic]
"""A call that opens a topic by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTopic:
    """A topic of which the log was listed."""

    name: str
    log: DeltaLog
    listing: Listing | None
    """None where there is no entry, or it takes more than a LIST: an entry and a checkpoint of a long log are found by
    a hint."""


def listed_topic(cluster: Cluster, name: str) -> ListedTopic:
    """A topic with the listing of its log. A LIST. Raises what listing a log raises."""
    log = cluster.topic_log(name)
    return ListedTopic(name=name, log=log, listing=list_short_log(log))


class NewestTopics:
    """The newest commits of any number of topics, by calls that the caller makes in parallel.

    A call lists the log of one topic, and opens a long one at once. Topics that follow each other make a group, and the
    call that is the last of its group reads the entries of all the others, while others go on to list. What takes more
    requests is left for :meth:`rest`: no call starts threads, so that there are as many as the caller wants.
    """

    def __init__(self, cluster: Cluster, names: Sequence[str]) -> None:
        """Reads nothing."""
        self._cluster = cluster
        self.found: dict[str, ReadTopic | Exception] = {}
        """The topics or the errors, by name; of a group once all its calls have ended, but those that are left."""
        self._left: dict[str, Alone] = {}
        groups = [_Group(names[at : at + _TOGETHER]) for at in range(0, len(names), _TOGETHER)]
        self.calls: list[Callable[[], None]] = [
            partial(self._look, group, name) for group in groups for name in group.names
        ]
        """One for each name, in their order."""

    def rest(self) -> list[Callable[[], None]]:
        """The calls that are left once all of :attr:`calls` have ended, to be made side by side as well."""
        return [partial(self._open, name, alone) for name, alone in self._left.items()]

    def _look(self, group: _Group, name: str) -> None:
        group.listed[name] = attempt(partial(_listed_or_opened, self._cluster), name)
        if next(group.ended) < len(group.names):  # by the GIL, each call has a number of its own
            return
        there = [one for one in group.listed.values() if isinstance(one, ListedTopic)]
        read = attempt(partial(newest_topics, self._cluster), there)
        found = (
            dict.fromkeys((one.name for one in there), read)
            if isinstance(read, Exception)
            else dict(zip((one.name for one in there), read, strict=True))
        )
        done = {each: found[each] if isinstance(one, ListedTopic) else one for each, one in group.listed.items()}
        self._left |= {each: one for each, one in done.items() if isinstance(one, partial)}
        self.found |= {each: one for each, one in done.items() if not isinstance(one, partial)}

    def _open(self, name: str, alone: Alone) -> None:
        self.found[name] = attempt(lambda call: call(), alone)


class _Group:
    """Topics whose newest entries are read by one call."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.listed: dict[str, ListedTopic | ReadTopic | Exception] = {}
        self.ended = count(1)
        """Numbers of the calls that have ended."""


def newest_topics(cluster: Cluster, listed: Sequence[ListedTopic]) -> list[ReadTopic | Exception | Alone]:
    """Topics by their newest commits, in order, as :func:`~sparklog.observe.topic_watch.newest_topic` returns them,
    or the errors that it raises. A GET for each, in one call; :class:`Alone` where that doesn't suffice."""
    paths = [one.log.path_of(one.listing.newest_version) if one.listing is not None else "" for one in listed]
    wanted = [path for path in paths if path]
    try:
        data = dict(zip(wanted, cluster.store.read_many(wanted), strict=True)) if wanted else {}
    except StoreError:  # perhaps because of one of them: each is read by itself
        data = {}
    return [
        attempt(lambda pair: _read(cluster, pair[0], data.get(pair[1])), pair)
        for pair in zip(listed, paths, strict=True)
    ]


def _listed_or_opened(cluster: Cluster, name: str) -> ListedTopic | ReadTopic:
    """A topic with the listing of its log; where that doesn't suffice, the topic, for a GET, a LIST and a GET more."""
    listed = listed_topic(cluster, name)
    return listed if listed.listing is not None else newest_topic(cluster, name, is_short=False)


def _read(cluster: Cluster, one: ListedTopic, data: bytes | None) -> ReadTopic | Alone:
    """A topic of its newest entry, or what has to be done for it alone, as it takes more requests."""
    if one.listing is None:
        return partial(newest_topic, cluster, one.name, is_short=False)
    newest = newest_of_listing(one.log, one.listing, data)
    if newest is None:
        return partial(newest_topic, cluster, one.name)
    if newest.entry.info is None:
        return partial(topic_of_newest, cluster, one.name, newest)
    return topic_of_newest(cluster, one.name, newest)
