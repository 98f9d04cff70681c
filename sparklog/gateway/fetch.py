"""Fetch: whole record batches, as soon as there are enough of them or the client has waited for long enough."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from sparklog.errors import OffsetOutOfRangeError, SparklogError, UnknownTopicOrPartitionError
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.defects import topic_defects
from sparklog.gateway.error_codes import ErrorCode, code_of
from sparklog.gateway.fetch_sessions import FetchSessions
from sparklog.gateway.leader_epochs import code_of_epoch, leader_epoch
from sparklog.gateway.read_ahead import ReadAhead
from sparklog.gateway.topic_view import BatchCache, Fetched, TopicView
from sparklog.gateway.zones import Route

__all__ = ["Fetching", "fetch", "fetching_of"]

_NO_ID = uuid.UUID(int=0)
_SOON_S = 0.002
_LONG_S = 1.0
"""After so long a look that has found something reads no further partitions: clients ask for those first next time."""
_MANY_TOPICS = 1_000
_MANY_VERSIONS = 1_000


class _News:
    """Wakes those who wait for what is produced here."""

    __slots__ = ("_loop", "next")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.next: asyncio.Future[None] = self._loop.create_future()
        """Done once something was produced, from now on."""

    def wake(self) -> None:
        """Wake them: something was produced."""
        self.next.set_result(None)
        self.next = self._loop.create_future()


class _Followed:
    """A topic that is fetched from, and what this gateway itself has committed to it."""

    __slots__ = ("is_ours", "looked_s", "news", "own_versions", "view")

    def __init__(self, view: TopicView, looked_s: float) -> None:
        self.view = view
        self.looked_s = looked_s
        """When the newest look began."""
        self.own_versions: set[int] = set()
        """This gateway's commits that no look has found yet."""
        self.is_ours = False
        """Did the newest look that has found something find commits of this gateway alone?"""
        self.news = _News()

    def poll(self) -> TopicView:
        """Look; may block."""
        own = self.own_versions.copy()
        found = self.view.poll(sum(version > self.view.version for version in own))
        if found:
            self.is_ours = own.issuperset(found)
        self.own_versions.difference_update(own)
        return self.view


class Fetching:
    """The topics that are fetched from, for all connections. Belongs to the event loop."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._cache = BatchCache(backend.settings.cache_bytes)
        self._topics: dict[str, _Followed] = {}
        self._polling: dict[str, asyncio.Future[TopicView]] = {}
        self._loop = asyncio.get_running_loop()
        self._any_news = _News()
        """News of all topics, for who waits for one that isn't followed yet."""
        self._poll_s = backend.settings.fetch_poll_ms / 1_000
        self.sessions = FetchSessions(backend.settings.max_fetch_sessions)
        self.ahead = ReadAhead(backend)

    def notify(self, topics: Iterable[str]) -> None:
        """Something was produced here to some topics: whoever waits for one of these looks at once."""
        for topic in topics:
            if (found := self._topics.get(topic)) is not None:
                found.news.wake()
        self._any_news.wake()

    def note_commit(self, topic: str, topic_id: str, version: int) -> None:
        """This gateway has committed a version of a topic."""
        found = self._topics.get(topic)
        if found is not None and version > found.view.version and found.view.has_id(topic_id):
            if len(found.own_versions) >= _MANY_VERSIONS:
                found.own_versions.clear()
            found.own_versions.add(version)

    def is_read(self, topic: str, topic_id: str) -> bool:
        """Has somebody fetched from the topic here?"""
        found = self._topics.get(topic)
        return found is not None and found.view.has_id(topic_id)

    def note_sent(self, topic: str, topic_id: str, partition: int, end: int, version: int) -> None:
        """A batch that is kept for readers ends before the offset ``end``, and is in a version of the topic."""
        found = self._topics.get(topic)
        if found is not None and found.view.has_id(topic_id):
            found.view.note_sent(partition, end, version)

    def keep_sent(self, topic_id: str, partition: int, offset: int, data: bytearray, path: str) -> None:
        """Keep a batch as it was sent, for readers: it was stored in a file of that path."""
        self._cache.keep_sent(topic_id, partition, offset, data, path)

    def news(self, topics: Iterable[Mapping[str, Any]]) -> list[asyncio.Future[None]]:
        """Futures, of which one is done once something was produced here to one of a Fetch's topics, from now on."""
        found = []
        for topic in topics:
            followed = self._topics.get(_known_name(self._backend, topic))
            if followed is None:
                return [self._any_news.next]
            found.append(followed.news.next)
        return found

    async def wait(self, news: Iterable[asyncio.Future[None]], timeout_s: float) -> None:
        """Wait until something may be new since ``news`` were asked for: before the last look, else what came during
        that look would be waited for in vain."""
        await asyncio.wait(news, timeout=min(timeout_s, self._poll_s), return_when=asyncio.FIRST_COMPLETED)

    async def view(
        self, topic: str, wanted: Sequence[Mapping[str, Any]] | None = None, *, is_new: bool = False
    ) -> TopicView:
        """A topic as of now, at most one look of it at a time. Raises what opening or polling a topic raises.

        Args:
            wanted: partitions of a Fetch that looks again later. It gets the topic as it is known where something is
                kept for it, and where only this gateway has written to it: it is informed of that. Others' commits are
                looked for all the same, twice while it waits.
            is_new: by a look that begins from now on.
        """
        known = self._topics.get(topic)
        if is_new and (under_way := self._polling.get(topic)) is not None:
            await asyncio.wait([under_way])  # it may have begun before what the client knows of
        if known is None or wanted is None:
            return await asyncio.shield(self._looking(topic))
        if known.is_ours and self._loop.time() < known.looked_s + self._poll_s / 2:
            return known.view
        looking = self._looking(topic)
        while not looking.done():
            if any(known.view.has_kept(one["partition"], one["fetch_offset"]) for one in wanted):
                return known.view
            either: list[asyncio.Future[Any]] = [looking, known.news.next]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return looking.result()

    def _looking(self, topic: str) -> asyncio.Future[TopicView]:
        """The look at a topic that is under way, or a new one."""
        polling = self._polling.get(topic)
        if polling is None or polling.done():
            polling = asyncio.ensure_future(self._poll(topic))
            self._polling[topic] = polling
            polling.add_done_callback(partial(self._looked, topic))
        return polling

    def _looked(self, topic: str, polling: asyncio.Future[TopicView]) -> None:
        if self._polling.get(topic) is polling:
            del self._polling[topic]
        if not polling.cancelled():
            polling.exception()  # perhaps nobody waits for it any more

    async def _poll(self, topic: str) -> TopicView:
        known, began_s = self._topics.get(topic), self._loop.time()
        try:
            with topic_defects(self._backend.log_repeats, topic):
                if known is not None:
                    known.looked_s = began_s
                    return await self._backend.run_look(known.poll)  # others may have come in its place meanwhile
                view = await self._backend.run_look(lambda: TopicView(self._backend.cluster, topic, self._cache))
            if len(self._topics) >= _MANY_TOPICS:
                self._topics.pop(next(iter(self._topics)))
            self._topics[topic] = _Followed(view, began_s)
            return view
        except UnknownTopicOrPartitionError:  # it may have been created again
            self._topics.pop(topic, None)
            raise

    async def close(self) -> None:
        """End what is under way."""
        await self.ahead.close()
        for polling in list(self._polling.values()):
            polling.cancel()


