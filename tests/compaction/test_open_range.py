"""The files of a range: how often each is looked at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from sparklog.compaction.open_range import OpenRange
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.compaction.support import append_each
from tests.support import T0_MS, a_topic, a_writer, contents


def test_each_of_many_files_is_asked_for_the_type_of_its_values_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(start_ms=T0_MS)
    log = a_topic(MemoryStore(clock=clock), clock)
    values = [str(number) for number in range(60)]
    append_each(a_writer(log), *values)
    asked: list[Any] = []
    values_of = OpenRange._values_of

    def counted(opened: OpenRange, files: Iterable[Any], type_: Any) -> Any:
        given = [*files]
        asked.extend(given)
        return values_of(opened, given, type_)

    monkeypatch.setattr(OpenRange, "_values_of", counted)
    report = optimize_topic(log, "t", policy=OptimizePolicy(min_files=4))
    assert sum(one.files_before for one in report.ranges) == 59
    assert 59 <= len(asked) <= 3 * 59
    assert [value for _, value in contents(log)[0]] == values
