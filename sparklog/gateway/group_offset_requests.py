"""OffsetCommit, OffsetFetch, OffsetDelete: offsets in sparklog's own table of a group, which all gateways share."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from sparklog.errors import CommitFailedError, SparklogError, UnstableOffsetCommitError
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.distinct import distinct
from sparklog.gateway.error_codes import ErrorCode, code_of, coordinator_code_of
from sparklog.gateway.group_coordinator import Coordinators, coordinators
from sparklog.gateway.group_requests import check_group_id
from sparklog.gateway.turns import in_turns
from sparklog.gateway.users import Rules
from sparklog.groups.offsets.changes import check_offset
from sparklog.groups.offsets.rows import Rows
from sparklog.model import OffsetAndMetadata, TopicPartition

__all__ = ["offset_commit", "offset_delete", "offset_fetch"]

_LOGGER = logging.getLogger("sparklog.gateway")
Codes = Mapping[TopicPartition, ErrorCode]


async def offset_commit(backend: Backend, request: Request) -> dict[str, Any]:
    """Commit offsets: of a member, under the stamps of the gateway that coordinates it; else of a group without
    members."""
    body, served = request.body, coordinators(backend)
    offsets = {
        TopicPartition(topic["name"], partition["partition_index"]): _to_commit(partition)
        async for topic in in_turns(body["topics"])
        async for partition in in_turns(topic["partitions"])
    }
    code = check_group_id(body["group_id"])
    codes: dict[TopicPartition, ErrorCode] = dict.fromkeys(offsets, code)
    if code is ErrorCode.NONE:
        try:
            codes |= await _commit(backend, served, body, offsets)
        except SparklogError as error:
            _LOGGER.info("group %s: offsets weren't committed: %s", body["group_id"], error)
            codes |= dict.fromkeys(offsets, coordinator_code_of(error))
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": partition["partition_index"],
                        "error_code": codes[TopicPartition(topic["name"], partition["partition_index"])],
                    }
                    async for partition in in_turns(topic["partitions"])
                ],
            }
            async for topic in in_turns(body["topics"])
        ]
    }


def _to_commit(partition: Mapping[str, Any]) -> OffsetAndMetadata | None:
    """Return None for an offset below 0: a broker stores it, and its clients read it as none. kafkajs sends it to begin
    at the newest, or the oldest, record."""
    offset: int = partition["committed_offset"]
    if offset < 0:
        return None
    return OffsetAndMetadata(offset, partition["committed_metadata"] or "", partition.get("committed_leader_epoch", -1))


async def _commit(
    backend: Backend,
    served: Coordinators,
    body: dict[str, Any],
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None],
) -> Codes:
    """The codes of those that have one of their own. Raises for the others together."""
    group, member_id, generation = body["group_id"], body["member_id"], body["generation_id_or_member_epoch"]
    instance_id = body.get("group_instance_id")
    if generation < 0:
        await served.end_unused(group)  # an empty group's offsets are anybody's
    # Without a generation it is a client that assigns itself, whatever else it says, unless somebody is in the group.
    # Source: Kafka ``validateOffsetCommit`` of ``OffsetMetadataManager``, ``ClassicGroup`` and ``ConsumerGroup``.
    is_told = bool(member_id) or instance_id is not None
    is_member = generation >= 0 or (is_told and group in served.groups)
    if is_member:
        if group not in served.groups:
            return await _refused(backend, served, offsets, await served.absent(group))
        code = served.groups[group].may_commit(member_id, instance_id, generation)
        if code is not ErrorCode.NONE:
            return await _refused(backend, served, offsets, code)
    elif group in served.groups:
        return await _refused(backend, served, offsets, ErrorCode.UNKNOWN_MEMBER_ID)
    topics = frozenset(topic for topic, _ in offsets)
    if is_member:
        facts = await served.groups[group].facts(topics)
    else:
        facts = await backend.run_for_group(lambda: served.topics.facts(topics))
    codes = {partition: _refusal(partition, offset, facts) for partition, offset in offsets.items()}
    accepted = {p: offset for p, offset in offsets.items() if codes[p] is ErrorCode.NONE}
    topic_ids = {partition: facts[partition.topic][0] for partition in accepted}
    if accepted and not is_member:
        async with served.offsets(group) as group_offsets:
            try:
                await group_offsets.commit_unowned(accepted, topic_ids)
            except CommitFailedError:
                code = await served.absent(group) if is_told else ErrorCode.UNKNOWN_MEMBER_ID
                return {**codes, **dict.fromkeys(accepted, code)}
    elif accepted:
        if group not in served.groups:  # it ended meanwhile
            return dict.fromkeys(offsets, ErrorCode.NOT_COORDINATOR)
        timeout_ms = float(backend.settings.offset_commit_timeout_ms)
        await served.groups[group].commit(accepted, topic_ids, timeout_ms=timeout_ms)
    return codes


async def _refused(
    backend: Backend, served: Coordinators, offsets: Mapping[TopicPartition, OffsetAndMetadata | None], code: ErrorCode
) -> Codes:
    """A code for all, but for partitions that there aren't: a client learns first of these, as from Kafka's brokers
    (source: ``KafkaApis.handleOffsetCommitRequest``)."""
    topics = frozenset(topic for topic, _ in offsets)
    facts = await backend.run_for_group(lambda: served.topics.facts(topics, is_fresh=False))
    return {
        partition: code if _is_there(partition, facts) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for partition in offsets
    }


def _is_there(partition: TopicPartition, facts: Mapping[str, tuple[str, int]]) -> bool:
    return 0 <= partition.partition < facts.get(partition.topic, ("", 0))[1]


def _refusal(
    partition: TopicPartition, offset: OffsetAndMetadata | None, facts: Mapping[str, tuple[str, int]]
) -> ErrorCode:
    if not _is_there(partition, facts):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_offset(partition, offset)
    except SparklogError as error:
        return code_of(error)
    return ErrorCode.NONE


async def offset_fetch(backend: Backend, request: Request) -> dict[str, Any]:
    """Committed offsets, which any gateway may read."""
    body = request.body
    is_stable = body.get("require_stable", False)
    if "groups" not in body:
        return await _fetched(backend, request.rules, body["group_id"], body["topics"], is_stable=is_stable)
    groups = []
    for asked in distinct(body["groups"], "group_id"):
        group, member_id, epoch = asked["group_id"], asked.get("member_id"), asked.get("member_epoch", -1)
        code = ErrorCode.NONE
        if epoch >= 0 and group in coordinators(backend).groups:
            code = coordinators(backend).groups[group].may_fetch(member_id or "", epoch)
        if code is not ErrorCode.NONE:
            groups.append({"group_id": group, "error_code": code, "topics": []})
            continue
        fetched = await _fetched(backend, request.rules, group, asked["topics"], is_stable=is_stable)
        groups.append({"group_id": group, **fetched})
    return {"groups": groups}


async def _fetched(
    backend: Backend, rules: Rules | None, group: str, wanted: list[dict[str, Any]] | None, *, is_stable: bool
) -> dict[str, Any]:
    """The offsets of a group: of all topics, of those that the user may see; of others that are named, an error.

    Source: Kafka ``KafkaApis.fetchOffsets``."""
    unseen = [topic for topic in wanted or () if rules is not None and not rules.may_see(topic["name"])]
    named = {
        topic["name"]: [TopicPartition(topic["name"], number) for number in topic["partition_indexes"]]
        for topic in wanted or ()
        if rules is None or rules.may_see(topic["name"])
    }
    code, unstable = check_group_id(group), False
    rows: Rows = {}
    facts: dict[str, tuple[str, int]] = {}
    if code is ErrorCode.NONE:
        try:
            rows, facts = await _rows(backend, group, named if wanted is not None else None, is_stable=is_stable)
        except UnstableOffsetCommitError:
            unstable = True
        except SparklogError as error:
            _LOGGER.info("group %s: offsets weren't read: %s", group, error)
            code = coordinator_code_of(error)
    if wanted is None:
        named = {}
        for partition in sorted(rows):
            is_seen = rules is None or rules.may_see(partition.topic)
            if is_seen and _committed(rows, partition, facts) is not None:
                named.setdefault(partition.topic, []).append(partition)
    topics = []
    for name, partitions in named.items():
        answers = [_fetched_partition(at, _committed(rows, at, facts)) for at in partitions]
        if unstable or code is not ErrorCode.NONE:
            of_each = ErrorCode.UNSTABLE_OFFSET_COMMIT if unstable else code
            answers = [{**answer, "error_code": of_each} for answer in answers]
        topics.append({"name": name, "partitions": answers})
    if code is ErrorCode.NONE:
        topics += [_unseen(topic) for topic in unseen]
    is_all_unstable = unstable and wanted is None
    return {"error_code": ErrorCode.UNSTABLE_OFFSET_COMMIT if is_all_unstable else code, "topics": topics}


def _unseen(topic: dict[str, Any]) -> dict[str, Any]:
    refused = {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    partitions = [TopicPartition(topic["name"], number) for number in topic["partition_indexes"]]
    return {"name": topic["name"], "partitions": [{**_fetched_partition(at, None), **refused} for at in partitions]}


async def _rows(
    backend: Backend, group: str, named: Mapping[str, list[TopicPartition]] | None, *, is_stable: bool
) -> tuple[Rows, dict[str, tuple[str, int]]]:
    served = coordinators(backend)
    async with served.offsets(group) as offsets:
        partitions = [at for of_topic in (named or {}).values() for at in of_topic]
        rows = await offsets.rows(partitions, is_stable=is_stable)
        if named is None:  # all: once they are known, those that a transaction may change can be named
            partitions = [partition for partition in rows if partition.topic]
            rows = await offsets.rows(partitions, is_stable=is_stable)
    topics = {partition.topic for partition in partitions if partition in rows}
    return rows, await backend.run_for_group(lambda: served.topics.facts(topics))


def _committed(rows: Rows, partition: TopicPartition, facts: Mapping[str, tuple[str, int]]) -> OffsetAndMetadata | None:
    topic_id, count = facts.get(partition.topic, ("", 0))
    row = rows.get(partition)
    return row.committed_for(topic_id) if row is not None and partition.partition < count else None


def _fetched_partition(partition: TopicPartition, committed: OffsetAndMetadata | None) -> dict[str, Any]:
    return {
        "partition_index": partition.partition,
        "committed_offset": -1 if committed is None else committed.offset,
        "committed_leader_epoch": -1 if committed is None else committed.leader_epoch,
        "metadata": "" if committed is None else committed.metadata,
    }


async def offset_delete(backend: Backend, request: Request) -> dict[str, Any]:
    """Forget offsets of topics to which no member subscribes."""
    body, served = request.body, coordinators(backend)
    group = body["group_id"]
    code = check_group_id(group)
    if code is not ErrorCode.NONE:
        return {"error_code": code, "topics": []}
    topics = []
    for topic in body["topics"]:
        partitions = [TopicPartition(topic["name"], partition["partition_index"]) for partition in topic["partitions"]]
        outcome = await backend.run_for_group(partial(_deleted, backend, group, partitions))
        if outcome is ErrorCode.GROUP_ID_NOT_FOUND:
            return {"error_code": outcome, "topics": []}
        if group in served.groups:
            served.groups[group].stay.forget(partitions)
        topics.append(
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": partition.partition, "error_code": outcome} for partition in partitions
                ],
            }
        )
    return {"topics": topics}


def _deleted(backend: Backend, group: str, partitions: list[TopicPartition]) -> ErrorCode:
    try:
        backend.admin.delete_group_offsets(group, partitions)
    except SparklogError as error:
        return code_of(error)
    return ErrorCode.NONE
