"""The schemas of the views of groups and transactions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

from sparklog.log.data.schema import TIMESTAMP

__all__ = ["VIEW_SCHEMAS"]

VIEW_SCHEMAS: Mapping[str, pa.Schema] = MappingProxyType(
    {
        "consumer_offsets": pa.schema(
            [
                ("group_id", pa.string()),
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("metadata", pa.string()),
                ("leader_epoch", pa.int32()),
                ("topic_id", pa.string()),
                ("owner_generation", pa.int64()),
                ("owner_member", pa.string()),
                ("commit_timestamp", TIMESTAMP),
            ]
        ),
        "consumer_lag": pa.schema(
            [
                ("group_id", pa.string()),
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("committed_offset", pa.int64()),
                ("log_start_offset", pa.int64()),
                ("log_end_offset", pa.int64()),
                ("lag", pa.int64()),
                ("member_id", pa.string()),
            ]
        ),
        "transactions": pa.schema(
            [("transactional_id", pa.string()), ("producer_id", pa.int64()), ("state", pa.string())]
        ),
    }
)
"""The schema of each view, by its name."""
