"""What the tests of processes that are killed tell the checker: it finds what they look for."""

from __future__ import annotations

import pytest

from sparklog import Admin, Consumer, NewTopic, Producer
from sparklog.log import Cluster, open_cluster
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.storage import MemoryStore
from sparklog.testing.history import AnomalyError, Recorder
from tests.histories import judge, judge_worker, note_promised


def a_cluster(inputs: list[int], outputs: list[int], *, committed: int) -> Cluster:
    cluster = open_cluster(MemoryStore())
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("in"), NewTopic("out")])
    with Producer(cluster) as producer:
        for topic, numbers in (("in", inputs), ("out", outputs)):
            for number in numbers:
                producer.send(topic, b"%d" % number)
    with Consumer(cluster=cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.commit({TopicPartition("in", 0): OffsetAndMetadata(committed)})
    return cluster


def judged(inputs: list[int], outputs: list[int], *, committed: int) -> None:
    cluster, recorder = a_cluster(inputs, outputs, committed=committed), Recorder()
    note_promised(recorder, "a", "in", inputs)
    judge_worker(recorder, cluster, inputs="in", outputs="out", group="g", count=len(inputs))


def test_a_worker_that_did_all_once_is_let_through():
    judged([0, 1, 2], [0, 1, 2], committed=3)


@pytest.mark.parametrize(
    ("outputs", "committed", "told"),
    [
        ([0, 2], 3, "out of step.*input 1 has no output"),
        ([0, 1, 1, 2], 3, "duplicate"),
        ([0, 2, 1], 3, "outputs out of order"),
        ([0, 1, 2], 2, "only 2 is committed"),
        ([0, 1, 2, 7], 3, "phantom"),
    ],
)
def test_what_a_worker_may_not_do_is_found(outputs, committed, told):
    with pytest.raises(AnomalyError, match=f"(?s){told}"):
        judged([0, 1, 2], outputs, committed=committed)


@pytest.mark.parametrize(
    ("found", "told"), [([0, 2], "torn transaction"), ([0, 1, 2, 2], "duplicate"), ([0, 2, 1], "non-monotonic send")]
)
def test_what_a_relay_may_not_do_is_found(found, told):
    cluster, recorder = a_cluster(found, [], committed=0), Recorder()
    note_promised(recorder, "a", "in", [0, 1, 2])
    with pytest.raises(AnomalyError, match=told):
        judge(recorder, cluster, "in", count=3)
