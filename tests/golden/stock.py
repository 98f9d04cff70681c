"""All that a cluster has, as its clients tell it: the same is written down in a golden cluster's manifest."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable
from typing import Any

from sparklog import Admin, Consumer
from sparklog._native import DESCRIPTION
from sparklog.gateway.user_log import open_user_log
from sparklog.groups.sharing.entries import open_share_log
from sparklog.log import Cluster, open_cluster
from sparklog.log.topic import TopicDescription
from sparklog.model import ConsumerRecord, TopicPartition
from sparklog.outbox.positions import read_position
from sparklog.processing.dead_letters import letters_of
from sparklog.processing.delayed import delayed_topics, read_schedule

__all__ = ["take_stock", "topics_of"]

OUTBOX_TOPIC = "outbox.relay."


def take_stock(cluster: Cluster) -> dict[str, Any]:
    """Reads, and writes nothing but the probes by which the store's time is told."""
    with Admin(cluster) as admin:
        topics = topics_of(cluster, admin)
        return {
            "topics": topics,
            "groups": {group: _offsets(admin, group) for group in sorted(admin.list_groups())},
            "share_groups": {group: _shares(cluster, admin, group) for group in sorted(admin.list_share_groups())},
            "transactions": _transactions(admin),
            "users": _users(cluster),
            "dead_letters": {name: _letters(cluster, name) for name in topics if name.startswith("dlq.")},
            "delayed": {name: _delayed(cluster, name) for name in sorted(delayed_topics(cluster))},
            "outbox": _outbox(cluster, topics),
        }


def topics_of(cluster: Cluster, admin: Admin) -> dict[str, Any]:
    """All topics that aren't deleted, and their records."""
    return {described.name: _topic(cluster, described) for described in admin.describe_topics(admin.list_topics())}


def _topic(cluster: Cluster, described: TopicDescription) -> dict[str, Any]:
    # Up to the ends of before: whoever reads a topic gives offsets to other engines' rows.
    name, starts, ends = described.name, described.log_start_offsets, described.log_end_offsets
    schemas = {str(number): str(schema) for number, schema in enumerate(described.value_schemas, 1)}
    return {
        "id": described.topic_id,
        "configs": dict(sorted(described.config.to_properties(prefix="").items())),
        "schemas": schemas,
        "starts": [*starts],
        "ends": [*ends],
        "records": _records(cluster, name, starts, ends, "bytes"),
        "python": _records(cluster, name, starts, ends, "python") if schemas else None,
    }


def _records(
    cluster: Cluster, name: str, starts: Iterable[int], ends: Iterable[int], value_format: str
) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        at = TopicPartition(name, number)
        rows: list[Any] = []
        with Consumer(cluster=cluster, auto_offset_reset="earliest", value_format=value_format) as consumer:
            consumer.assign([at])
            consumer.seek(at, start)
            while consumer.position(at) < end:
                polled = consumer.poll(timeout_ms=500).get(at, [])
                rows += [_row(record) for record in polled if record.offset < end]
        found[str(number)] = rows
    return found


def _row(record: ConsumerRecord) -> list[Any]:
    headers = [[name, text_of(value)] for name, value in record.headers]
    return [record.offset, record.timestamp, text_of(record.key), text_of(record.value), headers]


def text_of(value: Any) -> Any:
    """Bytes as text where they are printable, else as base64; other values of typed topics by ``repr``."""
    if value is None:
        return None
    if not isinstance(value, bytes):
        return repr(value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    return text if text.isprintable() else {"base64": base64.b64encode(value).decode()}


def _offsets(admin: Admin, group: str) -> dict[str, list[Any]]:
    found = admin.list_group_offsets(group)
    return {f"{at.topic}-{at.partition}": [known.offset, known.metadata] for at, known in sorted(found.items())}


def _shares(cluster: Cluster, admin: Admin, group: str) -> dict[str, Any]:
    found = {}
    for at, start in sorted(admin.list_share_group_offsets(group).items()):
        newest, _ = open_share_log(cluster, group, at).open_newest()
        partition = None if newest is None else newest.partition
        ranges = [] if partition is None else partition.ranges
        states = [[each.first, each.last, each.state.name, each.delivery_count] for each in ranges]
        found[f"{at.topic}-{at.partition}"] = {"start": start, "states": states}
    return found


def _transactions(admin: Admin) -> dict[str, Any]:
    return {
        each.transactional_id: {
            "state": None if each.state is None else each.state.value,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "entry_number": each.entry_number,
            "partitions": sorted(f"{at.topic}-{at.partition}" for at in each.topic_partitions),
            "groups": {group: sorted(f"{at.topic}-{at.partition}" for at in ats) for group, ats in each.groups.items()},
        }
        for each in sorted(admin.describe_transactions(), key=lambda each: each.transactional_id)
    }


def _users(cluster: Cluster) -> dict[str, Any]:
    newest, _ = open_user_log(cluster).open_newest()
    return {} if newest is None else {name: user.rules.to_json() for name, user in sorted(newest.users.items())}


def _letters(cluster: Cluster, name: str) -> list[Any]:
    found = [letter for piece in letters_of(cluster, name) for letter in piece]
    return [
        [
            each.letter.origin.topic,
            each.letter.origin.partition,
            each.letter.origin.offset,
            each.letter.exception,
            each.letter.attempts,
            text_of(each.letter.value),
        ]
        for each in found
    ]


def _delayed(cluster: Cluster, name: str) -> list[Any]:
    found = [
        [waiting.deliver_at_ms, text_of(waiting.key), text_of(waiting.value)]
        for _, waiting in read_schedule(cluster, name)
    ]
    return sorted(found, key=str)


def _outbox(cluster: Cluster, topics: Iterable[str]) -> dict[str, Any]:
    names = [name.removeprefix(OUTBOX_TOPIC) for name in topics if name.startswith(OUTBOX_TOPIC)]
    return {name: read_position(cluster, name) for name in names}


def main() -> None:
    """``python -m tests.golden.stock ROOT …``: which core reads, then a line of JSON for each cluster."""
    print(json.dumps(DESCRIPTION))
    for root in sys.argv[1:]:
        print(json.dumps(take_stock(open_cluster(root, create=False))), flush=True)


if __name__ == "__main__":
    main()
