"""``sparklog.jobs.ingest``: a thin shell around ``merge_ingest``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.jobs import ingest
from sparklog.spark.session.spark_job import DONE, FAILED, TRY_AGAIN
from tests.spark.spark_support import a_cluster
from tests.support import contents

NEEDED = ("--cluster", "c", "--topic", "t", "--input", "i")
JOB = Path(ingest.__file__)
LINE = '{"producer_id": 7, "producer_epoch": 0, "sequence": %d, "value": "%s"}\n'


@pytest.mark.slow
def test_help_needs_no_spark():
    hidden = "import sys; sys.modules['pyspark'] = None; import runpy; sys.argv = ['ingest.py', '--help']; "
    run = f"{hidden}runpy.run_path({str(JOB)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, timeout=60, cwd=JOB.parents[2])
    assert (done.returncode, done.stderr) == (0, "")
    assert "--dedup-window-ms" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [[], ["--cluster", "c", "--topic", "t"], [*NEEDED, "--format", "xml"], [*NEEDED, "--option", "header"]],
)
def test_wrong_arguments_end_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        ingest.main(arguments)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_storage_options_that_are_no_object_are_not_repeated(capsys, monkeypatch):
    with pytest.raises(SystemExit):
        ingest.parse([*NEEDED, "--storage-options", '{"secret": hush'])
    assert "expected a JSON object" in (told := capsys.readouterr().err)
    assert "hush" not in told
    monkeypatch.setenv("SPARKLOG_STORAGE_OPTIONS", '{"key": "k"}')
    assert ingest.parse(NEEDED).storage_options == {"key": "k"}


@pytest.mark.spark
def test_files_are_stored_once_and_a_stream_stores_only_new_ones(spark, tmp_path, capsys):
    cluster = a_cluster(tmp_path / "cluster")
    folder = tmp_path / "input"
    folder.mkdir()
    (folder / "1.json").write_text(LINE % (0, "a") + LINE % (1, "b") + LINE % (0, "a"))
    common = ["--cluster", str(tmp_path / "cluster"), "--topic", "t", "--input", str(folder)]
    assert ingest.main(common) == DONE
    assert capsys.readouterr().out.startswith("t: 2 of 3 rows stored, 1 were there already; delta version ")
    streaming = [*common, "--checkpoint", str(tmp_path / "checkpoint"), "--json"]
    for values in ("b", "c"):
        (folder / f"{values}.json").write_text(LINE % (ord(values) - ord("a"), values))
        assert ingest.main(streaming) == DONE
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(result["rows"], result["inserted"]) for result in results] == [(4, 0), (1, 1)]
    found = contents(cluster.topic_log("t"))
    assert sorted(value for records in found.values() for _, value in records) == ["a", "b", "c"]
    assert ingest.main([*common[:3], "nowhere", *common[4:]]) == TRY_AGAIN  # the topic may come
    nowhere = [*common[:3], "nowhere", *common[4:], "--checkpoint", str(tmp_path / "another")]
    assert ingest.main(nowhere) == TRY_AGAIN  # also where Spark tells of it in words alone
    (folder / "bad.json").write_text('{"value": 1}')
    assert ingest.main(common) == FAILED
    assert "refused, one because" in capsys.readouterr().err
