"""Figures of a whole cluster, looked at again and again for few requests: for metrics, the terminal and pages."""

from sparklog.observe.cluster_watch import ClusterWatch
from sparklog.observe.figures import (
    ClusterFigures,
    GroupFigures,
    GroupPartitionFigures,
    OrphanFigures,
    PartitionFigures,
    Problem,
    TopicFigures,
    TransactionFigures,
)
from sparklog.observe.shard import Shard

__all__ = [
    "ClusterFigures",
    "ClusterWatch",
    "GroupFigures",
    "GroupPartitionFigures",
    "OrphanFigures",
    "PartitionFigures",
    "Problem",
    "Shard",
    "TopicFigures",
    "TransactionFigures",
]
