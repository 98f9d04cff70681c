"""``sparklog topics``, the options that every command has, and what becomes of errors."""

import io
import json
import os
import subprocess
import sys

import click
import pytest

from sparklog import cli as package
from sparklog._native import DESCRIPTION
from sparklog.cli import main
from sparklog.cli.output import is_terminal, print_table
from sparklog.cli.standard_output import OutputClosedError
from sparklog.delta.actions import RemoveFile
from sparklog.log.cluster import open_cluster
from sparklog.log.state import load_state
from tests.cli.support import a_cluster, done, failure, run
from tests.support import a_writer, append, foreign_commit, unsequenced_file

ORDERS = "orders: 2 partitions, id "
TABLE = [
    "partition  log start  log end  records",
    "        0          0        0        0",
    "        1          1        2        1",
]


@pytest.fixture
def cluster():
    """A cluster with a topic ``orders`` of two partitions."""
    uri = a_cluster()
    done("topics", "create", "orders", "--partitions", 2, "--config", "retention.ms=5", cluster=uri)
    return uri


def described(cluster, topic="orders"):
    return json.loads(done("topics", "describe", topic, "--json", cluster=cluster))[0]


def test_topics_are_created_and_listed(cluster):
    assert done("topics", "create", "b", "a", cluster=cluster) == ""
    assert done("topics", "list", cluster=cluster) == "a\nb\norders\n"
    assert json.loads(done("topics", "list", "--json", cluster=cluster)) == ["a", "b", "orders"]


def test_a_topic_that_exists(cluster):
    assert "topic 'orders' already exists (done: a)" in failure("topics", "create", "a", "orders", cluster=cluster)
    assert done("topics", "create", "b", "orders", "c", "--if-not-exists", cluster=cluster) == ""
    assert done("topics", "list", cluster=cluster).split() == ["a", "b", "c", "orders"]
    assert described(cluster)["configs"] == {"retention.ms": 5}


def test_a_topic_is_described_in_a_table_or_as_json(cluster):
    done("produce", "orders", "-p", 1, cluster=cluster, input="a\nb\n")
    done("topics", "delete-records", "orders", "-p", 1, "--before-offset", 1, cluster=cluster)
    lines = done("topics", "describe", "orders", cluster=cluster).splitlines()
    assert lines[0].startswith(ORDERS)
    assert lines[1:] == ["  retention.ms = 5", *TABLE]
    found = described(cluster)
    assert found["topic"] == "orders"
    assert found["partitions"] == [
        {"partition": 0, "log_start_offset": 0, "log_end_offset": 0},
        {"partition": 1, "log_start_offset": 1, "log_end_offset": 2},
    ]
    assert len(found["topic_id"]) == 32


def test_all_settings_are_shown_when_asked_for(cluster):
    text = done("topics", "describe", "--all", cluster=cluster)
    assert "  retention.ms = 5\n" in text
    assert "  cleanup.policy = delete  (default)\n" in text
    assert "  unclean.leader.election.enable = false  (default)\n" in text
    [found] = json.loads(done("topics", "describe", "--all", "--json", cluster=cluster))
    assert found["configs"]["segment.bytes"] == 1_073_741_824


def test_several_topics_are_described_one_below_the_other(cluster):
    done("topics", "create", "a", cluster=cluster)
    text = done("topics", "describe", cluster=cluster)
    assert [line.partition(":")[0] for line in text.splitlines() if ": " in line] == ["a", "orders"]
    assert "a: 1 partition, id" in text


def test_topics_are_altered(cluster):
    done("topics", "alter", "orders", "--config", "segment.ms=6", "--delete-config", "retention.ms", cluster=cluster)
    done("topics", "alter", "orders", "--partitions", 3, cluster=cluster)
    found = described(cluster)
    assert found["configs"] == {"segment.ms": 6}
    assert len(found["partitions"]) == 3


