"""Rule L2: a create that was answered with a refusal is read back once, and failed only if the store itself said so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from sparklog import Producer
from sparklog.errors import (
    CommitStateUnknownError,
    SparklogError,
    StoreError,
    StoreFullError,
    StorePermissionError,
)
from sparklog.log import Cluster, create_topic, open_cluster
from sparklog.storage import MemoryStore
from sparklog.storage._answers import OWN_CODES, error_of_code
from sparklog.testing import WrappedStore

T = TypeVar("T")


class RefusingStore(WrappedStore):
    """Answers the next create of a log entry, and reads after it, as a server or a proxy would."""

    is_remote = True

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.answer: tuple[str, int] | None = None
        self.carries_out = False
        self.before: Callable[[], None] = lambda: None
        self.refuses_reads = False
        self.reads: list[str] = []

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if op == "get":
            self.reads.append(path)
            if self.refuses_reads:
                raise error_of_code("AccessDenied", 403, "", "get", path)
        if op != "create" or "_delta_log" not in path or self.answer is None:
            return call()
        (code, status), self.answer = self.answer, None
        self.before()
        if self.carries_out:
            call()
        self.reads.clear()
        raise error_of_code(code, status, "said so", "create", path)


@pytest.fixture
def store() -> RefusingStore:
    return RefusingStore()


@pytest.fixture
def cluster(store: RefusingStore) -> Cluster:
    cluster = open_cluster(store)
    create_topic(cluster.topic_log("t"), "t")
    return cluster


def outcome(cluster: Cluster, store: RefusingStore, answer: tuple[str, int]) -> int | SparklogError:
    with Producer(cluster, linger_ms=0, group_commit=False) as producer:
        producer.send("t", value=b"first").get(10)
        store.answer = answer
        future = producer.send("t", value=b"second")
        try:
            return future.get(10).offset
        except SparklogError as error:
            return error
        finally:
            store.refuses_reads = False


REFUSALS = [
    ("AccessDenied", 403),
    ("ExpiredToken", 400),
    ("RequestTimeTooSkewed", 403),
    ("InvalidArgument", 400),
    ("NoSuchBucket", 404),
    ("EntityTooLarge", 400),
    ("MethodNotAllowed", 405),
    ("", 403),
    ("", 405),
    ("", 507),
    ("", 301),
    ("Whatever", 404),
]


@pytest.mark.parametrize("answer", REFUSALS)
def test_what_was_carried_out_and_then_refused_is_stored(cluster, store, answer):
    store.carries_out = True
    assert outcome(cluster, store, answer) == 1
    assert sum(path.endswith("2.json") for path in store.reads) == 1


def test_another_writers_entry_under_a_refused_name_is_a_lost_race(cluster, store):
    def other() -> None:
        with Producer(cluster, linger_ms=0, group_commit=False) as producer:
            producer.send("t", value=b"of another").get(10)

    store.before = other
    assert outcome(cluster, store, ("AccessDenied", 403)) == 2


@pytest.mark.parametrize(("code", "status"), [("AccessDenied", 403), ("QuotaExceeded", 403), ("NoSuchBucket", 404)])
@pytest.mark.parametrize("refuses_reads", [False, True])
def test_a_refusal_with_a_code_of_the_stores_own_is_a_failure(cluster, store, code, status, refuses_reads):
    store.before = lambda: setattr(store, "refuses_reads", refuses_reads)
    failed = outcome(cluster, store, (code, status))
    assert isinstance(failed, StoreError)
    assert failed.code == code


@pytest.mark.parametrize("answer", [("", 403), ("", 507), ("Forbidden", 403), ("", 501), ("NoSuchRoute", 404)])
@pytest.mark.parametrize("refuses_reads", [False, True])
def test_a_refusal_that_a_proxy_may_have_given_is_unknown(cluster, store, answer, refuses_reads):
    store.before = lambda: setattr(store, "refuses_reads", refuses_reads)
    failed = outcome(cluster, store, answer)
    assert isinstance(failed, CommitStateUnknownError)
    assert "without a code of the store's own" in str(failed)


def test_a_refusal_that_no_server_gave_costs_no_read(cluster, store):
    """As a full disk: nothing was sent."""

    def full() -> None:
        store.reads.clear()
        raise StoreFullError("full")

    store.before = full
    failed = outcome(cluster, store, ("", 0))
    assert type(failed) is StoreFullError
    assert not any(path.endswith("2.json") for path in store.reads)


def test_codes_that_only_stores_give_are_certain_and_others_are_not():
    assert error_of_code("AccessDenied", 403, "", "put", "b/k").is_refusal
    assert not error_of_code("", 403, "", "put", "b/k").is_refusal
    assert StorePermissionError("of a folder").is_refusal
    assert {"AccessDenied", "NoSuchBucket", "AuthorizationPermissionMismatch", "KeyTooLongError"} <= OWN_CODES
