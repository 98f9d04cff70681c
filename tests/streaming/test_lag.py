"""How far a query is behind, by what Spark reports of it."""

import json

import pytest

from sparklog.errors import CorruptLogError
from sparklog.model import TopicPartition
from sparklog.streaming.lag import source_lag
from sparklog.streaming.positions import Positions, TopicPosition


def position(topic_id="1", **offsets):
    topics = {
        topic: TopicPosition(topic_id=topic_id, offsets=dict(enumerate(of_topic)))
        for topic, of_topic in offsets.items()
    }
    return json.dumps(Positions(topics).to_json())


def test_the_figures_are_those_of_kafkas_source():
    lag = source_lag(position(a=[3, 10], b=[0]), position(a=[5, 10], b=[7], unread=[9]))
    assert lag is not None
    assert lag.by_partition == {
        TopicPartition("a", 0): 2,
        TopicPartition("a", 1): 0,
        TopicPartition("b", 0): 7,
    }
    expected = {"minOffsetsBehindLatest": 0.0, "maxOffsetsBehindLatest": 7.0, "avgOffsetsBehindLatest": 3.0}
    assert (lag.metrics, lag.total, lag.topics) == (expected, 9, ("a", "b"))


def test_ends_that_were_looked_at_earlier_are_no_negative_lag():
    lag = source_lag(position(a=[5]), position(a=[3]))
    assert lag is not None
    assert lag.total == 0


def test_a_checkpoint_of_another_source_is_named():
    with pytest.raises(CorruptLogError, match="holds None, which isn't what"):
        Positions.from_json(json.loads("null"))


@pytest.mark.parametrize(
    ("end", "latest"),
    [
        (None, None),
        ("None", "null"),
        (position(a=[1]), "null"),
        ('{"t": {"0": 1}}', '{"t": {"0": 1}}'),  # of Spark's Kafka source
        ('"rate"', "5"),
        (position(a=[1]), position(topic_id="2", a=[1])),  # of another topic of the name
    ],
)
def test_of_other_sources_and_before_the_first_batch_nothing_is_known(end, latest):
    assert source_lag(end, latest) is None