def test_an_alteration_is_made_as_a_whole_or_not_at_all(cluster):
    told = failure("topics", "alter", "orders", "--config", "segment.ms=6", "--partitions", 1, cluster=cluster)
    assert "'orders' has 2 partitions, asked for 1: partitions only grow" in told
    assert described(cluster)["configs"] == {"retention.ms": 5}


def test_topics_are_deleted_when_somebody_said_yes(cluster, monkeypatch):
    assert "give --yes" in failure("topics", "delete", "orders", code=2, cluster=cluster)
    assert described(cluster)
    asked = []

    def confirm(text, **options):
        asked.append(text)
        if len(asked) == 1:
            raise click.Abort

    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr(click.testing._NamedTextIOWrapper, "isatty", lambda self: True)
    assert run("topics", "delete", "orders", cluster=cluster).exit_code == 1
    done("topics", "create", "other", cluster=cluster)
    done("topics", "delete", "orders", cluster=cluster)
    assert asked == ["Delete orders with all records?"] * 2
    monkeypatch.undo()
    assert done("topics", "list", cluster=cluster) == "other\n"
    done("topics", "delete", "other", "--yes", cluster=cluster)
    assert done("topics", "list", cluster=cluster) == ""


def test_records_are_deleted(cluster):
    done("produce", "orders", "-p", 1, cluster=cluster, input="a\nb\n")
    done("produce", "orders", "-p", 0, cluster=cluster, input="a\n")
    table = done("topics", "delete-records", "orders", "--before-offset", "latest", cluster=cluster)
    assert table.splitlines() == ["partition  log start", "        0          1", "        1          2"]
    told = failure("topics", "delete-records", "orders", "-p", 1, "--before-offset", 3, cluster=cluster)
    assert "orders-1 before 3: expected 0 to 2" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["topics", "describe", "nosuch"], "unknown topic"),
        (["topics", "delete", "nosuch", "--yes"], "unknown topic"),
        (["topics", "alter", "nosuch", "--partitions", "3"], "unknown topic"),
        (["topics", "create", "a/b"], "invalid topic name 'a/b'"),
        (["topics", "create", "a", "--partitions", "0"], "'a': got 0 partitions, expected 1 to 10000"),
        (["topics", "create", "a", "--config", "retention.mss=1"], "unknown topic setting 'retention.mss'"),
        (["topics", "create", "a", "--config", "retention.ms=soon"], "retention.ms='soon': expected a whole number"),
        (["topics", "alter", "orders", "--config", "flush.ms=1"], "flush.ms is not supported"),
        (["topics", "delete-records", "orders", "-p", "9", "--before-offset", "0"], "no partition 9"),
        (["-c", "ftp://x", "topics", "list"], "unknown scheme ftp"),
        (["topics", "list", "-c", "memory://nothing-here"], "no sparklog cluster at memory://nothing-here"),
        (["topics", "list", "--storage-option", "key=SECRET"], "storage_options ['key'] have no meaning for memory"),
    ],
)
def test_what_fails_is_told_in_one_line(cluster, arguments, told):
    line = failure(*arguments, cluster=cluster)
    assert told in line
    assert "SECRET" not in line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["topics", "alter", "orders"], "Nothing to alter"),
        (["topics", "alter", "orders", "--config", "a"], "got 'a', expected KEY=VALUE"),
        (["topics", "alter", "orders", "--config", "a=1", "--config", "a=2"], "a is given twice"),
        (["topics", "alter", "orders", "--config", "a=1", "--delete-config", "a"], "in --config too"),
        (["topics", "delete-records", "orders", "--before-offset", "-1"], "expected a whole number or latest"),
        (["topics", "create"], "Missing argument"),
        (["topics", "nosuch"], "No such command 'nosuch'"),
        (["topics", "list", "--storage-option", "SECRET"], "expected KEY=VALUE"),
        (["--storage-option", "SECRET", "topics", "list"], "expected KEY=VALUE"),
    ],
)
def test_wrong_usage_has_exit_code_2(cluster, arguments, told):
    line = failure(*arguments, code=2, cluster=cluster)
    assert told in line
    assert "SECRET" not in line


