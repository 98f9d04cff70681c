"""Watching a whole cluster: one look after the other, each of few requests, whatever the cluster's size.

A look costs a request for each topic in which nothing was committed and at most three for any other; two for each group
and one for each transactional id that may have a transaction open, more where something changed; and four listings. The
first look loads everything. A topic with more than two commits between looks is read by its newest commit alone, and
its files are caught up with once a minute.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from sparklog.clock import Clock
from sparklog.delta.checkpoint_child import CheckpointChild
from sparklog.errors import (
    IllegalStateError,
    SparklogError,
    StoreError,
    is_no_topic,
)
from sparklog.groups.admin.inspection import group_folders
from sparklog.log.cluster import Cluster
from sparklog.logs import about
from sparklog.observe.figures import ClusterFigures, GroupFigures, Problem, TransactionFigures
from sparklog.observe.first_page import evenly_mixed, topics_to_load_first
from sparklog.observe.group_watch import GroupWatch, group_figures
from sparklog.observe.maintenance_watch import MaintenanceSeen, MaintenanceWatch
from sparklog.observe.newest_topics import NewestTopics
from sparklog.observe.orphan_watch import OrphanWatch
from sparklog.observe.shard import Shard
from sparklog.observe.topic_watch import AHEAD_WHEN_CHANGED, NewestTopic, TopicWatch
from sparklog.observe.transaction_watch import TransactionWatch
from sparklog.observe.unread_ranges import watched_topics
from sparklog.parallel import AT_ONCE, parallel_map, parallel_results
from sparklog.paths import TOPICS_FOLDER
from sparklog.storage.disk import disk_space
from sparklog.storage.each_alone import check_of_one, each_alone, one_alone
from sparklog.storage.request_counts import RequestCounts
from sparklog.storage.retrying import Patience

__all__ = ["ClusterWatch"]

_LOGGER = logging.getLogger("sparklog.observe")
_AT_ONCE = AT_ONCE
"""Requests side by side."""
_MOST_TOGETHER = 2_048
"""Entries that are asked for in one call."""
_FILES_EVERY_MS = 60_000.0
_AGAIN_EVERY_MS = 60_000.0
"""How often what can't be read is tried again, unless the store was away: then by the next look."""
_FEW_TOPICS = 100
_FEW_GROUPS = 50
"""With no more than these, the first look publishes nothing before it has loaded them: it is done as soon."""
_MOST_FIRST_TOPICS = 2_000
_MOST_FIRST_GROUPS = 400
"""The number of topics and groups, by name, that it publishes first."""
_FIRST_AT_ONCE = 128
"""Requests side by side, for who waits for the first page."""
_CLUSTERS_OWN = 2
"""The first calls of the first look are of the whole cluster: transactions, and when it was maintained."""
_UNREAD = IllegalStateError("nothing was read of it")
_MOST_CHECKED = 500
"""Topics whose newer checkpoints a look looks for by a LIST each, as very many may become due together."""

_ABOUT = {"transaction": "transactional_id"}
"""The name in log records, where it is another."""

T = TypeVar("T")
W = TypeVar("W", TopicWatch, GroupWatch)


@dataclass(slots=True)
class _Unreadable:
    error: SparklogError
    is_foreign: bool
    """Is it no topic, so that it is left out?"""
    again_ticks_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _First:
    """The things that the first look has read first, and doesn't read again."""

    groups: frozenset[str]
    topics: frozenset[str]
    """Loaded already; of all others the newest commit at most."""
    transactions: Sequence[TransactionFigures]
    maintained: MaintenanceSeen


