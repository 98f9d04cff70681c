"""Administration of a cluster: topics, their settings, partitions, offsets; consumer and share groups; transactions."""

from typing import TYPE_CHECKING

from sparklog.admin.client import Admin
from sparklog.admin.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from sparklog.admin.values import ConfigEntry, NewPartitions, NewTopic
from sparklog.groups.admin.description import (
    GroupDescription,
    GroupListing,
    GroupPartition,
    GroupState,
    MemberDescription,
)
from sparklog.groups.admin.resets import OffsetReset, ResetTo
from sparklog.groups.admin.share_groups import (
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionDescription,
)
from sparklog.lazy_imports import import_on_use
from sparklog.log.sequencing.sequencing import SequencingResult
from sparklog.log.topic import HIGH_WATERMARK, TopicDescription
from sparklog.txn.description import TransactionDescription, TransactionListing
from sparklog.txn.recovery import Recovered, RecoveryAction
from sparklog.txn.states import TransactionState

if TYPE_CHECKING:
    from sparklog.log.restore import RestoreResult
    from sparklog.log.restore_plan import LostRecords
else:  # they load Arrow
    __getattr__, __dir__ = import_on_use(
        __name__, {"sparklog.log.restore": ("RestoreResult",), "sparklog.log.restore_plan": ("LostRecords",)}
    )

__all__ = [
    "EARLIEST",
    "HIGH_WATERMARK",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "ConfigEntry",
    "GroupDescription",
    "GroupListing",
    "GroupPartition",
    "GroupState",
    "LostRecords",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetReset",
    "Recovered",
    "RecoveryAction",
    "ResetTo",
    "RestoreResult",
    "SequencingResult",
    "ShareGroupDescription",
    "ShareMemberDescription",
    "SharePartitionDescription",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
]