def fetching_of(backend: Backend) -> Fetching:
    """The one of a gateway."""
    found: Fetching | None = backend.extras.get("fetch")
    if found is None:
        found = backend.extras["fetch"] = Fetching(backend)
    return found


_TURN = 100
"""Partitions of a Fetch that are looked at without a turn of others."""


async def fetch(backend: Backend, request: Request) -> dict[str, Any]:
    """Answer a Fetch."""
    body, clock = request.body, backend.cluster.clock
    fetching = fetching_of(backend)
    begun = fetching.sessions.begin(body, request.api_version, request.rules, clock.ticks_ms())
    if isinstance(begun, ErrorCode):
        return {"error_code": begun, "session_id": 0, "responses": []}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(0, body["max_wait_ms"]) / 1_000
    waits = body["max_wait_ms"] >= backend.settings.fetch_poll_ms  # then it looks again before it says: nothing
    elsewhere = None if backend.neighbours is None else backend.neighbours.elsewhere(request)
    while True:
        news = fetching.news(begun.topics)
        responses, size, has_error = await _look(backend, fetching, request, begun.topics, elsewhere, waits=waits)
        left = deadline - loop.time()
        if size >= body["min_bytes"] or has_error or left <= 0 or not responses or elsewhere is not None:
            answer = begun.answer(responses, clock.ticks_ms())
            figures, sessions = backend.figures, fetching.sessions
            figures.fetch_sessions, figures.fetch_sessions_evicted = len(sessions), sessions.evicted_count
            return answer
        await fetching.wait(news, max(left, _SOON_S))


async def _look(
    backend: Backend,
    fetching: Fetching,
    request: Request,
    topics: Sequence[Mapping[str, Any]],
    elsewhere: Route | None = None,
    *,
    waits: bool,
) -> tuple[list[dict[str, Any]], int, bool]:
    """Records that there are now, how many bytes, and whether a partition has an error.

    Args:
        elsewhere: where the client is to read instead of here.
        waits: the request is looked at again where there is nothing.
    """
    left = min(request.body.get("max_bytes", 2**31 - 1), backend.settings.fetch_max_bytes)
    size, has_error, responses, looked_count = 0, False, [], 0
    loop = asyncio.get_running_loop()
    until = loop.time() + _LONG_S
    for topic in topics:
        view = await _view(backend, fetching, request, topic, topic["partitions"] if waits else None)
        answers = []
        if elsewhere is not None and not isinstance(view, ErrorCode):
            topic_answers = [_sent_on(view, elsewhere, topic, one["partition"]) for one in topic["partitions"]]
            responses.append({**_named(topic), "partitions": topic_answers})
            continue
        for partition in topic["partitions"]:
            if size and loop.time() > until:
                left = 0
            looked_count += 1
            if looked_count % _TURN == 0:
                await asyncio.sleep(0)  # others' turn: what is known is answered without a wait
            look = partial(_view, backend, fetching, request, topic, is_new=True)
            answer = await _partition(backend, view, look, topic, partition, left, least_one=size == 0)
            taken = sum(map(len, answer["records"]))
            size += taken
            left -= taken
            has_error = has_error or bool(answer.get("error_code"))
            answers.append(answer)
        responses.append({**_named(topic), "partitions": answers})
    fetching.ahead.begin()  # not before: it would hold up the other partitions
    return responses, size, has_error


