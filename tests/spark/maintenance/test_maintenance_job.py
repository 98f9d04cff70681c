"""The jobs of ``jobs/``: what they print and how they end, whatever happens. Without Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparklog.compaction.maintenance import MaintenanceReport, Step, TopicMaintenance
from sparklog.errors import CorruptRecordError, KafkaTimeoutError, SparklogError, UnknownTopicOrPartitionError
from sparklog.spark.maintenance import maintenance_job
from sparklog.spark.maintenance.maintenance_job import main
from sparklog.spark.session.spark_job import DONE, FAILED, TRY_AGAIN


def a_job(monkeypatch: pytest.MonkeyPatch, *, raised: SparklogError | None = None, **errors: SparklogError) -> None:
    """A job that is told progress, and fails so."""

    def maintain(*_: object, tell: Any, **__: object) -> MaintenanceReport:
        tell("t", Step.OPTIMIZE)
        tell.on_progress("t", Step.OPTIMIZE, "1 of 2 ranges, 1.5 of 3.0 GB")
        if raised is not None:
            raise raised
        topics = [TopicMaintenance(topic=name, deleted=False, errors={Step.VACUUM: e}) for name, e in errors.items()]
        return MaintenanceReport(topics=tuple(topics), transactions=(), groups=(), errors={}, dry_run=False)

    monkeypatch.setattr(maintenance_job, "maintain", maintain)
    monkeypatch.setattr(maintenance_job, "spark_of", lambda name: name)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaTimeoutError("odd"), TRY_AGAIN),
        (UnknownTopicOrPartitionError("odd"), FAILED),
        (CorruptRecordError("odd"), FAILED),
    ],
)
def test_json_is_an_object_whatever_happens_and_a_misspelt_topic_is_not_tried_again(
    error: SparklogError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_job(monkeypatch, raised=error)
    assert main("maintain", ["--cluster", "c", "--json"]) == code
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"error": "odd", "retriable": code == TRY_AGAIN}
    assert printed.err.splitlines()[-1] == "maintain: odd"
    a_job(monkeypatch, good=error)
    assert main("maintain", ["--cluster", "c", "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert (report["failures"], report["may_succeed_later"]) == (["topic good: vacuum: odd"], code == TRY_AGAIN)


def test_how_far_a_step_has_come_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_job(monkeypatch)
    assert main("optimize", ["--cluster", "c"]) == DONE
    printed = capsys.readouterr()
    assert printed.out == "nothing to be done\n"
    assert printed.err.splitlines() == ["optimize: t: optimize", "optimize: t: optimize: 1 of 2 ranges, 1.5 of 3.0 GB"]
