"""What many tests need: a topic in memory on a clock that stands still, records, a look at all that is readable."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.checksums import EMPTY_SUM, with_sum
from sparklog.clock import Clock, Deadline
from sparklog.consumer import Consumer
from sparklog.delta.actions import FAR_FUTURE_MS, Action, AddFile, RemoveFile, SetTransaction
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import checkpoint_path, entry_path, log_folder, parse_name
from sparklog.integrity.totals import TotalsFollowed
from sparklog.log.append import AppendResult, TopicWriter
from sparklog.log.data.encode import encode_batch
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.producer_stamp import ProducerStamp
from sparklog.log.data.schema import DATA_SCHEMA
from sparklog.log.data.segments import segment_of_add
from sparklog.log.follow import TopicFollower
from sparklog.log.live_totals import TOTALS_INFO, totals_of, totals_of_info
from sparklog.log.maintenance import Checkpoints
from sparklog.log.state import load_state, open_state
from sparklog.log.topic import create_topic
from sparklog.model import ConsumerRecord, TopicPartition
from sparklog.paths import new_data_file
from sparklog.schemas import ValueSchema
from sparklog.storage import CreateResult, MemoryStore, ObjectStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import Disk, ManualClock, WrappedStore

SUMMARY_LINE = "line of the summary"
"""A property of this name (see pytest's ``record_property``) is repeated in the summary of a run, passed or failed."""
DAY_MS = 86_400_000
T0_MS = 4_102_444_800_000
"""2100-01-01: deltalake goes by the real time where it drops what has expired, so a test's time isn't before it."""


def a_log(
    store: ObjectStore | None = None, clock: Clock | None = None, *, topic: str = "t", trust_ms: float = 60_000
) -> DeltaLog:
    """The log of a topic that need not exist yet; in memory and on a clock that stands still unless told otherwise."""
    clock = clock or ManualClock(start_ms=T0_MS)
    store = store if store is not None else MemoryStore(clock=clock)
    return DeltaLog(
        store=RetryingStore(store, clock=clock), table=f"topics/{topic}", clock=clock, tail_trust_ms=trust_ms
    )


def a_topic(
    store: ObjectStore | None = None,
    clock: Clock | None = None,
    *,
    topic: str = "t",
    num_partitions: int = 1,
    configs: Mapping[str, object] | None = None,
    value_schema: ValueSchema | None = None,
) -> DeltaLog:
    """The log of a topic that was just created."""
    log = a_log(store, clock, topic=topic)
    create_topic(log, topic, num_partitions=num_partitions, configs=configs, value_schema=value_schema)
    return log


def records(*values: str | bytes, timestamp_ms: int = T0_MS) -> pa.Table:
    """Records with these values, their values as keys, a millisecond apart."""
    data = [value.encode() if isinstance(value, str) else value for value in values]
    times = [timestamp_ms + number for number in range(len(data))]
    return pa.table({"key": data, "value": data, "timestamp": pa.array(times, pa.int64())})


def no_checkpoints() -> Checkpoints:
    """Never writes one: for tests that count calls or write it themselves."""
    return Checkpoints(run=lambda work: None)


def inline_checkpoints() -> Checkpoints:
    """Writes what is due at once, in the caller's thread."""
    return Checkpoints(run=lambda work: work(), max_delay_ms=0)


def a_writer(
    log: DeltaLog, *, topic: str = "t", sync: bool = False, checkpoints: Checkpoints | None = None
) -> TopicWriter:
    """A writer that writes no checkpoints unless it is given one who does."""
    return TopicWriter(log, topic, sync=sync, checkpoints=checkpoints or no_checkpoints())


def within(writer: TopicWriter, timeout_ms: float) -> Deadline:
    """The deadline of a call that begins now, on the writer's clock."""
    return writer.state.log.clock.deadline_in(timeout_ms)


def append(writer: TopicWriter, *values: str | bytes, partition: int = 0, timeout_ms: float = 120_000) -> AppendResult:
    """Append values to one partition in one commit."""
    return writer.append(writer.upload([(partition, records(*values))]), deadline=within(writer, timeout_ms))


def contents(log: DeltaLog, *, topic: str = "t") -> dict[int, list[tuple[int, str]]]:
    """Everything that a fresh reader sees: per partition, offsets and values in order."""
    follower = TopicFollower(log, topic)
    seen = {}
    for partition, start in enumerate(follower.head.log_start_offsets):
        table = follower.read(partition, start, max_records=10_000_000)
        values = [value.decode() for value in table["value"].to_pylist()]
        seen[partition] = list(zip(table["offset"].to_pylist(), values, strict=True))
    return seen


def to_the_end(consumer: Consumer) -> list[ConsumerRecord]:
    """Every record from where a consumer stands to the end of its topics, however long a busy machine takes."""
    numbers = {topic: consumer.partitions_for_topic(topic) or () for topic in consumer.subscription() or ()}
    ends = consumer.end_offsets([TopicPartition(topic, number) for topic in numbers for number in numbers[topic]])
    found: list[ConsumerRecord] = []
    while consumer.assignment() != ends.keys() or any(consumer.position(at) < end for at, end in ends.items()):
        found += [record for records in consumer.poll(timeout_ms=1_000).values() for record in records]
    return found


def entry_lines(log: DeltaLog, version: int) -> list[dict[str, Any]]:
    """The actions of an entry as they stand in the log."""
    return [json.loads(line) for line in log.store.read(entry_path(log.table, version)).splitlines()]


def foreign_entry(
    log: DeltaLog,
    version: int,
    actions: Sequence[Mapping[str, Any]],
    *,
    engine: str = "Other/1.0",
    operation: str = "WRITE",
) -> None:
    """Commit as another engine would: a commitInfo without sparklog's part, then the actions."""
    lines = [{"commitInfo": {"timestamp": T0_MS, "operation": operation, "engineInfo": engine}}, *actions]
    log.store.create(entry_path(log.table, version), "\n".join(json.dumps(line) for line in lines).encode())


def foreign_vacuum(log: DeltaLog, *, retention_ms: int | None = 0, gone: Iterable[str] = ()) -> None:
    """Delete files that no log names, and say so as deltalake 1.6 does; Spark does the same, but not on S3.

    Args:
        retention_ms: what is younger is spared; None: the user gave none.
        gone: paths of what is deleted.
    """
    told = {"retentionCheckEnabled": "false", "defaultRetentionMillis": str(7 * DAY_MS)}
    if retention_ms is not None:
        told["specifiedRetentionMillis"] = str(retention_ms)

    def entry(operation: str) -> bytes:
        info = {"timestamp": log.clock.now_ms(), "operation": operation, "operationParameters": told}
        return json.dumps({"commitInfo": info}).encode()

    version = load_state(log).position.version
    log.store.create(entry_path(log.table, version + 1), entry("VACUUM START"))
    log.store.delete([object_path(log.table, path) for path in gone])
    log.store.create(entry_path(log.table, version + 2), entry("VACUUM END"))


def unsequenced_file(log: DeltaLog, *values: str, partition: int = 0) -> str:
    """Commit a file as another engine would: records without a base offset, numbered from 0. Returns its path."""
    batch = encode_batch(records(*values), ProducerStamp(1, 0, 0))
    path = new_data_file(partition)
    log.store.put(object_path(log.table, path), batch.data)
    add = AddFile(
        path=path,
        partition_values={"partition": str(partition), "base_offset": None},
        size_bytes=len(batch.data),
        modification_ms=log.clock.now_ms(),
    )
    foreign_entry(log, open_state(log).position.version + 1, [add.to_json()])
    return path


def foreign_records(*values: str, deltas: Sequence[int | None] | None = None, timestamp_ms: int = T0_MS) -> pa.Table:
    """Records as another engine writes them: with the offset deltas it is told to, by default from 0 on, and without a
    producer."""
    count = len(values)
    columns = {
        "offset_delta": pa.array(range(count) if deltas is None else deltas, pa.int64()),
        "timestamp": pa.array(range(timestamp_ms, timestamp_ms + count), pa.timestamp("ms", "UTC")),
        "value": pa.array([value.encode() for value in values], pa.binary()),
    }
    nulls = {field.name: pa.nulls(count, field.type) for field in DATA_SCHEMA}
    return pa.table({**nulls, **columns}).select(DATA_SCHEMA.names).cast(DATA_SCHEMA)


def foreign_file(
    log: DeltaLog,
    table: pa.Table,
    *,
    path: str | None = None,
    partition: int | None = 0,
    base_offset: int | None = None,
    modified_ms: int | None = None,
) -> AddFile:
    """Put a data file into a topic's folder; returns the action, without statistics, that would add it."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    data = sink.getvalue().to_pybytes()
    path = path or new_data_file(partition or 0)
    log.store.put(object_path(log.table, path), data)
    values = {"partition": partition, "base_offset": base_offset}
    return AddFile(
        path=path,
        partition_values={name: None if value is None else str(value) for name, value in values.items()},
        size_bytes=len(data),
        modification_ms=log.clock.now_ms() if modified_ms is None else modified_ms,
    )


def foreign_commit(log: DeltaLog, *actions: Action, places: bool = False, operation: str = "WRITE") -> int:
    """Commit as another engine would, at the next version, which is returned.

    Args:
        places: it is a tool that gives offsets, and says so (rule F6, moved records); a commit that only adds files
            with base offsets is taken for one.
    """
    version = open_state(log).position.version + 1
    said = said_to_be_placed(version, actions, places)
    foreign_entry(log, version, [action.to_json() for action in (*actions, *said)], operation=operation)
    return version


def said_to_be_placed(version: int, actions: Sequence[Action], places: bool = False) -> list[SetTransaction]:
    """The action by which a tool says that it gives offsets, where the actions give some and replace no file."""
    gives = any(isinstance(action, AddFile) and action.partition_values.get("base_offset") for action in actions)
    if not (places or (gives and not any(isinstance(action, RemoveFile) for action in actions))):
        return []
    return [SetTransaction(app_id="sparklog.judged", version=version, last_updated_ms=FAR_FUTURE_MS)]


def copy_of(memory: MemoryStore) -> MemoryStore:
    """Another store that holds the same objects with the same modification times; its clock stands still."""
    clock = ManualClock(start_ms=0)
    copy = MemoryStore(clock=clock)
    for found in sorted(memory.list(""), key=lambda found: found.modified_ms):
        clock.advance(max(0, found.modified_ms - clock.now_ms()))
        copy.put(found.path, memory.read(found.path))
    return copy


def versions_of(log: DeltaLog) -> list[int]:
    """The versions whose entries lie in the store, oldest first."""
    names = (found.path.rpartition("/")[2] for found in log.store.list(log_folder(log.table)))
    return [name for name in map(parse_name, names) if isinstance(name, int)]


def wrong_totals(log: DeltaLog) -> list[str]:
    """The versions that carry totals which aren't those of their live files (rule L16), as far as that can be told; and
    the newest one where it carries none. Below a checkpoint there may be strays, under names that were cleaned."""
    followed, wrong, state = TotalsFollowed(), [], load_state(log)
    carried = None
    for version in (one for one in versions_of(log) if one >= state.checkpoint_version):
        entry = log.read_entry(version)
        if entry is None:
            raise RuntimeError(f"version {version} is gone")
        carried = totals_of_info((entry.info or {}).get(TOTALS_INFO))
        added = [segment_of_add(action, version) for action in entry.actions if isinstance(action, AddFile)]
        removed = [action.path for action in entry.actions if isinstance(action, RemoveFile)]
        expected = followed.apply(version, added, removed, carried)
        wrong += [] if expected is None else [f"version {version} carries {carried}, expected {expected}"]
    counted = totals_of(state.require_whole().index.by_path.values())
    return wrong + ([] if carried == counted else [f"the newest carries {carried}, expected {counted}"])


def split_checkpoint(log: DeltaLog, version: int, parts: int) -> list[str]:
    """Replace the checkpoint of ``version`` by one of several parts, as Spark writes them; their paths."""
    whole = pq.read_table(pa.BufferReader(log.store.read(checkpoint_path(log.table, version))))
    paths = []
    for part in range(parts):
        first, end = whole.num_rows * part // parts, whole.num_rows * (part + 1) // parts
        sink = pa.BufferOutputStream()
        pq.write_table(whole.slice(first, end - first), sink)
        path = f"{log_folder(log.table)}{version:020d}.checkpoint.{part + 1:010d}.{parts:010d}.parquet"
        log.store.put(path, bytes(sink.getvalue()))
        paths.append(path)
    log.store.delete([checkpoint_path(log.table, version)])
    return paths


class OvertakenStore(WrappedStore):
    """A store whose first creates come too late: right before each, others act (on the wrapped store)."""

    def __init__(self, store: ObjectStore, others_act: Callable[[], object], *, times: int = 1) -> None:
        super().__init__(store)
        self._others_act = others_act
        self._times = times

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        if self._times > 0:
            self._times -= 1
            self._others_act()
        return super().create(path, data, sync=sync)


def two_days_of_others(memory: MemoryStore, clock: ManualClock, *, count: int = 12) -> None:
    """Others append over two days; then the log is checkpointed and cleaned up to what the last day needs."""
    log = a_log(memory, clock)
    writer = a_writer(log)
    for number in range(count):
        append(writer, f"other {writer.head.delta_version} {number}")
        clock.advance(2 * DAY_MS / count)
    write_checkpoint(log)
    append(writer, "after the checkpoint")
    result = clean_log(log, retention_ms=DAY_MS)
    assert result is not None
    assert result.deleted_count > 0


class LazyDisk(Disk):
    """Planted: no fsync does anything."""

    def content_is_flushed(self, path: str, data: bytes) -> None:
        pass

    def flush(self, paths: Iterable[str], flush: Callable[[], None]) -> None:
        flush()

    def flush_all(self, flush: Callable[[], None]) -> None:
        flush()


def resealed(data: bytes) -> bytes:
    """An entry that was changed on purpose, with the checksum of what it is now; as it is if it has none."""
    mark = b'"crc32":"'
    compact = data.replace(b'"crc32": "', mark)
    at = compact.find(mark) + len(mark)
    return with_sum(compact[:at] + EMPTY_SUM.encode() + compact[at + len(EMPTY_SUM) :]) if at >= len(mark) else data