def test_the_cluster_comes_from_an_option_anywhere_or_from_the_environment(cluster):
    assert done("-c", cluster, "topics", "list") == "orders\n"
    assert done("topics", "-c", cluster, "list") == "orders\n"
    assert done("topics", "list", "--cluster", cluster) == "orders\n"
    assert done("-c", "memory://another", "topics", "list", "-c", cluster) == "orders\n"
    assert "SPARKLOG_CLUSTER" in failure("topics", "list", code=2)


@pytest.mark.parametrize("text", ["SECRET", '["SECRET"]', '{"key": "SECRET"'])
def test_storage_options_of_the_environment(cluster, text):
    line = failure("topics", "list", code=2, cluster=cluster, env={"SPARKLOG_STORAGE_OPTIONS": text})
    assert "SPARKLOG_STORAGE_OPTIONS: expected a JSON object" in line
    assert "SECRET" not in line


def test_storage_options_are_merged_and_handed_to_the_store(monkeypatch):
    given: dict[str, object] = {}

    def open_store(uri, options=None):
        given.update(options or {})
        raise OSError(5, "seen", "x")

    monkeypatch.setattr("sparklog.log.cluster.open_store", open_store)
    line = failure(
        *("--storage-option", "key=12", "topics", "list", "--storage-option", 'client_kwargs={"region_name": "eu"}'),
        *("--storage-option", "anon=false"),
        cluster="s3://bucket",
        env={"SPARKLOG_STORAGE_OPTIONS": '{"key": "of the environment", "secret": "s"}'},
    )
    assert line == "sparklog: error: x: seen"
    assert given == {"key": "12", "secret": "s", "client_kwargs": {"region_name": "eu"}, "anon": False}


def test_a_traceback_is_shown_when_asked_for(cluster):
    result = run("topics", "describe", "nosuch", "--debug", cluster=cluster)
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("sparklog: error: ")


def test_an_interruption_has_exit_code_130(monkeypatch, cluster):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sparklog.log.cluster.topic_listings", interrupt)
    result = run("topics", "list", cluster=cluster)
    assert (result.exit_code, result.output) == (130, "")


def test_a_closed_pipe_ends_quietly(monkeypatch, cluster):
    def broken(*_, **__):
        raise OutputClosedError

    monkeypatch.setattr("sparklog.cli.topics.click.echo", broken)
    assert run("topics", "list", cluster=cluster).exit_code == 0


def test_main_returns_exit_codes(cluster, capsys, monkeypatch):
    monkeypatch.setenv("SPARKLOG_CLUSTER", cluster)
    assert main(["topics", "list"]) == 0
    assert main(["topics", "describe", "nosuch"]) == 1
    assert main(["topics", "nosuch"]) == 2
    assert main(["--version"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0] == "orders"
    assert f"({DESCRIPTION})" in captured.out
    assert "Traceback" not in captured.err
    assert package.main is main


def test_what_other_writers_added_is_sequenced_and_what_is_refused_is_printed(cluster):
    log = open_cluster(cluster, create=False).topic_log("orders")
    unsequenced_file(log, "a", "b")
    assert done("topics", "sequence", "orders", cluster=cluster) == "sequenced 2 records of 1 file\n"
    path = unsequenced_file(log, "c", partition=7)
    unsequenced_file(log, "d")
    result = run("topics", "sequence", "orders", cluster=cluster)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "sequenced 1 record of 1 file"
    assert result.stdout.splitlines()[2].split(maxsplit=1) == [path, "its partition is 7, the topic has 0 to 1"]
    assert result.stderr.splitlines()[-1] == "sparklog: error: topic 'orders': 1 file can't be sequenced"
    result = run("topics", "sequence", "orders", "--json", cluster=cluster)
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "topic": "orders",
        "delta_version": described(cluster)["delta_version"],
        "sequenced_files": 0,
        "sequenced_records": 0,
        "refused": [{"path": path, "reason": "its partition is 7, the topic has 0 to 1"}],
    }
    assert "unknown topic" in failure("topics", "sequence", "nosuch", cluster=cluster)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(shell, monkeypatch):
    monkeypatch.setattr(click.shell_completion.BashComplete, "_check_version", staticmethod(lambda: None))
    assert "_SPARKLOG_COMPLETE" in done("completion", shell)


