"""A pass of compaction in memory: judged in pieces of any size it is the same, and what was done of it isn't lost."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from sparklog.compaction import clean_arrow
from sparklog.compaction.clean_arrow import CleanedFiles, CleanPass, clean_with_arrow
from sparklog.compaction.commit_replacement import Outcome
from sparklog.compaction.compact import compact_topic
from sparklog.compaction.file_ranges import FileUnit
from sparklog.compaction.keys import Counts, LatestOffsets
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_cleaning import CleanPlan
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.compaction.rewrite_arrow import OpenRange
from sparklog.delta.log import DeltaLog
from tests.compaction.support import Key, a_segment, append_pairs, pairs_of
from tests.support import T0_MS, a_topic, a_writer


def a_log_of(files: Sequence[Sequence[tuple[Key, str | None]]]) -> DeltaLog:
    log = a_topic(configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0})
    writer = a_writer(log)
    for pairs in files:
        append_pairs(writer, pairs)
    return log


@dataclass
class Pieces:
    """Files that are read in pieces of these sizes."""

    table: pa.Table
    sizes: Sequence[int]
    base_offset: int = 0

    def pieces(self, columns: Sequence[str], *, once: bool = False) -> Iterator[pa.Table]:
        first = 0
        for size in self.sizes:
            yield self.table.select(list(columns)).slice(first, size)
            first += size


def judged(found: Pieces, due_tombstones_end: int) -> tuple[Counts, list[int]]:
    """The counts, and the offsets of what goes."""
    latest = LatestOffsets()
    latest.add(found.table["key"], found.table["offset_delta"])
    count = found.table.num_rows
    known = clean_arrow._Known(latest=latest, end_offset=count, due_tombstones_end=due_tombstones_end)
    judged = clean_arrow._Judged([FileUnit.of([a_segment(0, count)])])
    clean_arrow._judge(cast(OpenRange, found), known, judged)
    kept = judged.kept_from(0)
    stays = np.concatenate([kept(size) for size in found.sizes])  # in other pieces than it was judged
    return judged.counts, np.flatnonzero(~stays).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 7, 300, 10**9])
@pytest.mark.parametrize("key_count", [5, 300, 5_000])
def test_many_keys_are_judged_as_one_by_one_however_many_at_once(
    at_once: int, key_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(at_once)
    monkeypatch.setattr(clean_arrow, "_JUDGED_AT_ONCE", at_once)
    sizes = [chance.randrange(40) for _ in range(100)]
    known: list[Key] = [None, *map(str, range(key_count))]
    keys = [chance.choice(known) for _ in range(sum(sizes))]
    values = [chance.choice(["1", None]) for _ in keys]
    last = {key: offset for offset, key in enumerate(keys) if key is not None}
    due_end = sum(sizes) // 2
    columns = {
        "offset_delta": pa.array(range(len(keys)), pa.int64()),
        "key": pa.array([None if key is None else key.encode() for key in keys], pa.binary()),
        "is_tombstone": pa.array([value is None for value in values]),
    }
    counts, dropped = judged(Pieces(pa.table(columns), sizes), due_end)
    keyless = [offset for offset, key in enumerate(keys) if key is None]
    superseded = [offset for offset, key in enumerate(keys) if key is not None and last[key] != offset]
    tombstones = [offset for offset in last.values() if values[offset] is None]
    due = [offset for offset in tombstones if offset < due_end]
    assert dropped == sorted(keyless + superseded + due)
    assert counts == Counts(
        records=len(keys),
        superseded=len(superseded),
        keyless=len(keyless),
        tombstones_dropped=len(due),
        tombstones_kept=len(tombstones) - len(due),
    )


@pytest.mark.slow
def test_the_keys_are_looked_up_as_often_as_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look costs as much as there are keys; with one for each file a pass took the product of both."""
    looks = 0
    look = LatestOffsets.of

    def counted(self: LatestOffsets, keys: pa.ChunkedArray) -> Any:
        nonlocal looks
        looks += 1
        return look(self, keys)

    monkeypatch.setattr(LatestOffsets, "of", counted)
    for count, expected in ((2_000, 1), (40_000, 1)):
        looks = 0
        keys = pa.array([str(number).encode() for number in range(count)], pa.binary())
        table = pa.table(
            {"offset_delta": pa.array(range(count), pa.int64()), "key": keys, "is_tombstone": [False] * count}
        )
        assert judged(Pieces(table, [10] * (count // 10)), 0)[1] == []
        assert looks == expected


def test_a_pass_that_is_overtaken_remembers_how_far_it_came() -> None:
    """A long pass while producers go on and another process merges files: the next one needn't begin anew."""
    log = a_log_of([[(f"k{number % 3}", str(number))] for number in range(12)])
    plans: list[CleanPlan] = []

    def one_by_one(log: DeltaLog, plan: CleanPlan, compression: str, file_bytes: int) -> CleanPass:
        plans.append(plan)
        return clean_with_arrow(log, plan, compression, 1)

    def slowly(log: DeltaLog, plan: CleanPlan, compression: str, file_bytes: int) -> CleanPass:
        found = one_by_one(log, plan, compression, file_bytes)

        def pieces() -> Generator[CleanedFiles, None, None]:
            for number, piece in enumerate(found.pieces):
                if number == len(plan.units) // 2:
                    for at in range(3):
                        append_pairs(a_writer(log), [(f"k{at}", f"m{at}")])
                    optimize_topic(log, "t", policy=OptimizePolicy(min_files=2, growth=1.1))
                yield piece

        return replace(found, pieces=pieces())

    [told] = compact_topic(log, "t", now_ms=T0_MS, clean=slowly).partitions
    assert (told.outcome, told.first_dirty_offset) == (Outcome.OVERTAKEN, 5)
    [told] = compact_topic(log, "t", now_ms=T0_MS, clean=one_by_one).partitions
    assert [plan.first_dirty_offset for plan in plans] == [0, 5]
    assert (told.outcome, told.first_dirty_offset) == (Outcome.DONE, 14)
    # The newest file isn't looked at: what came before it with its key stays.
    assert pairs_of(log) == [(11, "k2", "11"), (12, "k0", "m0"), (13, "k1", "m1"), (14, "k2", "m2")]
