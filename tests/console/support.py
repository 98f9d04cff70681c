"""A console over a cluster in memory, asked as a browser asks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sparklog.admin import Admin, NewTopic
from sparklog.console import Backend, ConsoleSettings, create_app
from sparklog.consumer import Consumer
from sparklog.log import Cluster, open_cluster
from sparklog.model import Headers
from sparklog.producer import Producer
from sparklog.storage import MemoryStore, ObjectStore

with warnings.catch_warnings():  # Starlette's client prefers a newer httpx
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient as TestClient

ORIGIN = "http://localhost"


def a_cluster(store: ObjectStore | None = None) -> Cluster:
    return open_cluster(store or MemoryStore())


def a_topic(cluster: Cluster, name: str = "orders", *, partitions: int = 1, **topic: Any) -> None:
    Admin(cluster).create_topics([NewTopic(name, partitions, **topic)])


def produce(
    cluster: Cluster, *values: Any, topic: str = "orders", key: bytes | None = None, headers: Headers | None = None
) -> None:
    """Each value in a commit of its own."""
    with Producer(cluster=cluster) as producer:
        for value in values:
            producer.send(topic, value, key=key, headers=headers).get(60)


def consume(cluster: Cluster, group: str, count: int, topics: Sequence[str] = ("orders",)) -> None:
    """Commit after so many records."""
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer(*topics, cluster=cluster, group_id=group, **settings) as consumer:
        while count > 0:
            count -= sum(len(found) for found in consumer.poll(1_000, max_records=1).values())
        consumer.commit()


@contextmanager
def console(cluster: Cluster, *, looks: bool = True, **settings: Any) -> Iterator[TestClient]:
    """A client of a console that has looked once, if it is to, and looks no more."""
    given = {"silence_timeout_ms": 60_000.0, **settings}  # a busy machine isn't a store that is away
    backend = Backend(lambda: cluster, ConsoleSettings(**given))
    app = create_app(backend)
    if looks:
        backend.look()
    client = TestClient(app, base_url=ORIGIN, raise_server_exceptions=False)
    client.app_state["backend"] = backend
    yield client


def backend_of(client: TestClient) -> Backend:
    found: Backend = client.app_state["backend"]
    return found


def csrf_of(page: str) -> str:
    """The token that the forms of a page carry."""
    return page.partition('name="csrf" value="')[2].partition('"')[0]
