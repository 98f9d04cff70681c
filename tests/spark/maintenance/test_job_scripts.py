"""``jobs/retention.py`` and its siblings: their command lines, what they print, and how they end. Without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparklog.compaction import MaintenanceReport, RetentionReport, Step, TopicMaintenance
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.errors import InvalidConfigurationError, KafkaTimeoutError, SparklogError, StoreError
from sparklog.spark.maintenance import maintenance_job
from sparklog.spark.maintenance.maintenance_job import JOBS, main, parse
from sparklog.spark.session.spark_job import DONE, FAILED, TRY_AGAIN

FOLDER = Path(__file__).parents[3] / "jobs"
CUT = TopicMaintenance(
    topic="cut",
    deleted=False,
    retention=RetentionReport(
        topic="cut",
        removed_files=12,
        removed_bytes=3_400,
        log_start_offsets={0: (0, 7), 3: (2, 9)},
        delta_version=5,
        dry_run=False,
    ),
)
NOTHING = TopicMaintenance(topic="ignore_steps", deleted=False)


def a_report(*topics: TopicMaintenance, dry_run: bool = False) -> MaintenanceReport:
    return MaintenanceReport(topics=topics, transactions=(), groups=(), errors={}, dry_run=dry_run)


def failing(*errors: SparklogError) -> TopicMaintenance:
    return replace(CUT, topic="bad", errors=dict(zip(Step, errors, strict=False)))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the job asks for; its ``result`` is what it gets, or what is raised."""
    found: dict[str, Any] = {"result": a_report(CUT, NOTHING)}

    def maintain(spark: object, cluster: str, topics: list[str] | None, **given: Any) -> MaintenanceReport:
        found.update(given, spark=spark, cluster=cluster, topics=topics)
        given["tell"]("", Step.RETENTION)
        given["tell"]("cut", Step.COMPACT)
        if isinstance(found["result"], Exception):
            raise found["result"]
        result: MaintenanceReport = found["result"]
        return result

    monkeypatch.setattr(maintenance_job, "maintain", maintain)
    monkeypatch.setattr(maintenance_job, "spark_of", lambda name: name)
    monkeypatch.delenv("SPARKLOG_STORAGE_OPTIONS", raising=False)
    return found


@pytest.mark.slow
def test_each_job_is_a_file_whose_help_needs_no_spark() -> None:
    hidden = "import sys; sys.modules['pyspark'] = None; import runpy\nfor name in sys.argv[1:]:\n"
    run = (
        f"{hidden}  sys.argv = [name, '--help']\n  try: runpy.run_path(name, run_name='__main__')\n"
        "  except SystemExit as ended: assert ended.code == 0\n"
    )
    paths = [str(FOLDER / f"{name}.py") for name in JOBS]
    done = subprocess.run([sys.executable, "-c", run, *paths], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("usage:")] == [
        f"{name}.py" for name in JOBS
    ]


def test_a_job_does_its_own_step_and_maintain_all_or_those_that_are_chosen() -> None:
    needed = ["--cluster", "c"]
    steps = {name: list(parse(name, needed).steps) for name in JOBS}
    assert steps == {
        "retention": [Step.RETENTION],
        "compact": [Step.COMPACT],
        "optimize": [Step.OPTIMIZE],
        "vacuum": [Step.VACUUM],
        "maintain": list(Step),
    }
    chosen = parse("maintain", [*needed, "--steps", "optimize,retention", "--steps", "vacuum"]).steps
    assert chosen == [Step.OPTIMIZE, Step.RETENTION, Step.VACUUM]


def test_what_is_given_is_handed_on(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--cluster", "s3://b/p", "--topics", "a, b", "--topics", "c", "--dry-run", "--target-bytes", "1000"]
    assert main("optimize", [*given, "--small-bytes", "5", "--storage-options", '{"key": "k"}']) == DONE
    assert (asked["spark"], asked["cluster"], asked["topics"]) == ("sparklog optimize", "s3://b/p", ["a", "b", "c"])
    assert asked["policy"] == OptimizePolicy(target_bytes=1000)
    assert (asked["dry_run"], asked["small_bytes"], asked["storage_options"]) == (True, 5, {"key": "k"})
    monkeypatch.setenv("SPARKLOG_STORAGE_OPTIONS", '{"key": "of the environment"}')
    assert main("vacuum", ["--cluster", "c"]) == DONE
    assert (asked["topics"], asked["policy"], asked["dry_run"]) == (None, None, False)
    assert asked["storage_options"] == {"key": "of the environment"}


def test_the_summary_is_a_table_and_progress_goes_to_standard_error(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("maintain", ["--cluster", "c"]) == DONE
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "topic  step       files  bytes  result",
        "cut    retention     12   3400  removed; logs begin: 0 from 7, 3 from 9",
    ]
    assert printed.err.splitlines() == ["maintain: retention", "maintain: cut: compact"]
    asked["result"] = a_report(CUT, dry_run=True)
    main("maintain", ["--cluster", "c", "--dry-run"])
    assert capsys.readouterr().out.splitlines()[-1] == "nothing was changed: this was a dry run"
    asked["result"] = a_report(NOTHING)
    main("maintain", ["--cluster", "c"])
    assert capsys.readouterr().out == "nothing to be done\n"


def test_json_is_the_whole_report_in_one_line(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main("retention", ["--cluster", "c", "--json"]) == DONE
    [line] = capsys.readouterr().out.splitlines()
    report = json.loads(line)
    assert report["topics"][0]["retention"]["log_start_offsets"] == {"0": [0, 7], "3": [2, 9]}
    assert report["errors"] == {}


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (a_report(failing(InvalidConfigurationError("odd"))), FAILED),
        (a_report(failing(KafkaTimeoutError("slow"))), TRY_AGAIN),
        (a_report(failing(KafkaTimeoutError("slow"), InvalidConfigurationError("odd"))), FAILED),
        (KafkaTimeoutError("odd slow"), TRY_AGAIN),
        (StoreError("odd"), FAILED),
    ],
)
def test_the_exit_code_tells_a_scheduler_whether_to_try_again(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str], result: object, code: int
) -> None:
    asked["result"] = result
    assert main("maintain", ["--cluster", "c"]) == code
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("maintain: ")
    assert "odd" in last or "slow" in last


@pytest.mark.parametrize(
    ("job", "arguments", "said"),
    [
        ("vacuum", [], "--cluster"),
        ("vacuum", ["--cluster", "c", "--steps", "vacuum"], "--steps"),
        ("maintain", ["--cluster", "c", "--steps", "purge"], "expected any of transactions, sequence"),
        ("retention", ["--cluster", "c", "--topics", ","], "expected the name of a topic"),
        ("optimize", ["--cluster", "c", "--target-bytes", "0"], "target_bytes: got 0, expected 1 or more"),
        ("compact", ["--cluster", "c", "--storage-options", '["secret"'], "expected a JSON object"),
    ],
)
def test_wrong_arguments_end_with_2(
    job: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(job, arguments)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert said in told
    assert "secret" not in told.replace('secret": …', "")


def test_a_garbled_environment_is_told_without_what_it_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARKLOG_STORAGE_OPTIONS", "hidden=1")
    with pytest.raises(SystemExit):
        main("vacuum", ["--cluster", "c"])
    told = capsys.readouterr().err
    assert "SPARKLOG_STORAGE_OPTIONS: expected a JSON object" in told
    assert "hidden" not in told
