"""Sessions of Fetch (KIP-227): a client names its partitions once, then only what changed of them, and is answered only
with partitions of which there is news. Pure: time comes in as an argument. Belongs to the event loop.

A session lies in the memory of one gateway. A client that asks another one, or the same after it was started anew, is
answered with ``FETCH_SESSION_ID_NOT_FOUND``, and names all partitions again.

Source: Kafka ``FetchSession.scala``: ``FetchManager``, ``FetchSessionCacheShard``, ``IncrementalFetchContext``.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.users import Rules

__all__ = ["FetchSessions", "SessionFetch"]

_NO_SESSION, _FULL, _FINAL = 0, 0, -1
"""The id that is none; the epochs of a request that begins a session, and of one that wants none.
Source: Kafka ``FetchMetadata``."""
_GREATEST_EPOCH = 2**31 - 1
_SINCE_TOPIC_IDS = 13
_EVICTION_MS = 120_000.0
"""A session that wasn't used for so long makes room for any other; one that is younger makes room for none.
Source: Kafka ``FetchSession.FetchSessionEvictionMs``."""
_MOST_PARTITIONS = 200_000
"""Bound for all sessions together: each takes about 300 bytes. Kafka has no such bound."""

_Answer = dict[str, Any]
_TopicKey = Any
"""The name of a topic, or its id: one session has only names or only ids."""


@dataclass(slots=True)
class _Partition:
    """A partition of a session: what was asked for last, and what the last answer said."""

    fetch_offset: int
    max_bytes: int
    high_watermark: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class _Session:
    id: int
    by_id: bool
    """Its topics are named by their ids."""
    rules: Rules | None
    """The rights of the client that made it. Others learn nothing of it, not even names of topics."""
    created_ms: float
    used_ms: float
    epoch: int = 1
    """Epoch of the request that is to come next."""
    topics: OrderedDict[_TopicKey, OrderedDict[int, _Partition]] = field(default_factory=OrderedDict)
    """In the order in which they are looked at: what had records goes to the end, so that each has its turn."""
    size: int = 0
    """Partitions."""

    def put(self, key: _TopicKey, number: int, fetch_offset: int, max_bytes: int) -> _Partition:
        """Ask for a partition from now on, or for another offset of it."""
        partitions = self.topics.setdefault(key, OrderedDict())
        known = partitions.get(number)
        if known is None:
            known = partitions[number] = _Partition(fetch_offset, max_bytes)
            self.size += 1
        else:
            known.fetch_offset, known.max_bytes = fetch_offset, max_bytes
        return known

    def forget(self, key: _TopicKey, number: int) -> None:
        """Ask for a partition no more."""
        partitions = self.topics.get(key, OrderedDict())
        if partitions.pop(number, None) is not None:
            self.size -= 1
            if not partitions:
                del self.topics[key]

    def asked(self) -> list[dict[str, Any]]:
        """All partitions, as a request without a session would name them."""
        name = "topic_id" if self.by_id else "topic"
        return [
            {
                name: key,
                "partitions": [
                    {
                        "partition": number,
                        "fetch_offset": partition.fetch_offset,
                        "partition_max_bytes": partition.max_bytes,
                    }
                    for number, partition in partitions.items()
                ],
            }
            for key, partitions in self.topics.items()
        ]


class SessionFetch:
    """One request: the partitions to look at, and what of them is answered. This one has no session."""

    def __init__(self, topics: Sequence[Mapping[str, Any]]) -> None:
        self.topics = topics
        """Partitions by topic, as a request without a session names them."""

    def answer(self, responses: list[_Answer], now_ms: float) -> _Answer:
        """The answer to the request.

        Args:
            responses: the answer for every partition of ``topics``, in their order.
            now_ms: of a clock that only goes forward.
        """
        return {"session_id": _NO_SESSION, "responses": responses}


class _FullFetch(SessionFetch):
    """A request that names all partitions, and would have a session."""

    def __init__(
        self, sessions: FetchSessions, topics: Sequence[Mapping[str, Any]], rules: Rules | None, *, by_id: bool
    ) -> None:
        super().__init__(topics)
        self._sessions = sessions
        self._rules = rules
        self._by_id = by_id

    def answer(self, responses: list[_Answer], now_ms: float) -> _Answer:
        size = sum(len(topic["partitions"]) for topic in self.topics)
        session = self._sessions._create(size, self._rules, now_ms, by_id=self._by_id)
        if session is None:
            return super().answer(responses, now_ms)
        name = "topic_id" if self._by_id else "topic"
        for asked, topic in zip(self.topics, responses, strict=True):
            for wanted, answer in zip(asked["partitions"], topic["partitions"], strict=True):
                key, number = asked[name], wanted["partition"]
                _is_news(session.put(key, number, wanted["fetch_offset"], wanted["partition_max_bytes"]), answer)
        self._sessions._partition_count += session.size
        return {"session_id": session.id, "responses": responses}


class _IncrementalFetch(SessionFetch):
    """A request that says what changed since the one before."""

    def __init__(self, session: _Session) -> None:
        super().__init__(session.asked())
        self._session = session
        self._epoch = session.epoch

    def answer(self, responses: list[_Answer], now_ms: float) -> _Answer:
        session = self._session
        if session.epoch != self._epoch:  # another request came meanwhile, by another connection
            return {
                "error_code": ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                "session_id": session.id,
                "responses": [],
            }
        name = "topic_id" if session.by_id else "topic"
        news, moved = [], []
        for asked, topic in zip(self.topics, responses, strict=True):
            key, partitions = asked[name], []
            for answer in topic["partitions"]:
                number = answer["partition_index"]
                if _is_news(session.topics[key][number], answer):
                    partitions.append(answer)
                if answer["records"]:
                    moved.append((key, number))
            if partitions:
                news.append({**topic, "partitions": partitions})
        for key, number in moved:
            session.topics[key].move_to_end(number)
            session.topics.move_to_end(key)
        return {"session_id": session.id, "responses": news}


def _is_news(known: _Partition, answer: Mapping[str, Any]) -> bool:
    """Decide whether the client must get a partition's answer, and remember that answer.

    Source: Kafka ``CachedPartition.maybeUpdateResponseData``."""
    is_news = bool(answer["records"]) or (known.high_watermark, known.log_start_offset) != (
        answer["high_watermark"],
        answer["log_start_offset"],
    )
    known.high_watermark, known.log_start_offset = answer["high_watermark"], answer["log_start_offset"]
    if answer.get("error_code"):
        known.high_watermark = -1  # so that the client gets an answer when the error is over
        return True
    return is_news or "preferred_read_replica" in answer


class FetchSessions:
    """The sessions of a gateway: a bounded number of them, with a bounded number of partitions."""

    def __init__(self, most: int) -> None:
        """``most``: sessions; 0: none is ever made."""
        self._most = most
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        """By id, those that were used longest ago first."""
        self._partition_count = 0
        self.evicted_count = 0
        """Sessions that made room for others."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions of all sessions."""
        return self._partition_count

    def begin(
        self, body: Mapping[str, Any], version: int, rules: Rules | None, now_ms: float
    ) -> SessionFetch | ErrorCode:
        """Take a request.

        Args:
            body: of the request.
            version: of the request.
            rules: the rights of the client.
            now_ms: of a clock that only goes forward.
        Returns:
            What to look at; or the error of the whole request, upon which clients name all partitions again.
        """
        session_id, epoch = body.get("session_id", _NO_SESSION), body.get("session_epoch", _FINAL)
        by_id = version >= _SINCE_TOPIC_IDS
        session = self._sessions.get(session_id)
        if session is not None and session.rules != rules:
            session = None
        if epoch in (_FULL, _FINAL):
            if session is not None:
                self._remove(session)
            if epoch == _FINAL:
                return SessionFetch(body["topics"])
            return _FullFetch(self, body["topics"], rules, by_id=by_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if epoch != session.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if by_id != session.by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        self._partition_count -= session.size
        _change(session, body)
        self._partition_count += session.size
        if not session.topics:
            self._remove(session)
            return SessionFetch(body["topics"])
        if self._partition_count > _MOST_PARTITIONS:
            self._remove(session)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.used_ms = now_ms
        self._sessions.move_to_end(session.id)
        session.epoch = 1 if session.epoch == _GREATEST_EPOCH else session.epoch + 1
        return _IncrementalFetch(session)

    def _create(self, size: int, rules: Rules | None, now_ms: float, *, by_id: bool) -> _Session | None:
        """A session that has no partitions yet, for so many; None: there is no room for it."""
        if size > _MOST_PARTITIONS:
            return None
        while len(self._sessions) >= self._most or self._partition_count + size > _MOST_PARTITIONS:
            evicted = self._evictable(size, now_ms)
            if evicted is None:
                return None
            self._remove(evicted)
            self.evicted_count += 1
        session = _Session(self._new_id(), by_id, rules, now_ms, now_ms)
        self._sessions[session.id] = session
        return session

    def _evictable(self, size: int, now_ms: float) -> _Session | None:
        """The session that makes room for one of so many partitions: one that isn't used any more, else the smallest of
        those that are old enough, if it is smaller. Followers, which Kafka puts before consumers, aren't here."""
        if not self._sessions:
            return None
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > _EVICTION_MS:
            return oldest
        grown = [session for session in self._sessions.values() if now_ms - session.created_ms > _EVICTION_MS]
        smallest = min(grown, key=lambda session: session.size, default=None)
        return smallest if smallest is not None and smallest.size < size else None

    def _remove(self, session: _Session) -> None:
        del self._sessions[session.id]
        self._partition_count -= session.size

    def _new_id(self) -> int:
        while True:
            session_id = 1 + secrets.randbelow(_GREATEST_EPOCH)
            if session_id not in self._sessions:
                return session_id


def _change(session: _Session, body: Mapping[str, Any]) -> None:
    """Carry out what a request says: partitions that came or have another offset, then those that go."""
    name = "topic_id" if session.by_id else "topic"
    for key, partition in _each(body["topics"], name):
        session.put(key, partition["partition"], partition["fetch_offset"], partition["partition_max_bytes"])
    for key, number in _each(body.get("forgotten_topics_data", ()), name):
        session.forget(key, number)


def _each(topics: Iterable[Mapping[str, Any]], name: str) -> Iterator[tuple[_TopicKey, Any]]:
    for topic in topics:
        for partition in topic["partitions"]:
            yield topic[name], partition
