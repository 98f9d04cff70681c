"""A table beside a topic's log in which Delta's MERGE is carried out, and the publishing of what it wrote.

A MERGE that commits to the topic itself isn't sure ever to end: for each commit that comes first Delta checks for
conflicts at length, and producers that never stop commit faster than it checks. So Delta merges into a *stage*, a table
that holds the topic's rows without offsets and is nobody else's, and the new files are published by one commit of ours,
with offsets: decided anew, without Spark, for each commit that comes first (docs/decisions/0007).
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from urllib.parse import quote

from sparklog._version import __version__
from sparklog.clock import Deadline
from sparklog.delta.actions import FAR_FUTURE_MS, AddFile, Metadata, Protocol, SetTransaction, encode_entry
from sparklog.delta.features import READER_VERSION, WRITER_VERSION
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path, log_folder
from sparklog.errors import CorruptLogError, StoreError, UnknownTopicOrPartitionError
from sparklog.log.commit import Commit, UploadedSince, commit
from sparklog.log.data.object_paths import is_absolute
from sparklog.log.data.table_schema import STAGE_COLUMN
from sparklog.log.maintenance import Checkpoints
from sparklog.log.state import TopicState
from sparklog.log.uploads import why_not_to_publish
from sparklog.paths import STAGE_PREFIX
from sparklog.spark.ingest.ingest_rules import INGEST_APP_ID, name_app_id
from sparklog.storage.entry_log import new_token

__all__ = ["FILE_COLUMN", "Published", "Stage", "Verdict", "file_uri", "make_stage", "plan_ingest", "publish"]

_LOGGER = logging.getLogger("sparklog.spark")
FILE_COLUMN = STAGE_COLUMN
"""A partition column of stages alone: which file of its partition a row goes to. Delta writes a file for each value of
its partition columns, so a file holds offsets that follow each other, and no more than the ingest has planned."""
_LEAVE_OUT = {"delta.writePartitionColumnsToParquet": "false"}
"""Delta 4.4 writes partition columns into data files where a table doesn't say this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A table of a single attempt."""

    log: DeltaLog
    """Its own log, in a folder of the topic's."""
    folder: str
    """The same, relative to the topic's table."""

    def new_files(self) -> list[AddFile]:
        """The files that the MERGE added, with paths as the topic's log has them."""
        entry = self.log.read_entry(1)
        adds = [action for action in entry.actions if isinstance(action, AddFile)] if entry else []
        return [replace(add, path=f"{self.folder}/{add.path}") for add in adds]

    def forget(self) -> None:
        """Delete the stage's log. Its data files stay: the topic's log has them now, or a sweep finds them."""
        store = self.log.store
        try:
            store.delete([found.path for found in store.list(log_folder(self.log.table))])
        except StoreError as error:
            _LOGGER.warning("%s could not be deleted: %s", log_folder(self.log.table), error)


class Verdict(Enum):
    """The outcome of an attempt."""

    COMMITTED = "committed"
    SUPERSEDED = "another ingest came first"
    TOO_OLD = "it took so long, or another engine's VACUUM began meanwhile, that its files may be gone"


@dataclass(frozen=True, slots=True)
class Published:
    """The outcome of publishing an attempt."""

    verdict: Verdict
    delta_version: int
    """The version of the commit; or else of the newest entry that is known, at which the files are live, where they
    are."""


def make_stage(state: TopicState, table_uri: str) -> Stage:
    """Make a stage that holds the rows of a topic that have no offset.

    Args:
        state: whole.
        table_uri: where Spark finds the topic's files: paths in the stage's log are absolute.
    """
    token = new_token()
    folder = f"{STAGE_PREFIX}{token}"
    whole = state.require_whole()
    log = replace(state.log, table=f"{state.log.table}/{folder}")
    kept = {name: value for name, value in whole.metadata.configuration.items() if name.startswith("delta.data")}
    present = [
        AddFile(
            path=segment.path if is_absolute(segment.path) else f"{table_uri}/{segment.path}",
            partition_values={**segment.partition_values(), FILE_COLUMN: None},
            size_bytes=segment.size_bytes,
            modification_ms=segment.modification_ms,
        )
        for segment in whole.index.unsequenced()
    ]
    entry = encode_entry(
        actions=[
            Protocol(min_reader_version=READER_VERSION, min_writer_version=WRITER_VERSION),
            _with_file_column(
                replace(whole.metadata, table_id=str(uuid.uuid4()), configuration={**kept, **_LEAVE_OUT})
            ),
            *present,
        ],
        token=token,
        info={"stage_of": state.head.topic_id},
        operation="CREATE TABLE",
        blind_append=False,
        timestamp_ms=log.clock.now_ms(),
        version=__version__,
    )
    log.store.put(entry_path(log.table, 0), entry)
    return Stage(log=log, folder=folder)