class ClusterWatch:
    """A cluster that is looked at again and again. Not for several threads at once."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        shard: Shard | None = None,
        patience_ms: float = 10_000,
        checkpoints: CheckpointChild | None = None,
        orphans_every_ms: float | None = None,
    ) -> None:
        """Reads nothing.

        Args:
            shard: the part to look at; of groups the offsets in its topics. Everything by default.
            patience_ms: how long a request is repeated where the store fails.
            checkpoints: reads checkpoints in another process, which ends with each look: for a process that has little
                memory and doesn't use Arrow otherwise. By default they are read in this one.
            orphans_every_ms: how often each topic's folder is listed, to find unneeded files; 0: in each look.
                By default never.
        """
        self._cluster = cluster
        self._clock: Clock = cluster.clock
        self._shard = shard or Shard()
        self._patience_ms = patience_ms
        self._checkpoints = checkpoints
        self._topics: dict[str, TopicWatch] = {}
        self._groups: dict[str, GroupWatch] = {}
        self._transactions = TransactionWatch(cluster, is_ours=self._shard.has, at_once=_AT_ONCE)
        self._maintenance = MaintenanceWatch(cluster)
        self._orphans = (
            OrphanWatch(cluster, every_ms=orphans_every_ms, at_once=_AT_ONCE, read_checkpoint=checkpoints)
            if orphans_every_ms is not None
            else None
        )
        self._unreadable: dict[tuple[str, str], _Unreadable] = {}
        self._files_ticks_ms = -_FILES_EVERY_MS

    @property
    def asked(self) -> RequestCounts:
        """Requests to the store by everybody who uses this cluster in this process."""
        return self._cluster.store.counts

    def look(self, *, on_part: Callable[[ClusterFigures], object] | None = None) -> ClusterFigures:
        """The cluster as of now. What can't be read is among the problems, beside what was known of it before.

        Args:
            on_part: called in the first look, which loads everything, with what the newest commit of each topic states,
                groups and transactions, as soon as these were read, and again once the topics are loaded that an
                overview shows first; not where topics and groups are few.
        Raises:
            StoreError: the store is away; the next look goes on from what is known.
        """
        try:
            return self._look(on_part)
        finally:
            if self._checkpoints is not None:
                self._checkpoints.close()

    def _look(self, on_part: Callable[[ClusterFigures], object] | None) -> ClusterFigures:
        began = self._clock.ticks_ms()
        store = self._cluster.store
        with store.patience(Patience(deadline=self._clock.deadline_in(self._patience_ms))):
            first = self._look_at_first_part(on_part, began) if on_part is not None else None
            if first is None:
                self._look_at_topics(frozenset(), at_once=_AT_ONCE)
            else:
                self._look_at_topics(first.topics, at_once=_FIRST_AT_ONCE)
            self._look_at_groups(frozenset() if first is None else first.groups)
            transactions = self._look_at_transactions() if first is None else first.transactions
            maintained = self._maintenance.look() if first is None else first.maintained
            orphans = self._orphans.look(self._living()) if self._orphans is not None else ()
        figures = self._figures(transactions, maintained, took_ms=self._clock.ticks_ms() - began)
        return replace(figures, orphans=tuple(orphans))

    def _look_at_first_part(self, on_part: Callable[[ClusterFigures], object], began_ticks_ms: float) -> _First | None:
        """Read the newest commit of each topic, each group, and transactions. None, and nothing is read, where
        something is known already, or there is little. Raises ``StoreError``."""
        if self._topics or self._groups or self._unreadable:
            return None
        listings: list[Callable[[], Sequence[str]]] = [self._names, partial(group_folders, self._cluster)]
        names, groups = parallel_map(lambda listing: listing(), listings)
        if len(names) <= _FEW_TOPICS and len(groups) <= _FEW_GROUPS:
            return None
        watches = [GroupWatch(self._cluster, name) for name in groups[:_MOST_FIRST_GROUPS]]
        wanted = names[:_MOST_FIRST_TOPICS]
        # Groups take computing, topics are waited for: mixed, the one goes on beside the other.
        looks: list[Callable[[], Any]] = [one.look for one in watches]
        newest = NewestTopics(self._cluster, wanted)
        mixed = evenly_mixed(looks, newest.calls)
        calls = [self._transactions.look, self._maintenance.look, *(call for _, call in mixed)]
        found: list[Any] = parallel_results(lambda call: call(), calls, at_once=_FIRST_AT_ONCE)
        for number, result in enumerate(found):
            if isinstance(result, Exception) and number < _CLUSTERS_OWN:
                raise result
        parallel_results(lambda call: call(), newest.rest(), at_once=_FIRST_AT_ONCE)
        (transactions, errors), maintained = found[:_CLUSTERS_OWN]
        self._note_transactions(errors)
        results = list(zip((number for number, _ in mixed), found[_CLUSTERS_OWN:], strict=True))
        of_groups, heads = [one for number, one in results if number == 0], newest.found
        done = [one for one, result in zip(watches, of_groups, strict=True) if not isinstance(result, Exception)]
        self._groups = {one.name: one for one in done}
        first = _First(
            groups=frozenset(self._groups), topics=frozenset(), transactions=transactions, maintained=maintained
        )
        topics = {name: one for name, one in heads.items() if isinstance(one, NewestTopic | TopicWatch)}
        unread = {name for name in names if isinstance(heads.get(name, _UNREAD), Exception)}

        def figures() -> ClusterFigures:
            known = {**topics, **{name: one for name, one in self._living().items() if name in topics}}
            part = self._part(first, known, unread, took_ms=self._clock.ticks_ms() - began_ticks_ms)
            return replace(part, unread_group_count=part.unread_group_count + len(groups) - len(done))

        part = figures()
        loaded = topics_to_load_first(part)
        on_part(replace(part, is_first_page_whole=not loaded))
        if loaded:
            self._load_topics(loaded, at_once=_FIRST_AT_ONCE)
            on_part(figures())
        return replace(first, topics=frozenset(self._topics))

    def _names(self) -> list[str]:
        """The topics to look at, sorted. A LIST."""
        return sorted(name for name in self._cluster.store.list_names(TOPICS_FOLDER) if self._shard.has(name))

    def _load_topics(self, names: Sequence[str], *, at_once: int) -> None:
        for name, watch in self._attempt("topic", names, self._load_topic, at_once=at_once):
            self._topics[name] = watch

    def _load_topic(self, name: str) -> TopicWatch:
        return TopicWatch(self._cluster, name, read_checkpoint=self._checkpoints)

    def _look_at_topics(self, seen: frozenset[str], *, at_once: int) -> None:
        """Look at the topics but those that were loaded in this look.

        Args:
            at_once: topics that are loaded side by side.
        """
        names = self._names()
        there = {*names}
        self._topics = {name: watch for name, watch in self._topics.items() if name in there}
        self._forget("topic", lambda name: name in there)
        known = [each for name, each in self._topics.items() if name not in seen and self._is_due("topic", name)]
        due = [*islice((watch for watch in known if watch.is_checkpoint_due), _MOST_CHECKED)]
        checked = {watch.name for watch in due}
        left = [watch for watch in known if watch.name not in checked]
        busy = [watch for watch in left if watch.is_busy or watch.is_behind]
        quiet = [watch for watch in left if not (watch.is_busy or watch.is_behind)]
        self._each("topic", due, TopicWatch.look_past_checkpoint)
        changed = self._look_at_entries(quiet, ahead=1)
        for watch in self._look_at_entries(changed, ahead=AHEAD_WHEN_CHANGED):
            watch.is_busy = True
        self._each("topic", busy, TopicWatch.look_at_newest)
        if self._clock.ticks_ms() - self._files_ticks_ms >= _FILES_EVERY_MS:
            self._files_ticks_ms = self._clock.ticks_ms()
            self._each("topic", [watch for watch in [*due, *busy] if watch.is_behind], TopicWatch.catch_up_files)
        self._each("topic", [watch for watch in known if watch.is_outdated], TopicWatch.recompute)
        new = [name for name in names if name not in self._topics and self._is_due("topic", name)]
        self._load_topics(new, at_once=at_once)

    def _look_at_entries(self, watches: Sequence[TopicWatch], *, ahead: int) -> list[TopicWatch]:
        """Ask for the next entries of many topics at once; returns those that may have more. Raises ``StoreError``."""
        more: list[TopicWatch] = []
        waiting = iter(watches)
        while together := list(islice(waiting, _MOST_TOGETHER // ahead)):
            began = self._clock.ticks_ms()
            paths = [path for watch in together for path in watch.next_paths(ahead)]
            found: dict[str, Sequence[bytes | None]] = {}
            try:
                data = iter(self._cluster.store.read_many(paths))
                found = {watch.name: [*islice(data, ahead)] for watch in together}
            except StoreError as error:
                check_of_one(self._cluster.store, error)
                for watch, one in self._each("topic", together, lambda watch: self._read(watch, ahead)):
                    found[watch.name] = one
            taken = {
                watch.name: is_full
                for watch, is_full in self._each(
                    "topic",
                    [watch for watch in together if watch.name in found],
                    lambda watch, found=found, began=began: watch.take(  # type: ignore[misc]
                        found[watch.name], began_ticks_ms=began
                    ),
                    at_once=1,
                )
            }
            more += [watch for watch in together if taken.get(watch.name)]
        return more

    def _read(self, watch: TopicWatch, ahead: int) -> Sequence[bytes | None]:
        return self._cluster.store.read_many(watch.next_paths(ahead))

    def _look_at_groups(self, seen: frozenset[str]) -> None:
        """Look at the groups but those that were seen in this look."""
        names = group_folders(self._cluster)
        there = {*names}
        self._groups = {name: self._groups.get(name) or GroupWatch(self._cluster, name) for name in names}
        self._forget("group", lambda name: name in there)
        due = [watch for watch in self._groups.values() if watch.name not in seen and self._is_due("group", watch.name)]
        self._each("group", due, GroupWatch.look)

    def _look_at_transactions(self) -> Sequence[TransactionFigures]:
        transactions, errors = self._transactions.look()
        self._note_transactions(errors)
        return transactions

    def _note_transactions(self, errors: Mapping[str, SparklogError]) -> None:
        for name, error in errors.items():
            self._note("transaction", name, error)
        self._forget("transaction", lambda name: name in errors)

    def _each(
        self, kind: str, watches: Sequence[W], call: Callable[[W], T], *, at_once: int = _AT_ONCE
    ) -> list[tuple[W, T]]:
        """Call for each watch; one that fails becomes a problem and hinders no other."""
        names: dict[str, W] = {watch.name: watch for watch in watches}
        results = self._attempt(kind, [*names], lambda name: call(names[name]), at_once=at_once)
        return [(names[name], result) for name, result in results]

    def _attempt(
        self, kind: str, names: Sequence[str], call: Callable[[str], T], *, at_once: int = _AT_ONCE
    ) -> list[tuple[str, T]]:
        if at_once == 1:
            results: list[T | Exception] = [one_alone(self._cluster.store, partial(call, name)) for name in names]
        else:
            results = each_alone(self._cluster.store, call, names, at_once=at_once)
        done = []
        for name, result in zip(names, results, strict=True):
            if isinstance(result, SparklogError):
                self._note(kind, name, result)
            elif isinstance(result, Exception):  # a defect: nothing that was kept of it is relied on
                watched: dict[str, Any] = {"topic": self._topics, "group": self._groups}
                watched[kind].pop(name, None)
                self._note(kind, name, IllegalStateError(f"reading it failed unexpectedly: {result!r}"), result)
            else:
                self._unreadable.pop((kind, name), None)
                done.append((name, result))
        return done

    def _note(self, kind: str, name: str, error: SparklogError, defect: Exception | None = None) -> None:
        is_foreign = kind == "topic" and name not in self._topics and is_no_topic(error)
        if (kind, name) not in self._unreadable and not is_foreign:
            extra = about(**{_ABOUT.get(kind, kind): name})
            _LOGGER.warning("%s %r can't be read: %s", kind, name, error, extra=extra, exc_info=defect)
        is_passing = isinstance(error, StoreError) and error.retriable  # what the store couldn't do a moment ago
        again = self._clock.ticks_ms() + (0.0 if is_passing else _AGAIN_EVERY_MS)
        self._unreadable[kind, name] = _Unreadable(error.with_traceback(None), is_foreign, again)

    def _is_due(self, kind: str, name: str) -> bool:
        problem = self._unreadable.get((kind, name))
        return problem is None or self._clock.ticks_ms() >= problem.again_ticks_ms

    def _forget(self, kind: str, is_there: Callable[[str], bool]) -> None:
        gone = [key for key in self._unreadable if key[0] == kind and not is_there(key[1])]
        for key in gone:
            del self._unreadable[key]

    def _living(self) -> dict[str, TopicWatch]:
        return {name: watch for name, watch in sorted(self._topics.items()) if not watch.is_deleted}

    def _part(
        self, first: _First, topics: Mapping[str, NewestTopic | TopicWatch], unread: Set[str], *, took_ms: float
    ) -> ClusterFigures:
        """The figures of what the first look has read first.

        Args:
            first: what else it has read.
            topics: by their newest commits.
            unread: topics that weren't looked at; groups that read one of them are left out.
        """
        now_ms = self._clock.now_ms()
        groups = {
            name: watch
            for name, watch in sorted(self._groups.items())
            if unread.isdisjoint(partition.topic for partition in watch.rows)
        }
        return replace(
            self._figures(first.transactions, first.maintained, took_ms=took_ms),
            topics=tuple(topic.figures for _, topic in sorted(topics.items())),
            groups=tuple(self._group_figures(groups, topics, now_ms=now_ms)),
            unread_topic_count=len(unread),
            unread_group_count=len(self._groups) - len(groups),
            is_part=True,
        )

    def _figures(
        self, transactions: Iterable[TransactionFigures], maintained: MaintenanceSeen, *, took_ms: float
    ) -> ClusterFigures:
        """The figures of what is known."""
        now_ms = self._clock.now_ms()
        living = self._living()
        pending = Counter(name for watch in self._groups.values() for name in watch.pending_ids())
        return ClusterFigures(
            cluster_id=self._cluster.cluster_id,
            uri=self._cluster.store.uri,
            now_ms=now_ms,
            took_ms=took_ms,
            topics=tuple(watch.figures for watch in living.values()),
            groups=tuple(self._group_figures(dict(sorted(self._groups.items())), living, now_ms=now_ms)),
            transactions=tuple(replace(each, pending_count=pending[each.transactional_id]) for each in transactions),
            problems=tuple(
                Problem(kind=kind, name=name, error=problem.error)
                for (kind, name), problem in sorted(self._unreadable.items(), key=lambda item: item[0])
                if not problem.is_foreign
            ),
            maintained_ms=maintained.noted_ms,
            runs=maintained.runs,
            runs_error=maintained.error,
            failed_runs=maintained.failed,
            disk=disk_space(self._cluster.store.uri),
        )

    def _group_figures(
        self, groups: Mapping[str, GroupWatch], topics: Mapping[str, TopicWatch | NewestTopic], *, now_ms: int
    ) -> Iterable[GroupFigures]:
        for name, watch in groups.items():
            if not watch.exists:
                continue
            watched = watched_topics(watch, topics)
            figures = group_figures(name, watch.rows, watch.living, watched, now_ms=now_ms, pending=watch.pending_count)
            subscribed = tuple(topic for topic in sorted(watch.subscribed) if topic in topics)
            uncommitted = watch.uncommitted(topics[topic].figures for topic in subscribed)
            figures = replace(figures, subscribed=subscribed, uncommitted=uncommitted)
            if figures.partitions or figures.uncommitted or self._shard.has(name):
                yield figures
