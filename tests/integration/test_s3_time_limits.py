"""Time limits on an S3 server behind a proxy that answers nothing, half, or late: for records of 1 B and of 40 MiB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from sparklog import Producer
from sparklog.clock import SystemClock
from sparklog.errors import KafkaTimeoutError, StoreUnavailableError
from sparklog.log import create_topic, open_cluster
from sparklog.storage import AzureStore
from sparklog.storage.retrying import RetryingStore
from tests.s3_proxy import COMMIT, LOST, STALLED, S3Proxy, s3_proxy
from tests.scripted_server import SILENCE, scripted_server

pytestmark = [pytest.mark.s3, pytest.mark.slow]

LIMITS: dict[str, Any] = {
    "delivery_timeout_ms": 1_500,
    "request_timeout_ms": 500,
    "linger_ms": 0,
    "max_request_size": 2**26,
}


@pytest.fixture
def proxy(s3_options: dict[str, Any]) -> Iterator[S3Proxy]:
    with s3_proxy(s3_options["endpoint_url"]) as proxy:
        yield proxy


@pytest.fixture
def producer(s3_uri: str, s3_options: dict[str, Any], proxy: S3Proxy) -> Iterator[Producer]:
    cluster = open_cluster(s3_uri, storage_options={**s3_options, "endpoint_url": proxy.url})
    create_topic(cluster.topic_log("t"), "t", configs={"max.message.bytes": 2**26})
    producer = Producer(cluster, **LIMITS)
    producer.send("t", value=b"before").get(30)
    yield producer
    proxy.trouble = None
    producer.close(timeout=0)


def data(method: str, path: str) -> bool:
    return ".parquet" in path and method in ("PUT", "POST")


def commits(method: str, path: str) -> bool:
    return method == "PUT" and COMMIT.search(path.partition("?")[0]) is not None


def completions(method: str, path: str) -> bool:
    return method == "POST" and "uploadId=" in path


def late(method: str, path: str) -> bool:
    return True


@pytest.mark.parametrize("trouble", [STALLED, LOST])
@pytest.mark.parametrize(
    ("which", "size"),
    [(data, 1), (commits, 1), (late, 1), (data, 40 * 2**20), (completions, 40 * 2**20), (commits, 40 * 2**20)],
)
def test_a_send_has_a_verdict_and_close_returns(
    producer: Producer, proxy: S3Proxy, which: Callable[[str, str], bool], size: int, trouble: int
):
    proxy.trouble = lambda method, path: trouble if which(method, path) else None
    future = producer.send("t", value=b"x" * size)
    with suppress(KafkaTimeoutError):
        future.get(30)
    assert future.is_done
    producer.close(timeout=0.5)


def test_a_completion_whose_answer_is_lost_once_is_a_success(producer: Producer, proxy: S3Proxy):
    producer.close()
    lost: list[str] = []

    def lose(method: str, path: str) -> int | None:
        if completions(method, path) and not lost:
            lost.append(path)
            return LOST
        return None

    proxy.trouble = lose
    with Producer(producer._cluster, **{**LIMITS, "delivery_timeout_ms": 60_000}) as patient:
        assert patient.send("t", value=b"x" * (20 * 2**20)).get(60).offset == 1
    assert lost


def test_azures_client_is_left_alone_when_time_is_over():
    with scripted_server() as server:
        server.answer = lambda request: SILENCE
        options = {"account_name": "a", "account_key": "YQ==", "endpoint_url": server.url}
        store = RetryingStore(AzureStore("az://container/root", options), clock=SystemClock())
        with pytest.raises(StoreUnavailableError, match="no answer within"):
            store.abandoning(50).read("a")
        server.closing.set()
