"""The live files of a topic in the store: there, of the right size, and with ``deep`` what the log says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.delta.log import DeltaLog
from sparklog.delta.parquet_reading import open_parquet
from sparklog.errors import CorruptRecordError, InvalidArgumentError, ObjectNotFoundError, StoreError
from sparklog.integrity.findings import Code, Finding, Subject
from sparklog.integrity.unread import unread
from sparklog.integrity.value_stats import LoggedValues, contradictions
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.record_reading import conform, milliseconds
from sparklog.log.data.segments import Segment, SegmentIndex
from sparklog.log.data.value_columns import DATA
from sparklog.log.data.value_stats import ValueStats
from sparklog.parallel import parallel_map
from sparklog.storage.each_alone import check_of_one, each_alone, list_each_folder, one_alone
from sparklog.txn.orphans import others_folders

__all__ = ["FilesSeen", "check_files", "read_files"]

_LOOKED_AT = ("offset_delta", "timestamp", "producer_id", "producer_epoch", "sequence")
_FILES_AT_ONCE = 64
_BYTES_AT_ONCE = 128 * 1024 * 1024
_HALF = 2**30
_MODULUS = 2**31


@dataclass(slots=True, kw_only=True)
class FilesSeen:
    """The files that a listing of a topic's folder showed."""

    findings: list[Finding] = field(default_factory=list)
    unnamed: list[tuple[str, int, int]] = field(default_factory=list)
    """Data files that aren't live: path, bytes, modification time."""
    newest_ms: int = 0
    """The newest modification time of all."""
    others: Sequence[str] = ()
    """Folders that hold another cluster or table."""


def check_files(log: DeltaLog, index: SegmentIndex, topic: str) -> FilesSeen:
    """Is every live file there, and as large as its action says?

    One LIST of the topic's folder, and a read of a byte of each file that it misses.
    """
    seen = FilesSeen()
    expected: dict[str, Segment] = {}
    for segment in index.by_path.values():
        try:
            expected[object_path(log.table, segment.path)] = segment
        except InvalidArgumentError as error:
            seen.findings.append(
                Finding(
                    code=Code.FILE_OUTSIDE,
                    subject=Subject(topic=topic, partition=segment.partition, path=segment.path),
                    seen=str(error),
                    expected="a file in the topic's folder",
                )
            )
    folder = f"{log.table}/"
    others = others_folders(log)
    unlisted: dict[str, Exception] = {}
    for file in list_each_folder(log.store, folder, unlisted):
        others.note(file.path)
        seen.newest_ms = max(seen.newest_ms, file.modified_ms)
        live = expected.pop(file.path, None)
        if live is None:
            if _is_data_file(file.path.removeprefix(folder)):
                seen.unnamed.append((file.path, file.size_bytes, file.modified_ms))
        elif file.size_bytes != live.size_bytes:
            subject = Subject(topic=topic, partition=live.partition, path=file.path)
            found = one_alone(log.store, partial(log.store.exists, file.path))
            seen.findings.append(
                unread(found, subject)
                if isinstance(found, Exception)
                else Finding(
                    code=Code.FILE_SIZE,
                    subject=subject,
                    seen=f"{file.size_bytes} bytes",
                    expected=f"{live.size_bytes}, as the log says",
                )
            )
    seen.findings += [unread(error, Subject(topic=topic, path=f"{folder}{name}")) for name, error in unlisted.items()]
    for path in [path for path in expected if path[len(folder) :].partition("/")[0] in unlisted]:
        del expected[path]
    seen.others = others.found()
    seen.unnamed = [file for file in seen.unnamed if not others.spares(file[0])]
    for path, is_there in zip(expected, each_alone(log.store, log.store.exists, expected), strict=True):
        if isinstance(is_there, Exception):
            seen.findings.append(unread(is_there, Subject(topic=topic, partition=expected[path].partition, path=path)))
        elif not is_there:
            seen.findings.append(
                Finding(
                    code=Code.FILE_MISSING,
                    subject=Subject(topic=topic, partition=expected[path].partition, path=path),
                    seen="it isn't there",
                    expected=_facts_of_log(expected[path]),
                )
            )
    return seen


def read_files(
    log: DeltaLog,
    index: SegmentIndex,
    topic: str,
    *,
    native_producers: Collection[int],
    spared: Collection[str],
    columns: Collection[str],
    values: LoggedValues | None = None,
) -> tuple[list[Finding], int]:
    """Read every live file that has offsets, and compare its rows with what the log says of it.

    In memory are at most 64 files, of 128 MiB together or one that is larger.

    Args:
        native_producers: the ids of sparklog's producers: what they number goes on by one.
        spared: paths in the store that aren't read: what is wrong with them is reported.
        columns: of the topic's table.
        values: the statistics of a typed topic's values.
    Returns:
        What was found, and how many records were read.
    """
    findings: list[Finding] = []
    records = 0
    read = _reader(log, topic, native_producers, spared, columns, values)
    for partition in index.partitions(with_stopped=True):
        sequences = _Sequences(Subject(topic=topic, partition=partition))
        for chunk in _chunks(index.partition(partition)):
            for rows in parallel_map(read, chunk):
                findings += rows.findings
                records += rows.count
                findings += sequences.go_on(rows)
    return findings, records


