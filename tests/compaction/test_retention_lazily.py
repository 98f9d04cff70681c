"""A plan of retention looks at what goes, and not at all that lives: producers commit while it is made."""

from __future__ import annotations

import pytest

from sparklog.compaction import retention
from sparklog.compaction.file_ranges import FileUnit
from sparklog.compaction.retention import RetentionRules, plan_retention
from tests.compaction.support import a_segment
from tests.support import DAY_MS, T0_MS


@pytest.mark.parametrize(
    ("rules", "start"),
    [
        (RetentionRules(deletes=True, retention_ms=7 * DAY_MS, retention_bytes=-1), 0),
        (RetentionRules(deletes=True, retention_ms=-1, retention_bytes=4_990_000), 0),
        (RetentionRules(deletes=False, retention_ms=-1, retention_bytes=-1), 100),
    ],
    ids=["age", "size", "below the start"],
)
def test_of_5_000_files_those_are_looked_at_that_go(
    rules: RetentionRules, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = [
        a_segment(number * 10, max_timestamp_ms=T0_MS - (30 * DAY_MS if number < 10 else 0)) for number in range(5_000)
    ]
    looked_at = []

    class Counted(FileUnit):
        @classmethod
        def of(cls, found):
            unit = FileUnit.of(found)
            looked_at.append(unit)
            return unit

    monkeypatch.setattr(retention, "FileUnit", Counted)
    plan = plan_retention(segments, rules, partition=0, log_start_offset=start, end_offset=10**9, now_ms=T0_MS)
    assert (len(plan.segments), plan.log_start_offset) == (10, 100)
    assert len(looked_at) == 11