def _with_file_column(metadata: Metadata) -> Metadata:
    schema = json.loads(metadata.schema_string)
    schema["fields"].append({"name": FILE_COLUMN, "type": "integer", "nullable": True, "metadata": {}})
    return replace(
        metadata, schema_string=json.dumps(schema), partition_columns=(*metadata.partition_columns, FILE_COLUMN)
    )


def plan_ingest(state: TopicState, files: Sequence[AddFile], *, name: str, txn_version: int) -> Commit:
    """Give offsets to an ingest's files: those of one partition were numbered together and share the base offset, its
    log end offset (rule F1, foreign files).

    Raises:
        CorruptLogError: a file without statistics of its numbers, or of a partition that the topic doesn't have.
    """
    head = state.head
    ends = list(head.log_end_offsets)
    adds: list[AddFile] = []
    for file in files:
        partition = int(file.partition_values.get("partition") or -1)  # Delta writes numbers as text
        last = ((file.stats or {}).get("maxValues") or {}).get("offset_delta")
        if not 0 <= partition < len(ends) or not isinstance(last, int):
            raise CorruptLogError(f"{state.log.table}: Spark wrote {file} of no known partition or numbers")
        base_offset = head.log_end_offsets[partition]
        ends[partition] = max(ends[partition], base_offset + last + 1)
        values = {"partition": str(partition), "base_offset": str(base_offset)}
        adds.append(replace(file, partition_values=values))
    numbers = [
        # As long as the topic is there: without it an attempt that slept could not be distinguished from a new one.
        SetTransaction(app_id=INGEST_APP_ID, version=txn_version, last_updated_ms=FAR_FUTURE_MS),
        SetTransaction(app_id=name_app_id(name), version=txn_version, last_updated_ms=state.log.clock.now_ms()),
    ]
    after = replace(head, log_end_offsets=tuple(ends), live_file_count=head.live_file_count + len(files))
    return Commit(actions=[*adds, *numbers], head=after, operation="MERGE")


def publish(
    state: TopicState,
    topic_id: str,
    files: Sequence[AddFile],
    *,
    name: str,
    txn_version: int,
    written_ticks_ms: float,
    deadline: Deadline,
) -> Published:
    """Publish an ingest's files with offsets, durably, unless another ingest came first.

    Args:
        state: whole, as the attempt was decided on.
        topic_id: of the topic that the rows were meant for.
        files: not empty; in no log yet.
        written_ticks_ms: not after the first of them was written.
    Raises:
        UnknownTopicOrPartitionError: the topic was deleted.
        KafkaTimeoutError, CommitStateUnknownError, StoreError, …: see :func:`~sparklog.log.commit.commit`.
    """
    verdict = Verdict.COMMITTED
    known_version = state.position.version

    def decide(now: TopicState) -> Commit | None:
        nonlocal verdict
        verdict = Verdict.COMMITTED
        if now.head.deleted or now.head.topic_id != topic_id:
            raise UnknownTopicOrPartitionError(f"{now.log.table}: the topic with id {topic_id} was deleted")
        found = now.transactions.get(INGEST_APP_ID)
        if found is not None and found.version >= txn_version:
            # Ours, whose answer was lost, if the files are there; else their rows are found at the next decision.
            live = now.require_whole().index.by_path
            verdict = Verdict.COMMITTED if all(file.path in live for file in files) else Verdict.SUPERSEDED
            return None
        if why_not_to_publish(
            now.log,
            now.vacuums,
            began_ticks_ms=written_ticks_ms,
            known_version=known_version,
            retention_ms=now.head.deleted_file_retention_ms,
        ):
            verdict = Verdict.TOO_OLD
            return None
        return plan_ingest(now, files, name=name, txn_version=txn_version)

    done = commit(state, decide, deadline=deadline, sync=True, uploads=UploadedSince(written_ticks_ms))
    checkpoints = Checkpoints()  # a topic that nobody else writes to needs them, too
    checkpoints.after_commit(done.state)
    checkpoints.close()
    return Published(verdict, done.state.position.version)


def file_uri(path: str) -> str:
    """A table's place as a URI, as paths in Delta's log are written; without a scheme it is one of local files."""
    scheme, separator, rest = path.partition("://")
    return f"{scheme}://{quote(rest)}" if separator else f"file://{quote(path)}"
