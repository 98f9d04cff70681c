"""The fixtures that users' tests take."""

from __future__ import annotations

import pytest

from sparklog import Admin
from sparklog.gateway.testing import kafka_bootstrap_servers, kafka_cluster

__all__ = ["kafka_bootstrap_servers", "kafka_cluster"]


def test_a_client_and_sparklog_see_the_same_topic(request):
    kafka = pytest.importorskip("kafka")
    producer = kafka.KafkaProducer(bootstrap_servers=request.getfixturevalue("kafka_bootstrap_servers"))
    assert producer.send("new", b"a").get(60).offset == 0
    producer.close()
    assert Admin(request.getfixturevalue("kafka_cluster")).list_topics() == ["new"]
