"""``sparklog delayed``: what waits is listed, cancelled and delivered."""

import json

from sparklog import Producer
from tests.cli.support import a_cluster, done, failure

DUE_MS = 4_102_444_800_000


def test_records_are_listed_cancelled_and_delivered():
    cluster = a_cluster()
    done("topics", "create", "orders", "--config", "delay=true", cluster=cluster)
    assert done("delayed", "list", cluster=cluster).split() == ["topic", "deliver", "at", "key", "id", "bytes"]
    with Producer(cluster) as producer:
        for key, at in ((b"ann", DUE_MS), (b"bob", DUE_MS + 1), (None, DUE_MS + 2), (b"ann", 0)):
            producer.send("orders", b"an order", key, deliver_at=at)
    listed = [json.loads(line) for line in done("delayed", "list", "--json", cluster=cluster).splitlines()]
    assert [(each["deliver_at"], each["key"]) for each in listed] == [
        ("1970-01-01T00:00:00.000+00:00", "ann"),
        ("2100-01-01T00:00:00.000+00:00", "ann"),
        ("2100-01-01T00:00:00.001+00:00", "bob"),
        ("2100-01-01T00:00:00.002+00:00", None),
    ]
    assert {each["topic"] for each in listed} == {"orders"}
    assert done("delayed", "run", "--once", cluster=cluster) == "delivered 1 record\n"
    assert done("consume", "orders", "--from-beginning", cluster=cluster) == "an order\n"
    assert done("delayed", "cancel", "orders", "--key", "ann", cluster=cluster) == "cancelled 1 record\n"
    assert done("delayed", "cancel", "orders", "--id", listed[3]["id"], cluster=cluster) == "cancelled 1 record\n"
    assert [line.split()[2] for line in done("delayed", "list", "orders", cluster=cluster).splitlines()[1:]] == ["bob"]
    assert done("delayed", "run", "orders", "--once", cluster=cluster) == "delivered 0 records\n"


def test_wrong_usage_is_told():
    cluster = a_cluster()
    done("topics", "create", "orders", "--config", "delay=true", cluster=cluster)
    assert "--key or --id" in failure("delayed", "cancel", "orders", code=2, cluster=cluster)
    assert "unknown topic" in failure("delayed", "cancel", "orders", "--id", "x", cluster=cluster)
    with Producer(cluster) as producer:
        producer.send("orders", b"an order", deliver_at=DUE_MS)
    assert "no record of id 'x'" in failure("delayed", "cancel", "orders", "--id", "x", cluster=cluster)


def test_a_topic_whose_records_cannot_be_delivered_is_reported_and_hinders_no_other():
    """✗ One bad record of one topic ends the mover of all."""
    cluster = a_cluster()
    for topic in ("bad", "good"):
        done("topics", "create", topic, "--config", "delay=true", cluster=cluster)
    with Producer(cluster) as producer:
        producer.send("bad", b"x", b"k", deliver_at=1).get()
        producer.send("delayed.bad", b"what is this", b"key").get()
        producer.send("good", b"an order", deliver_at=1)
    told = failure("delayed", "run", "--once", code=3, cluster=cluster)
    assert told.startswith("bad: delayed.bad-0, offset 1, is no delayed record")
    assert done("consume", "good", "--from-beginning", cluster=cluster) == "an order\n"
