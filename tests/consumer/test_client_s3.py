"""A consumer of a cluster on S3."""

import pytest

from sparklog.consumer import Consumer
from sparklog.consumer.segment_fetcher import ReadLimits
from sparklog.log import create_topic, open_cluster
from tests.consumer.support import send, take, text, tp

pytestmark = pytest.mark.s3


@pytest.mark.parametrize(
    "limits", [ReadLimits(), ReadLimits(whole_file_bytes=0, piece_bytes=1)], ids=["whole", "ranges"]
)
def test_records_are_read_from_s3_as_they_come(s3_uri, s3_options, limits):
    cluster = open_cluster(s3_uri, storage_options=s3_options)
    create_topic(cluster.topic_log("t"), "t", num_partitions=2)
    send(cluster, "ab")
    settings = {"auto_offset_reset": "earliest", "storage_options": s3_options, "read_limits": limits}
    with Consumer("t", cluster=s3_uri, **settings) as consumer:
        assert text(take(consumer, 2)) == "ab"
        send(cluster, "c", partition=1)
        send(cluster, "d")
        assert sorted(text(take(consumer, 2))) == ["c", "d"]
        assert consumer.end_offsets([tp(0), tp(1)]) == {tp(0): 3, tp(1): 1}
    cluster.store.close()
