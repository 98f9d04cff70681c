"""What changes something needs the right to, a login and a token; what it did is told, and never what records hold."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from sparklog.admin import Admin
from sparklog.console import hash_password
from sparklog.consumer import Consumer
from sparklog.errors import KafkaTimeoutError
from sparklog.log import Cluster
from sparklog.model import Headers, TopicPartition
from sparklog.producer import Producer
from tests.console.support import TestClient, a_cluster, a_topic, console, consume, csrf_of, produce

pytestmark = pytest.mark.slow

USERS = {"ann": hash_password("pw"), "bob": hash_password("pw")}
WRITING: dict[str, Any] = {"allow_writes": True, "users": USERS}


@pytest.fixture
def cluster() -> Cluster:
    cluster = a_cluster()
    a_topic(cluster)
    produce(cluster, b"\x00\xffsecret", key=b"k", headers=[("h", b"\xfe")])
    return cluster


def post(client: TestClient, path: str, *, user: str = "ann", **fields: str) -> tuple[int, str]:
    """Send a form with the token of the user's pages, unless another one is given."""
    token = csrf_of(client.get("/topics/orders", auth=(user, "pw")).text)
    assert token
    answer = client.post(
        path, data={"csrf": token, **fields}, auth=(user, "pw"), headers={"Origin": "http://localhost"}
    )
    return answer.status_code, answer.text


def values(cluster: Cluster, topic: str = "orders") -> list[tuple[Any, Any, Headers]]:
    with Consumer(cluster=cluster) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        return [(one.key, one.value, one.headers) for found in consumer.poll(5_000).values() for one in found]


PATHS = ("/topics/orders/settings", "/topics/orders/produce", "/transaction/abort", "/transactions/recover")


@pytest.mark.parametrize("path", [*PATHS, "/group/reset"])
def test_a_console_that_only_reads_writes_nothing(cluster: Cluster, path: str) -> None:
    with console(cluster) as client:
        answer = client.post(path, data={"execute": "yes", "group": "g", "to": "earliest"})
        assert (answer.status_code, "--allow-writes" in answer.text) == (403, True)
        assert "<form method" not in client.get("/topics/orders").text


@pytest.mark.parametrize("path", [*PATHS, "/group/reset"])
def test_a_form_without_the_token_is_refused(cluster: Cluster, path: str) -> None:
    with console(cluster, **WRITING) as client:
        others = csrf_of(client.get("/topics/orders", auth=("bob", "pw")).text)
        for token in ("", "x", "ä", others):
            fields = {
                "csrf": token,
                "execute": "yes",
                "group": "g",
                "to": "earliest",
                "name": "retention.ms",
                "value": "1",
            }
            answer = client.post(path, data=fields, auth=("ann", "pw"))
            assert answer.status_code == 403, token
        assert client.post(path, data={}, headers={"Authorization": ""}).status_code == 401
        assert client.get(path, auth=("ann", "pw")).status_code == 405
        assert client.post(path, json={}, auth=("ann", "pw")).status_code == 415


def test_a_setting_is_changed_and_taken_back(cluster: Cluster) -> None:
    with console(cluster, **WRITING) as client:
        assert post(client, PATHS[0], name="retention.ms", value="5000")[0] == 200
        assert Admin(cluster).describe_configs(["orders"])["orders"]["retention.ms"].value == 5_000
        assert post(client, PATHS[0], name="retention.ms", value="x", default="1")[0] == 200
        assert Admin(cluster).describe_configs(["orders"])["orders"]["retention.ms"].is_default
        status, page = post(client, PATHS[0], name="<b>nope</b>", value="1")
        assert (status, "<b>nope" in page) == (400, False)


def test_a_record_is_produced(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "sparklog.console")
    with console(cluster, **WRITING) as client:
        status, page = post(client, PATHS[1], key="user-1", value="a secret\r\nline", headers="a=b\n", partition="0")
        assert (status, "offset 1" in page) == (200, True)
        assert post(client, PATHS[1], no_key="1", tombstone="1")[0] == 200
        assert post(client, PATHS[1], headers="no equals sign")[0] == 400
        assert post(client, PATHS[1], partition="x")[0] == 400
    assert values(cluster)[1:] == [(b"user-1", b"a secret\nline", [("a", b"b")]), (None, None, [])]
    assert "'ann' produced a record to topic 'orders'" in caplog.text
    assert "secret" not in caplog.text
    assert "user-1" not in caplog.text