@dataclass(slots=True, kw_only=True)
class _Rows:
    """The rows that were read of a file."""

    path: str
    findings: list[Finding] = field(default_factory=list)
    count: int = 0
    runs: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """By producer id and epoch: the first and the last sequence, by offset."""


def _reader(
    log: DeltaLog,
    topic: str,
    native_producers: Collection[int],
    spared: Collection[str],
    columns: Collection[str],
    values: LoggedValues | None,
) -> Callable[[Segment], _Rows]:
    natives = np.fromiter(native_producers, np.int64, len(native_producers))

    def read(segment: Segment) -> _Rows:
        rows = _Rows(path=segment.path)
        subject = Subject(topic=topic, partition=segment.partition, path=segment.path)
        try:
            path = object_path(log.table, segment.path)
            if path in spared:
                return rows
            leaves = values.leaves(segment.path) if values is not None else {}
            value_stats = ValueStats([*leaves])
            kind = values.type if values is not None and leaves else None
            table, unknown = _decode(path, log.store.read(path), columns, kind, value_stats)
        except InvalidArgumentError:  # outside of the table: a finding of check_files
            return rows
        except ObjectNotFoundError:
            rows.findings.append(
                Finding(code=Code.FILE_MISSING, subject=subject, seen="it isn't there", expected=_facts_of_log(segment))
            )
            return rows
        except CorruptRecordError as error:
            rows.findings.append(
                Finding(code=Code.FILE_CORRUPT, subject=subject, seen=str(error), expected="a whole Parquet file")
            )
            return rows
        except StoreError as error:
            check_of_one(log.store, error)
            rows.findings.append(unread(error, subject))
            return rows
        rows.count = table.num_rows
        rows.findings += _check_unknown(unknown, subject)
        rows.findings += _compare(table, segment, subject)
        rows.findings += [
            Finding(code=Code.STATS_WRONG, subject=subject, seen=seen, expected=f"as the log says: {said}")
            for seen, said in (contradictions(values, segment.path, value_stats) if values is not None else ())
        ]
        rows.runs, repeated = _runs(table, natives)
        if repeated is not None:
            rows.findings.append(_repeated(subject, *repeated))
        return rows

    return read


def _decode(
    path: str, data: bytes, known: Collection[str], values: pa.StructType | None, value_stats: ValueStats
) -> tuple[pa.Table, Counter[str]]:
    """Decode all of a file; its checksums are verified where it has any; five columns are kept, and
    ``partition`` where it is among them. Of columns that a topic doesn't have: how many values they hold.

    Args:
        values: the type of ``data`` where ``value_stats`` are to be gathered.

    Raises ``CorruptRecordError``."""
    kept: list[pa.Table] = []
    unknown: Counter[str] = Counter()
    try:
        file = open_parquet(data)
        for number in range(file.num_row_groups):
            group = file.read_row_group(number, use_threads=False)
            columns = {name: conform(path, group, name) for name in _LOOKED_AT}
            if values is not None:
                value_stats.add(conform(path, group, DATA, values), group.num_rows)
            for name in group.column_names:
                if name not in known:
                    unknown[name] += group.num_rows - group[name].null_count
            if "partition" in group.column_names:
                columns["partition"] = group["partition"].cast(pa.int64())
            kept.append(pa.table(columns))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptRecordError(f"corrupt data file {path} ({len(data)} bytes): {error}") from error
    table = pa.concat_tables(kept) if kept else pa.table({name: pa.nulls(0, pa.int64()) for name in _LOOKED_AT})
    return table, unknown


def _check_unknown(unknown: Counter[str], subject: Subject) -> Iterator[Finding]:
    for name, count in unknown.items():
        if count:
            yield Finding(
                code=Code.COLUMN_VALUES,
                subject=subject,
                seen=f"{count} values in column {name!r}, which a topic doesn't have",
                expected="nothing but null: no consumer sees them, and maintenance doesn't rewrite the file until they "
                "are set to null by an UPDATE in SQL",
            )


