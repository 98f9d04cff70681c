"""Whether what the clients of a soak were told is what is stored."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sparklog.consumer import Consumer
from sparklog.model import TopicPartition

__all__ = ["Kept", "Told", "check_deep", "compare", "compare_compacted", "compare_transactions", "listen", "read_topic"]

_READ_S = 300.0
_CHECK_S = 1_800.0
_SHOWN = 3

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass(slots=True)
class Told:
    """What the notes of one client say."""

    acknowledged: dict[Place, str] = field(default_factory=dict)
    """The values of the records by their places, as far as they are wanted."""
    count: int = 0
    """Of all that were acknowledged."""
    disordered: int = 0
    """Records whose offsets aren't above those of their partitions that were acknowledged before."""
    committed: int = 0
    """Records of transactions."""
    read: int = 0
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is in a topic: values by their places, and where each partition begins."""

    values: Mapping[Place, str | None]
    begins: Mapping[int, int]


def listen(lines: Iterable[str], begins: Mapping[int, int] | None = None) -> Told:
    """The notes of a client, which had one producer at a time.

    Args:
        begins: the offsets that partitions begin with: values of earlier records aren't wanted. None: no values are.

    Raises:
        ValueError: a line is none of a client's.
    """
    told = Told()
    last: dict[int, int] = {}
    for line in lines:
        kind, _, rest = line.rstrip("\n").partition(" ")
        if kind == "ok":
            _topic, partition, offset, value = rest.split(" ", 3)
            place = int(partition), int(offset)
            told.count += 1
            told.disordered += place[1] <= last.get(place[0], -1)
            last[place[0]] = place[1]
            if begins is not None and place[1] >= begins[place[0]]:
                told.acknowledged[place] = value
        elif kind == "committed":
            told.committed += int(rest)
        elif kind == "read":
            told.read += int(rest)
        elif kind == "error":
            told.errors.append(rest)
        else:
            raise ValueError(f"got the note {line!r}, expected one that begins with ok, committed, read or error")
    return told


def compare(topic: str, told: Told, kept: Kept) -> list[str]:
    """The faults of a topic whose old records alone are removed."""
    faults = _disordered(topic, told)
    missing = [place for place in told.acknowledged if place not in kept.values]
    other = [
        f"{place}: {kept.values[place]!r}, expected {value!r}"
        for place, value in told.acknowledged.items()
        if place in kept.values and kept.values[place] != value
    ]
    return faults + _faults(topic, "acknowledged and not stored", missing) + _faults(topic, "another value", other)


def compare_compacted(topic: str, told: Told, kept: Kept) -> list[str]:
    """The faults of a compacted topic: the last record of each key is there, unless that deleted the key.

    A value is ``KEY:TEXT``; without a text it stands for a deletion.
    """
    last = {value.partition(":")[0]: (place, value) for place, value in told.acknowledged.items()}
    missing, other = [], []
    for place, value in last.values():
        is_deletion = value.endswith(":")
        if place not in kept.values:
            missing += [] if is_deletion else [place]
        elif kept.values[place] != (None if is_deletion else value):
            other.append(f"{place}: {kept.values[place]!r}, expected {value!r}")
    faults = _disordered(topic, told)
    return faults + _faults(topic, "acknowledged and not stored", missing) + _faults(topic, "another value", other)


def compare_transactions(topic: str, told: Told, kept: Kept) -> list[str]:
    """The faults of what was produced exactly once: as many records as were committed, no two for one input."""
    faults = []
    if len(kept.values) != told.committed:
        faults.append(f"{topic}: {len(kept.values)} records are stored, {told.committed} were committed")
    if len(set(kept.values.values())) != len(kept.values):
        twice = len(kept.values) - len(set(kept.values.values()))
        faults.append(f"{topic}: {twice} records are outputs of an input that has one already")
    return faults


def _disordered(topic: str, told: Told) -> list[str]:
    return [f"{topic}: {told.disordered} records were acknowledged at or below offsets of earlier ones"] * bool(
        told.disordered
    )


def _faults(topic: str, what: str, found: Sequence[object]) -> list[str]:
    shown = ", ".join(map(str, found[:_SHOWN]))
    return [f"{topic}: {what}: {len(found)} records, such as {shown}"] if found else []


def read_topic(cluster: str, topic: str, partitions: Collection[int]) -> Kept:
    """All records of a topic, whose clients and maintenance have ended.

    Raises:
        TimeoutError: they can't be read within five minutes.
    """
    those = [TopicPartition(topic, partition) for partition in partitions]
    values: dict[Place, str | None] = {}
    with Consumer(cluster=cluster, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign(those)
        ends = consumer.end_offsets(those)
        deadline = time.monotonic() + _READ_S
        while any(consumer.position(one) < ends[one] for one in those):
            if time.monotonic() > deadline:
                positions = {one: consumer.position(one) for one in those}
                raise TimeoutError(f"{topic} can't be read within {_READ_S:.0f} s: {positions} of {ends}")
            for partition, records in consumer.poll(timeout_ms=1_000, max_records=5_000).items():
                for record in records:
                    value = None if record.value is None else record.value.decode()
                    values[partition.partition, record.offset] = value
        begins = consumer.beginning_offsets(those)
    return Kept(values=values, begins={one.partition: offset for one, offset in begins.items()})


def check_deep(cluster: str, output: Path) -> list[str]:
    """What ``sparklog check --deep`` finds, which it prints into a file."""
    with output.open("w") as file:
        code = subprocess.run(
            [sys.executable, "-m", "sparklog", "-c", cluster, "check", "--deep"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=_CHECK_S,
        ).returncode
    last = output.read_text().strip().splitlines()[-1:] or ["nothing"]
    return [f"sparklog check --deep ended with {code}, expected 0: {last[0]}; see {output}"] if code else []
