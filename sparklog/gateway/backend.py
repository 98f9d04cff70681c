"""The state that handlers of all connections share: sparklog's own clients, and threads in which they may block."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sparklog.admin import Admin
from sparklog.errors import KafkaTimeoutError, SparklogError, UnknownTopicOrPartitionError
from sparklog.gateway.counts import GatewayFigures
from sparklog.gateway.defects import topic_defects
from sparklog.gateway.neighbours import Neighbours
from sparklog.gateway.repeats import Repeats
from sparklog.gateway.settings import GatewaySettings
from sparklog.gateway.topic_directory import TopicDirectory, TopicFacts
from sparklog.gateway.users import KnownUsers, Rules
from sparklog.gateway.zones import Node, Route, node_id_of, own_node
from sparklog.log.cluster import Cluster
from sparklog.log.topic import TopicDescription
from sparklog.parallel import parallel_results
from sparklog.producer import Producer
from sparklog.storage.retrying import Patience

__all__ = ["Backend", "Handler", "Request", "node_id_of"]

_THREADS = {"produce": 16, "look": 16, "group": 16, "sasl": 2, "other": 16, "codec": 2}
"""Most threads of each kind of calls, so that none takes all of another's: while the store is away, calls of Produce
wait for longer than looks may."""
_LOOK_S = 1.0
"""Longest wait for a look for a topic's id that is under way, and shortest time between two."""
_FOLLOWED_MS = 900_000.0
"""For so long after somebody asked for all topics they are followed: clients ask again every five minutes."""
_RESTS = 4
"""Times that a look for a topic's id took, which the next one comes later."""
T = TypeVar("T")
_LOGGER = logging.getLogger("sparklog.gateway")


class Request:
    """One request, as a handler gets it."""

    __slots__ = ("api_version", "body", "client_host", "client_id", "connection_end", "local_address", "rules")

    def __init__(
        self,
        api_version: int,
        body: dict[str, Any],
        client_id: str,
        local_address: tuple[str, int],
        client_host: str = "",
    ) -> None:
        self.api_version = api_version
        self.body = body
        self.client_id = client_id
        self.local_address = local_address
        """Where the client reached this gateway."""
        self.client_host = client_host
        self.rules: Rules | None = None
        """The rights of the client; None: everything."""
        self.connection_end: asyncio.Future[None] | None = None
        """Done once nothing more comes from the client; None: that isn't known."""


Handler = Callable[["Backend", Request], Any]
"""Returns an awaitable of the response; None: there is no response."""


