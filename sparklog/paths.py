"""Paths of everything under a cluster's root (``docs/storage_format.md``, The root). No other module builds such a
path.

``delta/`` alone knows what is inside a table's log folder; it is handed the table's folder from here.
"""

from __future__ import annotations

import re
import secrets
import uuid
from urllib.parse import quote, unquote

from sparklog.errors import InvalidArgumentError, InvalidTopicError

__all__ = [
    "ANNOUNCED_FOLDER",
    "CLUSTER_FILE",
    "CREATE_ONLY_FILE",
    "GATEWAYS_FOLDER",
    "GATEWAY_USERS_FOLDER",
    "GROUPS_FOLDER",
    "MAINTENANCE_FOLDER",
    "MAINTENANCE_NOTES",
    "MAINTENANCE_RUNS",
    "OPEN_TRANSACTIONS_FOLDER",
    "PROBES_FOLDER",
    "SHARE_GROUPS_FOLDER",
    "STAGE_PREFIX",
    "TOPICS_FOLDER",
    "TRANSACTIONS_FOLDER",
    "announced_file",
    "announced_folder",
    "announced_versions_after",
    "check_topic_name",
    "decode_id",
    "encode_id",
    "gateway_mark",
    "gateway_users_entry",
    "generation_path",
    "group_folder",
    "group_generations",
    "group_members",
    "group_offsets_table",
    "group_probes",
    "is_kept_folder",
    "member_heartbeat",
    "member_heartbeat_in",
    "member_state",
    "member_state_in",
    "new_data_file",
    "new_probe",
    "open_transactions",
    "sequencing_claim",
    "share_entry",
    "share_group_members",
    "share_log",
    "share_partitions",
    "topic_table",
    "transaction_entry",
    "transaction_log",
    "transaction_marker",
]

ANNOUNCED_FOLDER = "announced/"
"""The folder of what was announced (rule L14, announced uploads), relative to a topic's table."""
CLUSTER_FILE = "cluster.json"
CREATE_ONLY_FILE = "_create_only"
"""An object without meaning, which clients create to learn whether a create-only put reaches the store as one."""
TOPICS_FOLDER = "topics/"
GROUPS_FOLDER = "groups/"
SHARE_GROUPS_FOLDER = "share-groups/"
TRANSACTIONS_FOLDER = "transactions/"
OPEN_TRANSACTIONS_FOLDER = "transactions-open/"
GATEWAYS_FOLDER = "gateways/"
"""The folder of the objects by which gateways of a zone make themselves known."""
PROBES_FOLDER = "probes/"
"""For objects whose modification time shows the store's own time."""
GATEWAY_USERS_FOLDER = "gateway-users/"
"""Lists of the users that gateways let in."""
MAINTENANCE_FOLDER = "maintenance/"
MAINTENANCE_NOTES = "maintenance/notes.json"
"""Notes of maintenance runs about topics in which nothing is due; see :mod:`sparklog.compaction.idle_notes`."""
MAINTENANCE_RUNS = "maintenance/runs.json"
"""Summaries of the newest runs of maintenance; see :mod:`sparklog.compaction.last_runs`."""
STAGE_PREFIX = "ingest-"
"""The prefix of the folders in a topic's table that ingests merge in, each of a single attempt."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MAX_ID_BYTES = 200


def check_topic_name(topic: str) -> str:
    """Return ``topic`` if it is a legal topic name.

    Raises:
        InvalidTopicError: not 1 to 249 characters of ``[a-zA-Z0-9._-]``, or ``.`` or ``..``.
    Source: Kafka ``Topic.validate``.
    """
    if not isinstance(topic, str):
        raise InvalidTopicError(f"invalid topic name: got {type(topic).__name__}, expected str")
    if topic in (".", "..") or not _TOPIC_NAME.fullmatch(topic):
        shown = topic if len(topic) <= 60 else f"{topic[:60]}… ({len(topic)} characters)"
        raise InvalidTopicError(
            f"invalid topic name {shown!r}: expected 1 to 249 characters out of a-z A-Z 0-9 . _ -, not '.' or '..'"
        )
    return topic


def topic_table(topic: str) -> str:
    """The folder of a topic's Delta table, without a trailing slash."""
    return f"topics/{check_topic_name(topic)}"


def group_folder(group: str) -> str:
    """The folder of all that a group has, with its trailing slash. Raises ``InvalidArgumentError``."""
    return f"{GROUPS_FOLDER}{encode_id(group)}/"


def sequencing_claim(table: str) -> str:
    """The object by which a client says that it sequences a table. Engines pass over names that begin with ``_``."""
    return f"{table}/_sequencing.json"


def group_offsets_table(group: str) -> str:
    """The folder of a group's offset table, without a trailing slash. Raises ``InvalidArgumentError``."""
    return f"{GROUPS_FOLDER}{encode_id(group)}/offsets"


def group_generations(group: str) -> str:
    """The folder of a group's generations, with its trailing slash."""
    return f"{GROUPS_FOLDER}{encode_id(group)}/generations/"


def generation_path(group: str, number: int) -> str:
    """The object of generation ``number``; listings sort by it."""
    return f"{group_generations(group)}{number:020d}.json"


def group_members(group: str) -> str:
    """The folder of a group's members, with its trailing slash."""
    return f"{GROUPS_FOLDER}{encode_id(group)}/members/"


def member_state(group: str, member: str) -> str:
    """The object of a member's state; rewritten when it changes."""
    return member_state_in(group_members(group), member)


def member_state_in(folder: str, member: str) -> str:
    """The same, in the folder of a group's members."""
    return f"{folder}{encode_id(member)}/state.json"


def member_heartbeat(group: str, member: str) -> str:
    """The object that a member rewrites to show that it lives."""
    return member_heartbeat_in(group_members(group), member)


