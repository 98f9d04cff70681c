"""Clients beside an S3 server, or a way to it, that refuses and loses requests: what was acknowledged is there once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from sparklog import Consumer, Producer
from sparklog.log import create_topic, open_cluster
from tests.s3_proxy import LOST, s3_proxy

pytestmark = [pytest.mark.s3, pytest.mark.slow]

Trouble = Callable[[str, str], int | None]
RECORDS = [str(number).encode() for number in range(60)]


def every_first_answer_is_lost() -> Trouble:
    """To each different request."""
    seen: Counter[tuple[str, str]] = Counter()

    def trouble(method: str, path: str) -> int | None:
        seen[method, path] += 1
        return LOST if seen[method, path] == 1 else None

    return trouble


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


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(every_first_answer_is_lost, id="each answer is lost once"),
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
    with s3_proxy(s3_options["endpoint_url"]) as proxy:
        options = {**s3_options, "endpoint_url": proxy.url}
        proxy.trouble = trouble()
        with Producer(s3_uri, storage_options=options, linger_ms=0) as producer:
            futures = []
            for at, value in enumerate(RECORDS):
                futures.append(producer.send("t", value=value))
                if at % 10 == 9:
                    producer.flush()
            acknowledged = [future.get(timeout=60).offset for future in futures]
        assert acknowledged == list(range(len(RECORDS)))
        read: list[bytes | None] = []
        with Consumer("t", cluster=s3_uri, storage_options=options, auto_offset_reset="earliest") as consumer:
            while len(read) < len(RECORDS):
                for records in consumer.poll(timeout_ms=1000).values():
                    read += [record.value for record in records]
        proxy.trouble = None
    assert read == RECORDS
    calm.store.close()
