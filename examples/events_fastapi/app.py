"""A web application that passes events on as they are stored: FastAPI, the clients for asyncio, and server-sent events.

``EVENTS_CLUSTER=./data uvicorn examples.events_fastapi.app:from_environment --factory --timeout-graceful-shutdown 5``
serves it; a browser reads it by ``new EventSource("/events")``, which goes on where it was after each interruption.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Annotated

from fastapi import FastAPI, Header, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from sparklog import NewTopic, TopicPartition
from sparklog.aio import Admin, Consumer, Producer
from sparklog.errors import TopicAlreadyExistsError
from sparklog.log import Cluster, open_cluster

TOPIC = "events"
KEEP_ALIVE_MS = 15_000
"""A connection on which nothing is sent is cut by many a proxy."""


class Event(BaseModel):
    """What a client posts. Events of one room stay in their order."""

    room: str
    text: str


class Readers:
    """Counts the clients that are being served."""

    count = 0


def make_app(root: str, readers: Readers) -> FastAPI:
    """The application, for the cluster at a root URI or folder."""
    opened: dict[str, Cluster] = {}
    producers: list[Producer] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        """One producer for the whole application: what several requests send meanwhile is one commit."""
        cluster = opened["cluster"] = await asyncio.to_thread(open_cluster, root)
        async with Admin(cluster) as admin:
            with suppress(TopicAlreadyExistsError):
                await admin.create_topics([NewTopic(TOPIC, num_partitions=3)])
        async with Producer(cluster) as producer:
            producers[:] = [producer]
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/events", status_code=201)
    async def publish(event: Event) -> dict[str, int]:
        """Answers once the event is stored."""
        stored = await producers[0].send_and_wait(TOPIC, event.model_dump_json().encode(), event.room.encode())
        return {"partition": stored.partition, "offset": stored.offset}

    @app.get("/events")
    async def subscribe(last_event_id: Annotated[str | None, Header()] = None) -> StreamingResponse:
        """All events from now on, or after those that the client has seen."""
        try:
            begin = positions_of(last_event_id or "")
        except ValueError:
            raise HTTPException(status_code=400, detail=f"Last-Event-ID: {last_event_id!r} is none of ours") from None
        stream = _stream(opened["cluster"], begin, readers)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    return app


def id_of(positions: Mapping[int, int]) -> str:
    """An event's id: the offset of each partition at which a client goes on that has seen the event."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def positions_of(event_id: str) -> dict[int, int]:
    """The inverse of :func:`id_of`. Raises ``ValueError``."""
    pairs = (part.split(":") for part in event_id.split(",") if event_id)
    positions = {int(partition): int(offset) for partition, offset in pairs}
    if any(number < 0 for pair in positions.items() for number in pair):
        raise ValueError(event_id)
    return positions


async def _stream(cluster: Cluster, begin: Mapping[int, int], readers: Readers) -> AsyncIterator[str]:
    """A client's events. When it goes away the server cancels this, and the consumer is closed."""
    readers.count += 1
    try:
        async with Consumer(cluster=cluster, auto_offset_reset="latest") as consumer:
            partitions = [TopicPartition(TOPIC, number) for number in await consumer.partitions_for_topic(TOPIC) or ()]
            consumer.assign(partitions)
            for partition in partitions:
                if partition.partition in begin:
                    consumer.seek(partition, begin[partition.partition])
            positions = {partition.partition: await consumer.position(partition) for partition in partitions}
            yield f"id: {id_of(positions)}\n\n"  # from here on it misses nothing
            while True:
                found = await consumer.getmany(timeout_ms=KEEP_ALIVE_MS)
                for records in found.values():
                    for record in records:
                        positions[record.partition] = record.offset + 1
                        data = "\n".join(f"data: {line}" for line in record.value.decode(errors="replace").splitlines())
                        yield f"id: {id_of(positions)}\n{data}\n\n"
                if not found:
                    yield ": nothing new\n\n"
    finally:
        readers.count -= 1


def from_environment() -> FastAPI:
    return make_app(os.environ["EVENTS_CLUSTER"], Readers())