def member_heartbeat_in(folder: str, member: str) -> str:
    """The same, in the folder of a group's members."""
    return f"{folder}{encode_id(member)}/heartbeat"


def group_probes(group: str) -> str:
    """The folder for objects whose modification time shows the store's own time, with its trailing slash."""
    return f"{GROUPS_FOLDER}{encode_id(group)}/probes/"


def share_group_members(group: str) -> str:
    """The folder of a share group's members, with its trailing slash. Raises ``InvalidArgumentError``."""
    return f"{SHARE_GROUPS_FOLDER}{encode_id(group)}/members/"


def share_log(group: str, topic: str, partition: int) -> str:
    """The folder of a share group's log of a partition, with its trailing slash. Raises ``InvalidArgumentError``,
    ``InvalidTopicError``."""
    return f"{share_partitions(group)}{check_topic_name(topic)}/{partition}/"


def share_partitions(group: str) -> str:
    """The folder of a share group's logs, with its trailing slash. Raises ``InvalidArgumentError``."""
    return f"{SHARE_GROUPS_FOLDER}{encode_id(group)}/partitions/"


def share_entry(group: str, topic: str, partition: int, number: int) -> str:
    """Entry ``number`` of a share group's log of a partition; listings sort by it."""
    return f"{share_log(group, topic, partition)}{number:020d}.json"


def transaction_log(transactional_id: str) -> str:
    """The folder of a transactional id's log, with its trailing slash. Raises ``InvalidArgumentError``."""
    return f"{TRANSACTIONS_FOLDER}{encode_id(transactional_id)}/"


def transaction_entry(transactional_id: str, number: int) -> str:
    """Entry ``number`` of a transactional id's log; listings sort by it."""
    return f"{transaction_log(transactional_id)}{number:020d}.json"


def open_transactions(transactional_id: str) -> str:
    """The folder of a transactional id's markers, with its trailing slash."""
    return f"{OPEN_TRANSACTIONS_FOLDER}{encode_id(transactional_id)}/"


def transaction_marker(transactional_id: str, epoch_number: int) -> str:
    """The marker that a producer session may have an open transaction; ``epoch_number``: of the entry that began it."""
    return f"{open_transactions(transactional_id)}{epoch_number:020d}"


def gateway_users_entry(number: int) -> str:
    """Entry ``number`` of the log of gateways' users; listings sort by it."""
    return f"{GATEWAY_USERS_FOLDER}{number:020d}.json"


def new_data_file(partition: int) -> str:
    """A fresh name for a data file of ``partition``, relative to the table's folder.

    The ``partition=`` folder is for people who look; readers take partition values from the log alone.
    """
    return f"partition={partition}/{secrets.token_hex(16)}.parquet"


def announced_folder(block: int) -> str:
    """The folder of what was announced by those who knew a version of a block of versions, relative to the table's
    folder, with its trailing slash."""
    return f"{ANNOUNCED_FOLDER}{block:012d}/"


def announced_versions_after(block: int, version: int) -> str:
    """The place in :func:`announced_folder`, by path's byte order, where files of ``version`` and later ones begin."""
    return f"{announced_folder(block)}{version:020d}/"


def announced_file(block: int, known: int, partition: int, facts: str) -> str:
    """The name of a data file that others may publish, relative to the table's folder.

    Args:
        block: of versions, that ``known`` belongs to.
        known: the newest version that its owner had applied before the upload.
        facts: what :mod:`sparklog.log.announced.names` encodes.
    """
    return f"{announced_versions_after(block, known)}partition={partition}/{facts}.parquet"


_KEPT = frozenset({"topics", "groups", "share-groups", "transactions", "gateway-users"})
"""The folders at the root that hold logs."""


def is_kept_folder(folder: str) -> bool:
    """Is a folder, relative to the root, of a log, or around one, so that sparklog removes it never? Those of announced
    files are removed once they are empty."""
    parts = folder.split("/")
    return parts[0] in _KEPT and not (len(parts) > 2 and parts[2] == ANNOUNCED_FOLDER[:-1])


def gateway_mark(zone: str, address: str) -> str:
    """The object that a gateway rewrites to show that it lives; it is empty.

    Args:
        address: where clients reach it, ``host:port``.
    Raises ``InvalidArgumentError``.
    """
    return f"{GATEWAYS_FOLDER}{encode_id(zone)}/{encode_id(address)}"


def new_probe() -> str:
    """A fresh name for an object that is written to learn the store's time, and deleted at once."""
    return f"{PROBES_FOLDER}{uuid.uuid4().hex}"


def encode_id(name: str) -> str:
    """A group id or transactional id as one path part: percent-encoded UTF-8.

    Raises:
        InvalidArgumentError: empty, longer than 200 bytes once encoded, or not to be written as UTF-8.
    """
    if len(name) > _MAX_ID_BYTES:  # first, as the text of a client may have megabytes
        raise InvalidArgumentError(
            f"invalid id {name[:60]!r}…: {len(name)} characters, expected 1 to {_MAX_ID_BYTES} bytes when "
            "percent-encoded"
        )
    try:
        encoded = quote(name, safe="")
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"invalid id {name[:60]!r}: {error}") from error
    if encoded in (".", ".."):
        encoded = encoded.replace(".", "%2E")
    if not 0 < len(encoded) <= _MAX_ID_BYTES:
        raise InvalidArgumentError(
            f"invalid id {name[:60]!r}: {len(encoded)} bytes when percent-encoded, expected 1 to {_MAX_ID_BYTES}"
        )
    return encoded


def decode_id(part: str) -> str:
    """The name that :func:`encode_id` made ``part`` of."""
    return unquote(part)
