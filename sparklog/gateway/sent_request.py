"""An ordinary Produce request from its reading to its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Any

from sparklog.gateway.produce import Answer
from sparklog.gateway.produced_frame import produced_frame
from sparklog.gateway.users import Rules

__all__ = ["Sent"]


class Sent:
    """A request whose records are on their way."""

    __slots__ = (
        "_done",
        "_is_sent",
        "_left",
        "_results",
        "_topics",
        "_unsent",
        "acks",
        "answer",
        "connection",
        "correlation_id",
        "is_done",
        "rules",
        "version",
    )

    def __init__(
        self,
        version: int,
        correlation_id: int,
        acks: int,
        topics: Sequence[tuple[str, Sequence[tuple[Any, ...]]]],
        rules: Rules | None,
        connection: object,
    ) -> None:
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.acks = acks
        self._topics = topics
        self.rules = rules
        self._left = len(topics[0][1]) if len(topics) == 1 else sum(len(partitions) for _, partitions in topics)
        self._unsent = self._left
        self._is_sent: asyncio.Event | None = None
        self._results: list[int | Answer] = [-1] * self._left
        self.is_done = False
        self.answer: bytes | Answer | None = None
        """Once it is done: the frame that answers it; where not all is stored, the response; None with ``acks=0``."""
        self._done: asyncio.Future[bytes | Answer | None] | None = None

    @property
    def done(self) -> asyncio.Future[bytes | Answer | None]:
        """Has the answer as soon as it is done, and never fails. Most requests are done before anybody waits."""
        if self._done is None:
            self._done = asyncio.get_running_loop().create_future()
            if self.is_done:
                self._done.set_result(self.answer)
        return self._done

    @property
    def is_sent(self) -> bool:
        """Has the producer all of its records?"""
        return not self._unsent

    def note_sent(self) -> None:
        """The producer has the records of one more partition, or they have failed."""
        self._unsent -= 1
        if not self._unsent and self._is_sent is not None:
            self._is_sent.set()

    async def wait_until_sent(self) -> None:
        """Wait until the producer has all of its records."""
        if self._unsent:
            self._is_sent = self._is_sent or asyncio.Event()
            await self._is_sent.wait()

    def settle(self, place: int, result: int | Answer) -> None:
        """Note the offset of a partition's records, or the answer to them, by its place in the request."""
        self._results[place] = result
        self._left -= 1
        if self._left or self.is_done:
            return
        self.answer = self._answer() if self.acks else None
        self.is_done = True
        if self._done is not None and not self._done.done():
            self._done.set_result(self.answer)

    def _answer(self) -> bytes | Answer:
        numbers = [(name, [found[0] for found in partitions]) for name, partitions in self._topics]
        offsets = [result for result in self._results if isinstance(result, int)]
        if len(offsets) == len(self._results):  # nearly always
            frame = produced_frame(self.version, self.correlation_id, numbers, offsets)
            if frame is not None:
                return frame
        left = iter(self._results)
        responses = []
        for name, of_topic in numbers:
            parts = [
                {"index": number, **({"base_offset": found} if isinstance(found, int) else found)}
                for number, found in zip(of_topic, islice(left, len(of_topic)), strict=True)
            ]
            responses.append({"name": name, "partition_responses": parts})
        return {"responses": responses}