def _known_name(backend: Backend, topic: Mapping[str, Any]) -> str:
    """The name of a Fetch's topic, which may be named by its id; empty: it isn't known."""
    return topic.get("topic") or backend.topic_names.get(topic.get("topic_id", _NO_ID)) or ""


def _named(topic: Mapping[str, Any]) -> dict[str, Any]:
    return {"topic": topic.get("topic", ""), "topic_id": topic.get("topic_id", _NO_ID)}


def _sent_on(view: TopicView, route: Route, topic: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The answer for a partition that is to be read from another gateway: without records, which librdkafka would pass
    over. Source: KIP-392."""
    try:
        ends = view.ends(index)
    except SparklogError as error:
        return _failed(index, _code(topic, error))
    ids = route.leader_ids(view.topic_id.bytes)
    return {**_fetched_answer(index, ends), "preferred_read_replica": ids[index % len(ids)]}


async def _view(
    backend: Backend,
    fetching: Fetching,
    request: Request,
    topic: Mapping[str, Any],
    wanted: Sequence[Mapping[str, Any]] | None = None,
    *,
    is_new: bool = False,
) -> TopicView | ErrorCode:
    """The topic that is named, by its name or its id, as of now; or the error of all its partitions. ``wanted`` and
    ``is_new`` as in :meth:`Fetching.view`."""
    name = _known_name(backend, topic)
    try:
        if not name:
            name = await backend.run_look(lambda: backend.name_in(topic, "topic"))
        if request.rules is not None and not request.rules.may_read(name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        view = await fetching.view(name, wanted, is_new=is_new)
    except SparklogError as error:
        return _code(topic, error)
    if topic.get("topic_id") not in (None, _NO_ID, view.topic_id):  # one of the same name came after it
        backend.topic_names.pop(topic["topic_id"], None)
        return ErrorCode.UNKNOWN_TOPIC_ID
    return view


def _code(topic: Mapping[str, Any], error: SparklogError) -> ErrorCode:
    code = code_of(error)
    if topic.get("topic_id") is not None and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return code


async def _partition(
    backend: Backend,
    view: TopicView | ErrorCode,
    look: Callable[[], Awaitable[TopicView | ErrorCode]],
    topic: Mapping[str, Any],
    partition: dict[str, Any],
    left: int,
    *,
    least_one: bool,
) -> dict[str, Any]:
    """The answer for a partition. ``look`` gives the view as of now."""
    index, most = partition["partition"], min(left, partition["partition_max_bytes"])

    async def found_in(view: TopicView) -> Fetched:
        offset = partition["fetch_offset"]
        found = view.kept(index, offset, most, least_one=least_one) or view.at_end(index, offset)
        if found is None:
            with topic_defects(backend.log_repeats, view.name):
                found = await backend.run_look(lambda: view.fetch(index, offset, most, least_one=least_one))
        if found.next_offset is not None and not view.has_sent(index, found.next_offset):
            fetching_of(backend).ahead.add(view, index, found.next_offset)
        return found

    if isinstance(view, ErrorCode):
        return _failed(index, view)
    code = code_of_epoch(partition, leader_epoch(view.topic_id))
    if code is not ErrorCode.NONE:
        return _failed(index, code)
    try:
        try:
            found = await found_in(view)
        except OffsetOutOfRangeError:  # perhaps by a look that had begun before the client heard of the offset
            newest = await look()
            if isinstance(newest, ErrorCode):
                return _failed(index, newest)
            found = await found_in(newest)
    except SparklogError as error:
        return _failed(index, _code(topic, error))
    return _fetched_answer(index, found)


def _fetched_answer(index: int, found: Fetched) -> dict[str, Any]:
    return {
        "partition_index": index,
        "high_watermark": found.log_end_offset,
        "last_stable_offset": found.log_end_offset,  # what isn't committed is in no topic
        "log_start_offset": found.log_start_offset,
        "aborted_transactions": None,
        "records": found.records,
    }


def _failed(index: int, code: ErrorCode) -> dict[str, Any]:
    unknown = {"high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1}
    return {"partition_index": index, "error_code": code, **unknown, "aborted_transactions": None, "records": []}
