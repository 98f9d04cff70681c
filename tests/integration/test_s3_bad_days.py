"""Clients beside an S3 server, or a way to it, that refuses and loses requests or dies: what was acknowledged is there
once, and in order."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proof.torture.servers import BUCKET, NO_VERSITYGW, find_versitygw, versitygw
from sparklog import Consumer, Producer
from sparklog.compaction import maintain
from sparklog.log import create_topic, open_cluster
from tests.s3_proxy import LOST, STALLED, S3Proxy, s3_proxy
from tests.scripted_server import Request

pytestmark = [pytest.mark.s3, pytest.mark.slow]

Trouble = Callable[[str, str], int | None]
RECORDS = [str(number).encode() for number in range(24)]
READ_TIMEOUT_S = 0.5


def every_first_answer_is_lost() -> Trouble:
    """To each different request."""
    seen: Counter[tuple[str, str]] = Counter()

    def trouble(method: str, path: str) -> int | None:
        seen[method, path] += 1
        return LOST if seen[method, path] == 1 else None

    return trouble


def answers_that_never_come() -> Trouble:
    """To each seventh request: the client learns it by its time-out."""
    numbers = iter(range(1_000_000))
    return lambda method, path: STALLED if next(numbers) % 7 == 3 else None


def storm(status: int, methods: set[str]) -> Trouble:
    """Two of five requests are refused."""
    draw = random.Random(status)
    return lambda method, path: status if method in methods and draw.random() < 0.4 else None


def throttled_prefix(folder: str) -> Trouble:
    """Below one folder requests are refused but for each third."""
    draw = random.Random(folder)
    return lambda method, path: 503 if folder in path and draw.random() < 0.6 else None


def anything() -> Trouble:
    draw = random.Random(17)
    return lambda method, path: draw.choice([LOST, 500, 503, 409 if method == "PUT" else 503, *[None] * 8])


@contextmanager
def proxied(options: dict[str, Any]) -> Iterator[tuple[S3Proxy, dict[str, Any]]]:
    """A proxy before the server of some options, and the options with which clients use it."""
    with s3_proxy(options["endpoint_url"]) as proxy:
        yield proxy, {**options, "endpoint_url": proxy.url, "read_timeout": READ_TIMEOUT_S}


def produce(uri: str, options: dict[str, Any], after: Callable[[int], object] = lambda number: None) -> list[int]:
    """Send :data:`RECORDS`, a few to a commit; returns the offsets that were acknowledged. ``after`` learns how many
    were sent."""
    with Producer(uri, storage_options=options, linger_ms=0) as producer:
        futures = []
        for number, value in enumerate(RECORDS, 1):
            futures.append(producer.send("t", value=value))
            if number % 8 == 0:
                producer.flush()
            after(number)
        return [future.get(timeout=60).offset for future in futures]


def consume(uri: str, options: dict[str, Any]) -> list[bytes | None]:
    """As many values as were sent."""
    read: list[bytes | None] = []
    with Consumer("t", cluster=uri, storage_options=options, auto_offset_reset="earliest") as consumer:
        while len(read) < len(RECORDS):
            for records in consumer.poll(timeout_ms=1000).values():
                read += [record.value for record in records]
    return read


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(every_first_answer_is_lost, id="each answer is lost once"),
        pytest.param(answers_that_never_come, id="answers that never come"),
        pytest.param(lambda: storm(503, {"GET", "PUT", "POST"}), id="503", marks=pytest.mark.deep),
        pytest.param(lambda: storm(409, {"PUT"}), id="409", marks=pytest.mark.deep),
        pytest.param(lambda: throttled_prefix("_delta_log"), id="a throttled prefix", marks=pytest.mark.deep),
        pytest.param(anything, id="anything"),
    ],
)
def test_what_was_acknowledged_is_there_once_and_in_order(
    s3_uri: str, s3_options: dict[str, Any], trouble: Callable[[], Trouble]
) -> None:
    calm = open_cluster(s3_uri, storage_options=s3_options)
    create_topic(calm.topic_log("t"), "t")
    calm.store.close()
    with proxied(s3_options) as (proxy, options):
        proxy.trouble = trouble()
        assert produce(s3_uri, options) == list(range(len(RECORDS)))
        assert consume(s3_uri, options) == RECORDS


class Outages:
    """Kills a server four times in the middle of requests, and starts it anew a moment later."""

    def __init__(self, kill: Callable[[], None], start: Callable[[], None]) -> None:
        self._kill, self._start = kill, start
        self._draw = random.Random(5)
        self.ended = threading.Event()

    def __enter__(self) -> Outages:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        for _ in range(4):
            time.sleep(self._draw.uniform(0.05, 0.25))
            self._kill()
            time.sleep(self._draw.uniform(0.05, 0.4))
            self._start()
        self.ended.set()


def test_a_server_that_dies_under_load_loses_nothing_and_gives_nothing_twice(
    s3_uri: str, s3_options: dict[str, Any]
) -> None:
    with proxied(s3_options) as (proxy, options):
        play_outages(s3_uri, options, Outages(proxy.kill, proxy.start))


@pytest.mark.deep
def test_versitygw_that_is_killed_under_load_loses_nothing(tmp_path: Path) -> None:
    program = find_versitygw()
    if program is None:
        pytest.skip(NO_VERSITYGW)
    server = versitygw(program, tmp_path)
    try:
        options = {**server.storage_options, "read_timeout": READ_TIMEOUT_S}
        play_outages(f"s3://{BUCKET}/root", options, Outages(server.kill, server.restart))
    finally:
        server.kill()


def play_outages(uri: str, options: dict[str, Any], outages: Outages) -> None:
    """A producer and a consumer at once, while the server dies; the last records are sent when it has."""
    cluster = open_cluster(uri, storage_options=options)
    create_topic(cluster.topic_log("t"), "t")
    cluster.store.close()
    read: list[bytes | None] = []
    reader = threading.Thread(target=lambda: read.extend(consume(uri, options)))
    reader.start()
    with outages:
        offsets = produce(uri, options, lambda number: outages.ended.wait(0.03 if number < len(RECORDS) - 3 else 60))
    reader.join(timeout=60)
    assert offsets == list(range(len(RECORDS)))
    assert read == RECORDS


ORPHAN = "topics/t/partition=0/orphan-{}.parquet"


def orphans_look_old(request: Request, content: bytes) -> bytes:
    """The server's answer, in whose listings orphans are of a year ago."""
    return re.sub(rb"(orphan-\d+\.parquet</Key>\s*<LastModified>)20\d\d", rb"\g<1>2020", content)


def test_a_sweep_beside_all_of_it_takes_orphans_alone(s3_uri: str, s3_options: dict[str, Any]) -> None:
    calm = open_cluster(s3_uri, storage_options=s3_options)
    create_topic(calm.topic_log("t"), "t")
    calm.store.put_many({ORPHAN.format(number): b"nobody names it" for number in range(5)})
    with proxied(s3_options) as (proxy, options):
        proxy.rewrite = orphans_look_old
        proxy.trouble = anything()
        sweeping = open_cluster(s3_uri, storage_options=options)

        def sweep(number: int) -> None:
            if number == 12:
                maintain(sweeping, full=True)

        assert produce(s3_uri, options, sweep) == list(range(len(RECORDS)))
        proxy.trouble = None
        assert maintain(sweeping, full=True).failures == []
        assert consume(s3_uri, options) == RECORDS
        sweeping.store.close()
    assert [row.path for row in calm.store.list("topics/t/") if "orphan" in row.path] == []
    calm.store.close()