def _compare(table: pa.Table, segment: Segment, subject: Subject) -> Iterator[Finding]:
    deltas = table["offset_delta"]
    if deltas.null_count or table.num_rows == 0:
        yield Finding(
            code=Code.FILE_CORRUPT,
            subject=subject,
            seen=f"{deltas.null_count} of {table.num_rows} records have no offset_delta",
            expected="records, all of them numbered",
        )
        return
    numbers = deltas.to_numpy()
    distinct = len(np.unique(numbers))
    if distinct < len(numbers):
        yield Finding(
            code=Code.FILE_CORRUPT,
            subject=subject,
            seen=f"{len(numbers) - distinct} of {len(numbers)} records have the offset of another",
            expected="each offset once",
        )
    times = pc.min_max(milliseconds(table["timestamp"])).as_py()
    actual = (table.num_rows, int(numbers.min()), int(numbers.max()), times["min"], times["max"])
    logged = (
        segment.record_count,
        segment.min_offset_delta,
        segment.max_offset_delta,
        segment.min_timestamp_ms,
        segment.max_timestamp_ms,
    )
    names = ("records", "least offset_delta", "greatest offset_delta", "least timestamp", "greatest timestamp")
    wrong = [at for at, (is_, said) in enumerate(zip(actual, logged, strict=True)) if said is not None and is_ != said]
    if wrong:
        yield Finding(
            code=Code.STATS_WRONG,
            subject=subject,
            seen=", ".join(f"{names[at]}: {actual[at]}" for at in wrong),
            expected="as the log says: " + ", ".join(f"{names[at]}: {logged[at]}" for at in wrong),
        )
    if "partition" in table.column_names:
        others = pc.unique(pc.drop_null(table["partition"])).to_pylist()
        if others not in ([], [segment.partition]):
            yield Finding(
                code=Code.STATS_WRONG,
                subject=subject,
                seen=f"column partition holds {others[:3]}",
                expected=f"{segment.partition}, as the log says",
            )


def _runs(
    table: pa.Table, natives: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[dict[tuple[int, int], tuple[int, int]], tuple[int, int, int] | None]:
    """First and last sequence of each producer, and the first repeated one: producer, sequence before, sequence."""
    plain = table.filter(pc.invert(pc.is_null(table["sequence"]))) if table.num_rows else table
    if not len(natives) or not plain.num_rows or plain["producer_id"].null_count or plain["producer_epoch"].null_count:
        return {}, None
    producers, epochs, numbers, deltas = (
        plain[name].to_numpy().astype(np.int64)
        for name in ("producer_id", "producer_epoch", "sequence", "offset_delta")
    )
    is_native = np.isin(producers, natives)
    producers, epochs, numbers, deltas = (column[is_native] for column in (producers, epochs, numbers, deltas))
    if not len(producers):
        return {}, None
    order = np.lexsort((deltas, epochs, producers))
    producers, epochs, numbers = producers[order], epochs[order], numbers[order]
    same = (producers[1:] == producers[:-1]) & (epochs[1:] == epochs[:-1])
    steps = (numbers[1:] - numbers[:-1]) % _MODULUS
    wrong = np.flatnonzero(same & ((steps == 0) | (steps > _HALF)))
    firsts = np.concatenate([[0], np.flatnonzero(~same) + 1])
    lasts = np.concatenate([firsts[1:] - 1, [len(numbers) - 1]])
    runs = {
        (int(producers[first]), int(epochs[first])): (int(numbers[first]), int(numbers[last]))
        for first, last in zip(firsts, lasts, strict=True)
    }
    if not len(wrong):
        return runs, None
    at = int(wrong[0])
    return runs, (int(producers[at]), int(numbers[at]), int(numbers[at + 1]))


class _Sequences:
    """The newest sequence of each producer, as a partition is read by offset."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._last: dict[tuple[int, int], int] = {}

    def go_on(self, rows: _Rows) -> Iterator[Finding]:
        for producer, (first, last) in rows.runs.items():
            before = self._last.get(producer)
            self._last[producer] = last
            if before is not None and not 0 < (first - before) % _MODULUS <= _HALF:
                subject = Subject(topic=self._subject.topic, partition=self._subject.partition, path=rows.path)
                yield _repeated(subject, producer[0], before, first)


def _repeated(subject: Subject, producer_id: int, before: int, now: int) -> Finding:
    return Finding(
        code=Code.SEQUENCE_REPEATED,
        subject=subject,
        seen=f"producer {producer_id}: sequence {now} comes after {before}",
        expected="sequences that grow with the offsets: is a batch there twice?",
    )


def _chunks(segments: Iterable[Segment]) -> Iterator[Sequence[Segment]]:
    chunk: list[Segment] = []
    size = 0
    for segment in segments:
        if chunk and (len(chunk) >= _FILES_AT_ONCE or size + segment.size_bytes > _BYTES_AT_ONCE):
            yield chunk
            chunk, size = [], 0
        chunk.append(segment)
        size += segment.size_bytes
    if chunk:
        yield chunk


def _facts_of_log(segment: Segment) -> str:
    if segment.base_offset is None:
        return "a file without offsets, as the log says"
    return f"{segment.record_count} records at offsets {segment.first_offset} to {segment.last_offset}"


def _is_data_file(path: str) -> bool:
    """Hidden folders hold what engines keep for themselves. Source: Delta's ``VACUUM``."""
    return path.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in path.split("/"))