def test_a_record_is_produced_again_byte_by_byte(cluster: Cluster) -> None:
    a_topic(cluster, "copies")
    with console(cluster, **WRITING) as client:
        assert "Produce again" in client.get("/topics/orders/records/0/0", auth=("ann", "pw")).text
        assert post(client, PATHS[1], partition="0", offset="0")[0] == 200
        assert post(client, PATHS[1], partition="0", offset="0", target="copies")[0] == 200
        assert post(client, PATHS[1], partition="0", offset="9")[0] == 404
        assert post(client, PATHS[1], partition="0", offset="0", target="<b>")[0] == 404
    record = (b"k", b"\x00\xffsecret", [("h", b"\xfe")])
    assert (values(cluster), values(cluster, "copies")) == ([record, record], [record])


def test_an_outcome_that_nobody_knows_is_not_told_as_a_failure(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Future:
        def get(self, timeout: float) -> None:
            raise KafkaTimeoutError("no answer")

    monkeypatch.setattr(Producer, "send", lambda self, topic, **arguments: Future())
    with console(cluster, **WRITING) as client:
        status, page = post(client, PATHS[1], value="x")
    assert status == 500
    assert "whether the record was stored isn&#39;t known" in page


def test_a_reset_is_rehearsed_first(cluster: Cluster) -> None:
    produce(cluster, b"a", b"b")
    consume(cluster, "g", 2)
    with console(cluster) as client:  # a rehearsal only reads
        page = client.post("/group/reset", data={"group": "g", "to": "earliest"}).text
        assert ("What a reset would do" in page, "only reads" in page) == (True, True)
    at = TopicPartition("orders", 0)
    with console(cluster, **WRITING) as client:
        status, page = post(client, "/group/reset", group="g", to="shift", number="-1")
        assert re.findall(r'<td class="n">(\d+)</td>', page) == ["2", "1"]
        assert Admin(cluster).list_group_offsets("g")[at].offset == 2
        status, page = post(client, "/group/reset", group="g", to="shift", number="-1", execute="yes")
        assert (status, "Offsets were reset" in page) == (200, True)
        assert Admin(cluster).list_group_offsets("g")[at].offset == 1
        for to, number in (("shift", "x"), ("time", ""), ("offset", "-1"), ("nonsense", "")):
            assert post(client, "/group/reset", group="g", to=to, number=number)[0] == 400
        assert post(client, "/group/reset", group="g", to="time", number="2020-01-01")[0] == 200


def test_transactions_are_aborted_and_recovered(cluster: Cluster) -> None:
    producer = Producer(cluster=cluster, transactional_id="<i>tx</i>")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"x")
    with console(cluster, **WRITING) as client:
        assert "Abort what it has open" in client.get("/transaction?id=<i>tx</i>", auth=("ann", "pw")).text
        status, page = post(client, "/transaction/abort", id="<i>tx</i>")
        assert (status, "<i>" in page) == (200, False)
        assert post(client, "/transactions/recover")[0] == 200
        assert post(client, "/transaction/abort", id="nope")[0] == 404
    producer.close()
    assert len(values(cluster)) == 1


def test_a_form_that_is_too_large_is_refused(cluster: Cluster) -> None:
    with console(cluster, **WRITING) as client:
        assert post(client, PATHS[1], value="x" * 5_000_000)[0] == 413


def test_no_record_is_copied_while_fields_are_masked(cluster: Cluster) -> None:
    """The target may have a schema, whose errors name values, or a mask by another name."""
    with console(cluster, masks=frozenset(["ssn"]), **WRITING) as client:
        status, text = post(client, "/topics/orders/produce", partition="0", offset="0")
    assert status == 400
    assert "fields are masked" in text