class Backend:
    """A cluster's clients for one gateway. Its methods are called in the event loop's thread."""

    def __init__(
        self,
        cluster: Cluster,
        settings: GatewaySettings,
        advertised: tuple[str, int] | None,
        users: KnownUsers | None = None,
    ) -> None:
        self.cluster = cluster
        self.users = users
        """The users that may come in; None: nobody is asked who they are."""
        self.settings = settings
        self.figures = GatewayFigures()
        self.log_repeats = Repeats()
        self.advertised = advertised
        """Host and port that Metadata names to clients; None: those to which each client connected."""
        self.neighbours: Neighbours | None = None
        """The gateways of the cluster; None: this one has no zone, and names itself alone."""
        self.admin = Admin(cluster)
        self.directory = TopicDirectory(cluster)
        self._following: asyncio.Task[None] | None = None
        self.topic_names: dict[uuid.UUID, str] = {}
        """Names of topics that were seen, by id."""
        self.extras: dict[str, Any] = {}
        """The state that groups of handlers keep, by their names."""
        self._producers: dict[str, Producer] = {}
        self._threads = {
            kind: ThreadPoolExecutor(most, thread_name_prefix=f"sparklog-gateway-{kind}")
            for kind, most in _THREADS.items()
        }
        self._looking_for_ids = threading.Lock()
        self._next_look_ms = float("-inf")
        self._opening: dict[tuple[Producer, str], asyncio.Task[object]] = {}
        self._reading_users: asyncio.Future[None] | None = None
        self._settled: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def address(self, request: Request) -> tuple[str, int]:
        """Host and port at which the client of a request reaches this gateway."""
        return self.advertised or request.local_address

    def route(self, request: Request) -> Route:
        """The gateways that Metadata names to the client of a request."""
        if self.neighbours is not None:
            return self.neighbours.route(request)
        own = Node(*self.address(request), zone=None)
        return Route(own, (own,), (own,))

    def opened(self, cluster: Cluster, users: KnownUsers | None) -> None:
        """Take over a cluster that was given before it was open, with the same store, and the users."""
        self.cluster, self.users = cluster, users
        self.directory = TopicDirectory(cluster)

    async def begin_zone(self, address: tuple[str, int], *, is_open: bool = True) -> None:
        """Make this gateway known to others, where it has a zone. Raises ``InvalidArgumentError``.

        Args:
            address: where it listens.
            is_open: the store was there a moment ago, so it is waited for.
        """
        if self.settings.zone is not None:
            self.advertised = self.advertised or address
            self.neighbours = Neighbours(self, own_node(self.settings.zone, *self.advertised))
            await self.neighbours.begin(is_open=is_open)

    def bound_ms(self, request: Request) -> float:
        """The bound that a request names, in milliseconds, or less: this gateway's own."""
        return float(min(max(0, request.body.get("timeout_ms", 2**31)), self.settings.delivery_timeout_ms))

    async def run(self, call: Callable[[], T]) -> T:
        """Do in a thread what may block."""
        return await self._run("other", call)

    async def _run(self, kind: str, call: Callable[[], T]) -> T:
        def contained() -> T:
            try:
                return call()
            except Exception:
                raise
            except BaseException as error:  # a library's panic: the event loop's tasks end by it, and nobody is told
                raise RuntimeError(f"a call failed unexpectedly: {error!r}") from error

        return await asyncio.get_running_loop().run_in_executor(self._threads[kind], contained)

    async def run_codec(self, call: Callable[[], T]) -> T:
        """Do in a thread what doesn't block, and takes long: of many clients at once, few go on."""
        return await self._run("codec", call)

    async def run_sasl(self, call: Callable[[], T]) -> T:
        """Do in a thread a step of an authentication: whatever else waits, clients come in."""
        return await self._run("sasl", call)

    def read_users_again(self, users: KnownUsers) -> asyncio.Future[None]:
        """Read the users in a thread, once at a time for whoever asks; done when they are read, or it failed."""
        if self._reading_users is None or self._reading_users.done():
            self._reading_users = asyncio.ensure_future(self.run(users.read_again))
        return self._reading_users

    async def run_produce(self, call: Callable[[], T]) -> T:
        """Do in a thread what sends records; it waits for a thread for half of the time that a delivery may take, and
        then for the topic, or for room, for the other half.

        Raises ``KafkaTimeoutError``: there was no thread for so long, and nothing was sent."""
        timeout_ms = self.settings.delivery_timeout_ms / 2
        deadline = self.cluster.clock.deadline_in(timeout_ms)

        def bounded() -> T:
            if deadline.left_ms <= 0:
                raise KafkaTimeoutError(f"nothing was sent in {timeout_ms:.0f} ms: others before it wait, too")
            return call()

        return await self._run("produce", bounded)

    async def open_topic(self, producer: Producer, topic: str) -> None:
        """Open a topic of a producer, for all that wait for it at once: in one thread, and for one time-out.

        Raises what opening a topic raises."""
        key = producer, topic
        opening = self._opening.get(key)
        if opening is None:
            opening = asyncio.ensure_future(self.run_produce(lambda: producer._pipelines.get(topic)))
            self._opening[key] = opening

            def opened(done: asyncio.Task[object]) -> None:
                self._opening.pop(key, None)
                if not done.cancelled():
                    done.exception()  # perhaps nobody waits for it any more

            opening.add_done_callback(opened)
        await asyncio.shield(opening)

    def later(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        """Have the event loop make a call. For any thread. Calls that come before it gets to them wake it once."""
        self._settled.append(call)
        if not self._is_woken and not loop.is_closed():
            self._is_woken = True
            loop.call_soon_threadsafe(self._make_calls, loop)

    def _make_calls(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_woken = False  # first: whoever adds a call from now on wakes the loop again
        while self._settled:
            loop.call_soon(self._settled.popleft())

    async def run_for_group(self, call: Callable[[], T]) -> T:
        """Do in a thread what may block; a store that is away is asked for as long as a commit of offsets may take."""
        return await self._run_within("group", call, self.settings.offset_commit_timeout_ms)

    async def run_look(self, call: Callable[[], T]) -> T:
        """Look at topics in a thread; a store that is away is asked for as long as clients surely wait."""
        return await self._run_within("look", call, self.settings.look_timeout_ms)

    async def _run_within(self, kind: str, call: Callable[[], T], timeout_ms: int) -> T:
        deadline = self.cluster.clock.deadline_in(float(timeout_ms))  # a wait for a thread is part of it

        def bounded() -> T:
            with self.cluster.store.patience(Patience(deadline=deadline)):
                return call()

        return await self._run(kind, bounded)

    def producer(self, acks: int) -> Producer:
        """The producer of an acknowledgement: of -1, or of 0 and 1, which differ in who waits."""
        name = "all" if acks == -1 else "one"
        producer = self._producers.get(name)
        if producer is None:
            timeout_ms = self.settings.delivery_timeout_ms
            producer = self._producers[name] = Producer(
                self.cluster,
                acks="all" if acks == -1 else 1,
                linger_ms=0,
                delivery_timeout_ms=timeout_ms,
                request_timeout_ms=timeout_ms,
                max_block_ms=timeout_ms // 2,
                max_request_size=self.settings.max_decoded_bytes,
            )
        return producer

    def describe(self, name: str) -> TopicDescription:
        """A topic as of now. May block. Raises ``UnknownTopicOrPartitionError``, ``InvalidTopicError``."""
        with topic_defects(self.log_repeats, name):
            (topic,) = self.admin.describe_topics([name])
        self.topic_names[uuid.UUID(topic.topic_id)] = name
        return topic

    def describe_all(self, *, is_sure: bool = False) -> Mapping[str, TopicFacts | Exception]:
        """All topics; for one that can't be read, the error. May block. Arguments and errors as
        :meth:`TopicDirectory.all`."""
        topics = self.directory.all(is_sure=is_sure)
        described = [topic for topic in topics.values() if isinstance(topic, TopicFacts)]
        self.topic_names = {topic.uuid: topic.name for topic in described}
        return topics

    async def follow_topics(self) -> None:
        """See to it that all topics are followed, as long as somebody asks for all of them now and then. In a folder
        alone: elsewhere each look costs a request for each topic."""
        is_under_way = self._following is not None and not self._following.done()
        if not is_under_way and self.directory.is_large and not self.cluster.store.is_remote:
            self._following = asyncio.ensure_future(self._follow_topics())

    async def _follow_topics(self) -> None:
        while self.directory.unasked_ms < _FOLLOWED_MS:
            await asyncio.sleep(self.cluster.tail_trust_ms / 3_000)
            try:
                await self.run_look(self.directory.follow)
            except SparklogError as error:
                _LOGGER.info("all topics can't be looked at: %s", error)
                return

    def topics_changed(self, *, deleted: str | None = None) -> None:
        """A topic was created, deleted or changed through this gateway."""
        self.directory.changed()
        groups = self.extras.get("groups") if deleted is not None else None
        if groups is not None:
            groups.topics.forget([deleted])

    def name_in(self, asked: Mapping[str, Any], field: str) -> str:
        """The topic that a request names in a field, or by its id. May block. Raises
        ``UnknownTopicOrPartitionError``."""
        if asked.get(field):
            return str(asked[field])
        if "topic_id" not in asked:
            raise UnknownTopicOrPartitionError("a topic without a name")
        return self.name_of(asked["topic_id"])

    def name_of(self, topic_id: uuid.UUID, *, is_sure: bool = False) -> str:
        """The topic that has an id, or had it when it was seen last. May block.

        Args:
            is_sure: look whether there is one now, however long that takes. Else an id that came into being within the
                last second or so may be unknown: clients ask again and again for one that is gone, and a look may be
                one at all topics.
        Raises ``UnknownTopicOrPartitionError``.
        """
        if topic_id not in self.topic_names and self._looking_for_ids.acquire(timeout=-1 if is_sure else _LOOK_S):
            try:
                self._look_for(topic_id, is_sure=is_sure)
            finally:
                self._looking_for_ids.release()
        name = self.topic_names.get(topic_id)
        if name is None:
            raise UnknownTopicOrPartitionError(f"no topic has the id {topic_id}")
        return name

    def _look_for(self, topic_id: uuid.UUID, *, is_sure: bool) -> None:
        """Learn of the topics that there are: of those that came into being, then of all, as one may have been created
        anew. In between, looks for ids rest for longer than they took."""
        began_ms = self.cluster.clock.ticks_ms()
        if topic_id in self.topic_names or not (is_sure or began_ms >= self._next_look_ms):
            return
        known = {*self.topic_names.copy().values()}  # other threads add to it
        parallel_results(self.describe, [name for name in self.admin.list_topics() if name not in known])
        if topic_id not in self.topic_names:
            self.describe_all(is_sure=True)
        ended_ms = self.cluster.clock.ticks_ms()
        self._next_look_ms = ended_ms + max(_LOOK_S * 1_000, _RESTS * (ended_ms - began_ms))

    def describe_by_id(self, topic_id: uuid.UUID, *, is_sure: bool = False) -> TopicDescription:
        """The topic that has an id now. May block. ``is_sure``: see :meth:`name_of`.

        Raises ``UnknownTopicOrPartitionError``: there is none any more, even if one of the same name came after it.
        """
        topic = self.describe(self.name_of(topic_id, is_sure=is_sure))
        if uuid.UUID(topic.topic_id) != topic_id:
            self.topic_names.pop(topic_id, None)  # unless another thread has found out, too
            raise UnknownTopicOrPartitionError(f"no topic has the id {topic_id}: {topic.name!r} was created again")
        return topic

    @property
    def has_unsettled(self) -> bool:
        """Are records of clients on their way to the store? From any thread."""
        return any(_has_unsettled(producer.metrics()) for producer in list(self._producers.values()))

    async def close(self) -> None:
        """Deliver what was sent, and end the threads."""
        if self._following is not None:
            self._following.cancel()
        for extra in self.extras.values():
            await extra.close()
        await self.run(self._close_clients)
        for threads in self._threads.values():
            threads.shutdown(wait=True)

    def _close_clients(self) -> None:
        for producer in self._producers.values():
            producer.close(self.settings.delivery_timeout_ms / 1_000)
        self.admin.close()


def _has_unsettled(metrics: Mapping[str, Mapping[str, float]]) -> bool:
    """Are there records of a producer with these metrics whose outcome isn't known yet?"""
    own = metrics["producer-metrics"]
    return own["requests-in-flight"] > 0 or own["buffer-available-bytes"] < own["buffer-total-bytes"]
