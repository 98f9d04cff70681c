"""A topic: creating it, appending with offsets assigned at commit, following it."""

from typing import TYPE_CHECKING

from sparklog.lazy_imports import import_on_use

if TYPE_CHECKING:
    from sparklog.log.append import AppendResult, StagedFile, StagedUpload, TopicWriter, UploadedFile
    from sparklog.log.cluster import Cluster, open_cluster, topic_names
    from sparklog.log.follow import TopicFollower
    from sparklog.log.publishing import Marker
    from sparklog.log.sequencing.sequencing import SequencingResult, sequence_topic
    from sparklog.log.topic import (
        HIGH_WATERMARK,
        TopicDescription,
        alter_topic,
        create_partitions,
        create_topic,
        delete_records,
        delete_topic,
        describe_topic,
    )
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "sparklog.log.append": ("AppendResult", "StagedFile", "StagedUpload", "TopicWriter", "UploadedFile"),
            "sparklog.log.cluster": ("Cluster", "open_cluster", "topic_names"),
            "sparklog.log.follow": ("TopicFollower",),
            "sparklog.log.publishing": ("Marker",),
            "sparklog.log.sequencing.sequencing": ("SequencingResult", "sequence_topic"),
            "sparklog.log.topic": (
                "HIGH_WATERMARK",
                "TopicDescription",
                "alter_topic",
                "create_partitions",
                "create_topic",
                "delete_records",
                "delete_topic",
                "describe_topic",
            ),
        },
    )

__all__ = [
    "HIGH_WATERMARK",
    "AppendResult",
    "Cluster",
    "Marker",
    "SequencingResult",
    "StagedFile",
    "StagedUpload",
    "TopicDescription",
    "TopicFollower",
    "TopicWriter",
    "UploadedFile",
    "alter_topic",
    "create_partitions",
    "create_topic",
    "delete_records",
    "delete_topic",
    "describe_topic",
    "open_cluster",
    "sequence_topic",
    "topic_names",
]