def test_topics_are_completed(cluster, monkeypatch, capsys):
    done("topics", "create", "other", "orphans", cluster=cluster)
    monkeypatch.setenv("SPARKLOG_CLUSTER", cluster)
    for words, current, expected in (
        ("sparklog topics describe ", "or", ["orders", "orphans"]),
        ("sparklog consume orders ", "ot", ["other"]),
        (f"sparklog -c {cluster} produce ", "", ["orders", "orphans", "other"]),
        ("sparklog -c memory://nothing produce ", "", []),
        ("sparklog topics ", "delete", ["delete", "delete-records"]),
    ):
        monkeypatch.setenv("_SPARKLOG_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", words + current)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
        with pytest.raises(SystemExit):
            main([])
        found = [line.partition(",")[2] for line in capsys.readouterr().out.splitlines() if line]
        assert found == expected, words


def test_a_table_on_a_terminal_is_drawn_and_takes_values_literally(monkeypatch, capsys):
    monkeypatch.setattr("sparklog.cli.output.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    print_table(["name", "n"], [("[red]x[/red]", 1), (None, 22), (b"a\nb", 3), (b"\xff", 4)], numbers=["n"])
    text = capsys.readouterr().out
    assert "─" in text
    assert [part in text for part in ("[red]x[/red]", "null", "a\\nb", "0xff")] == [True] * 4
    assert not is_terminal()


@pytest.mark.slow
def test_the_module_runs_as_a_program_and_a_reader_that_leaves_is_no_error(tmp_path):
    """One process for what only a process shows: exit code, closed pipe, nothing on standard error."""
    environment = {**os.environ, "SPARKLOG_CLUSTER": str(tmp_path / "data")}
    environment.pop("SPARKLOG_STORAGE_OPTIONS", None)
    main(["-c", str(tmp_path / "data"), "topics", "create", "orders"])
    (tmp_path / "lines").write_bytes(b"".join(b"%d%s\n" % (number, b"x" * 100) for number in range(5_000)))
    main(["-c", str(tmp_path / "data"), "produce", "orders", str(tmp_path / "lines")])
    process = subprocess.Popen(
        [sys.executable, "-m", "sparklog", "consume", "orders", "--from-beginning"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"0" + b"x" * 100 + b"\n"
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_standard_error_takes_what_a_pipe_must_not_hold(cluster):
    result = run("produce", "orders", cluster=cluster, input=io.BytesIO(b"a\n"))
    assert (result.stdout, result.stderr) == ("", "produced 1 record to orders\n")


def test_records_that_sql_removed_are_restored_and_counted(cluster):
    log = open_cluster(cluster, create=False).topic_log("orders")
    append(a_writer(log, topic="orders"), "a", "b")
    before = load_state(log).position.version
    (segment,) = load_state(log).require_whole().index.by_path.values()
    values = segment.partition_values()
    foreign_commit(log, RemoveFile(path=segment.path, deletion_ms=1, partition_values=values))
    arguments = ("topics", "restore", "orders", "--version", before)
    assert done(*arguments, "--dry-run", cluster=cluster).splitlines()[0] == "would restore 2 records of 1 partition"
    assert done(*arguments, cluster=cluster).splitlines() == [
        "restored 2 records of 1 partition",
        "partition  records",
        "        0        2",
    ]
    found = json.loads(done(*arguments, "--json", cluster=cluster))
    assert (found["partitions"], found["lost"], found["dry_run"]) == ([], [], False)
    assert "expected 0 to" in failure("topics", "restore", "orders", "--version", 99, cluster=cluster)
    foreign_commit(log, RemoveFile(path=segment.path, deletion_ms=1, partition_values=values))
    log.store.delete([f"{log.table}/{segment.path}"])
    result = run(*arguments, cluster=cluster)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].split() == ["0", "0", "1", segment.path]
