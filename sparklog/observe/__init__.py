"""Figures of a whole cluster, looked at again and again for few requests: for metrics, the terminal and pages."""

from sparklog.observe.cluster_watch import ClusterWatch, Shard
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
