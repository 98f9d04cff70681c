"""Opening topics concurrently, in other threads than the one that reads the topics that are open."""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from sparklog.log import Cluster, TopicFollower
from sparklog.parallel import AT_ONCE, Job

__all__ = ["TopicOpener"]


class TopicOpener:
    """Opens topics, up to 32 at once. Owned by one thread.

    Args:
        ended: called whenever one of them is open or has failed, by another thread.
    """

    def __init__(self, cluster: Cluster, ended: Callable[[], None]) -> None:
        self._cluster = cluster
        self._ended = ended
        self._threads: ThreadPoolExecutor | None = None
        """None while nothing is being opened."""
        self._futures: dict[str, Future[TopicFollower]] = {}
        self._unwanted: list[Future[TopicFollower]] = []
        """Openings that had begun when their topics were wanted no more."""

    def __contains__(self, topic: object) -> bool:
        return topic in self._futures

    def __bool__(self) -> bool:
        return bool(self._futures)

    @property
    def topics(self) -> Set[str]:
        """The topics that are being opened, or whose outcome :meth:`take` hasn't returned yet."""
        return self._futures.keys()

    @property
    def have_ended(self) -> bool:
        """Is there something to :meth:`take`?"""
        return bool(self._futures) and any(future.done() for future in self._futures.values())

    @property
    def is_idle(self) -> bool:
        """Is nothing under way, and nothing to :meth:`take`?"""
        return self._threads is None and not self._futures and not self._unwanted

    def begin(self, topic: str) -> None:
        """Open a topic, unless it is being opened."""
        if topic in self._futures:
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(AT_ONCE, "sparklog-opening")
        try:
            future = self._threads.submit(open_topic, self._cluster, topic)
        except RuntimeError:  # no more threads: it is opened here; if one of them does so too, that only reads
            job = Job(partial(open_topic, self._cluster, topic))
            job.run()
            future = job.future
        self._futures[topic] = future
        future.add_done_callback(lambda _: self._ended())

    def keep(self, topics: Collection[str]) -> None:
        """Open no others than these; :meth:`take` returns no others."""
        for topic in self._futures.keys() - set(topics):
            future = self._futures.pop(topic)
            if not future.cancel():
                self._unwanted.append(future)

    def take(self) -> dict[str, TopicFollower | Exception]:
        """The followers of the topics that were opened since the last call, and why others couldn't be."""
        ended = {topic: future for topic, future in self._futures.items() if future.done()}
        for topic in ended:
            del self._futures[topic]
        self._unwanted = [future for future in self._unwanted if not future.done()]
        if not self._futures and not self._unwanted and self._threads is not None:
            self._threads.shutdown(wait=False)  # nothing is under way that close would have to wait for
            self._threads = None
        return {topic: _outcome(future) for topic, future in ended.items()}

    def close(self) -> None:
        """Wait for topics whose opening has begun; the others aren't opened any more."""
        self._futures.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
            self._threads = None


def open_topic(cluster: Cluster, topic: str) -> TopicFollower:
    """Load a topic. Raises as :class:`TopicFollower`, and ``InvalidTopicError``."""
    return TopicFollower(cluster.topic_log(topic), topic)


def _outcome(future: Future[TopicFollower]) -> TopicFollower | Exception:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, Exception):
        return error
    raise error
