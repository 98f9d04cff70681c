"""``sparklog groups``, and ``sparklog consume --group``."""

import json
from typing import Any

import click
import pytest

from sparklog import Consumer
from sparklog.cli.groups import groups
from sparklog.cli.options import complete_groups
from sparklog.errors import InvalidArgumentError
from sparklog.log import open_cluster
from tests.cli.support import a_cluster, done, failure, run

QUICK = ("-X", "heartbeat_interval_ms=50", "-X", "session_timeout_ms=60000")
READ = ("consume", "orders", "--group", "g", "--from-beginning", *QUICK)
HEADER = "topic   partition  committed  log start  log end  lag  member  host  client"


@pytest.fixture
def cluster():
    """A cluster with a topic ``orders`` of one partition and five records, each a second younger."""
    uri = a_cluster()
    done("topics", "create", "orders", "audit", cluster=uri)
    lines = "".join(f'{{"value": "{name}", "timestamp": {1_000 * at}}}\n' for at, name in enumerate("abcde"))
    done("produce", "orders", "--format", "json", cluster=uri, input=lines)
    return uri


def committed(cluster, group="g"):
    [found] = json.loads(done("groups", "describe", group, "--json", cluster=cluster))
    return {(one["topic"], one["partition"]): one["committed_offset"] for one in found["partitions"]}


def reset(cluster, *arguments, **how):
    return done("groups", "reset-offsets", "g", *arguments, cluster=cluster, **how)


# consume --group


def test_a_group_goes_on_where_it_stopped(cluster):
    assert done(*READ, "-n", 2, cluster=cluster) == "a\nb\n"
    assert done(*READ, "-n", 3, cluster=cluster) == "c\nd\ne\n"
    assert committed(cluster) == {("orders", 0): 5}


def test_without_a_commit_a_group_begins_at_the_end_unless_told_otherwise(cluster):
    assert done("consume", "orders", "-g", "g", *QUICK, "--timeout-ms", 300, cluster=cluster) == ""
    assert committed(cluster) == {("orders", 0): 5}


def test_what_was_not_printed_is_not_committed(cluster, monkeypatch):
    def broken(record):
        if record.value == b"c":
            raise InvalidArgumentError("no c here")
        return b"x\n"

    done(*READ, "-n", 1, cluster=cluster)
    monkeypatch.setattr("sparklog.cli.consume.json_line", broken)
    assert "no c here" in failure(*READ, "--json", cluster=cluster)
    assert committed(cluster) == {("orders", 0): 1}  # b was in the same poll as c


def test_an_interrupted_reader_commits_what_it_printed(cluster, monkeypatch):
    poll = Consumer.poll

    def interrupted(consumer, timeout_ms=0, max_records=None):
        found = poll(consumer, timeout_ms, 2)
        if any(record.offset == 2 for records in found.values() for record in records):
            raise KeyboardInterrupt  # c was fetched, and nobody has seen it
        return found

    monkeypatch.setattr(Consumer, "poll", interrupted)
    result = run(*READ, cluster=cluster)
    monkeypatch.undo()
    assert (result.exit_code, result.stdout) == (130, "a\nb\n")
    assert committed(cluster) == {("orders", 0): 2}


def test_a_reader_that_shall_not_commit_does_not(cluster):
    done(*READ, "-n", 2, "-X", "enable_auto_commit=false", cluster=cluster)
    assert committed(cluster) == {}


@pytest.mark.parametrize("option", [("--offset", "3"), ("--partition", "0")])
def test_a_group_decides_where_to_begin(cluster, option):
    assert "--group decides" in failure(*READ[:4], *option, code=2, cluster=cluster)


# Listing and describing


def test_groups_are_listed_and_described(cluster):
    done(*READ, "-n", 2, cluster=cluster)
    done("groups", "reset-offsets", "manual", "--topic", "orders", "--to-latest", "--execute", cluster=cluster)
    assert done("groups", "list", cluster=cluster) == "g\nmanual\n"
    assert json.loads(done("groups", "list", "--json", cluster=cluster)) == ["g", "manual"]
    assert done("groups", "list", "--state", cluster=cluster).splitlines() == [
        "group   state",
        "g       Empty",
        "manual  Empty",
    ]
    states = json.loads(done("groups", "list", "--state", "--json", cluster=cluster))
    assert states[0] == {"group": "g", "state": "Empty"}
    assert done("groups", "describe", cluster=cluster).splitlines() == [
        "g: Empty, no members, generation 2",
        HEADER,
        "orders          0          2          0        5    3  -       -     -",
        "",
        "manual: Empty, no members, generation 0",
        HEADER,
        "orders          0          5          0        5    0  -       -     -",
    ]
    assert done("groups", "describe", "g", "--state", cluster=cluster).splitlines() == [
        "group  state  generation  assignor  members",
        "g      Empty           2  -               0",
    ]
    assert done("groups", "describe", "g", "--members", cluster=cluster) == "g: Empty, no members, generation 2\n"


def test_a_group_that_can_not_be_understood_is_shown_beside_the_others(cluster):
    done(*READ, "-n", 1, cluster=cluster)
    open_cluster(cluster).store.put("groups/bad/generations/00000000000000000001.json", b"{")
    for command in ("list", "list --state", "describe", "describe --json"):
        result = run("groups", *command.split(), cluster=cluster)
        assert result.exit_code == 3
        assert result.stderr.startswith("sparklog: error: group bad: ")
        assert "groups/bad/generations/00000000000000000001.json" in result.stderr
    assert run("groups", "list", cluster=cluster).stdout.split() == ["bad", "g"]
    assert run("groups", "list", "--state", cluster=cluster).stdout.split()[2:] == ["bad", "Unknown", "g", "Empty"]
    assert "\ng: Empty" in run("groups", "describe", cluster=cluster).stdout
    bad, good = json.loads(run("groups", "describe", "--json", cluster=cluster).stdout)
    assert (bad["state"], good["error"]) == ("Unknown", None)
    assert "groups/bad" in bad["error"]
    assert "groups/bad" in failure("groups", "describe", "g", "bad", cluster=cluster)


def test_members_are_shown_while_they_live(cluster):
    names: dict[str, Any] = {
        "group_id": "g",
        "client_id": "shop",
        "group_instance_id": "i",
        "auto_offset_reset": "earliest",
    }
    times: dict[str, Any] = {"heartbeat_interval_ms": 50, "session_timeout_ms": 60_000}
    with Consumer("orders", cluster=cluster, **names, **times) as one:
        while not one.poll(timeout_ms=100):
            pass
        one.commit()
        line, header, member = done("groups", "describe", "g", "--members", cluster=cluster).splitlines()
        assert line == "g: Stable, 1 member, generation 1, assigned by range"
        assert header.split() == ["member", "instance", "client", "host", "partitions", "assignment"]
        member_id, *rest, count, assignment = member.split()
        assert (rest[:2], count, assignment) == (["i", "shop"], "1", "orders(0)")
        *_, partition = done("groups", "describe", "g", "--offsets", cluster=cluster).splitlines()
        assert partition.split()[:6] == ["orders", "0", "5", "0", "5", "0"]
        assert partition.split()[6] == member_id
        [found] = json.loads(done("groups", "describe", "--json", cluster=cluster))
        assert (found["state"], found["generation"], found["assignor"]) == ("Stable", 1, "range")
        assert found["members"][0]["assignment"] == found["members"][0]["target_assignment"] == {"orders": [0]}
        assert found["partitions"][0]["lag"] == 0
        assert "'g' has members" in failure(
            "groups", "reset-offsets", "g", "--all-topics", "--to-earliest", cluster=cluster
        )
        assert "subscribes to it" in failure(
            "groups", "delete-offsets", "g", "--topic", "orders", "--yes", cluster=cluster
        )


def test_a_group_that_is_not_there(cluster):
    for command in (("describe", "nosuch"), ("delete", "nosuch", "--yes"), ("describe", "nosuch", "--state")):
        assert failure("groups", *command, cluster=cluster) == "sparklog: error: unknown group: 'nosuch'"
    assert done("groups", "list", cluster=cluster) == done("groups", "describe", cluster=cluster) == ""


# Resetting


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "offset"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 5),
        (("--to-current",), 3),
        (("--to-offset", 4), 4),
        (("--shift-by", -2), 1),
        (("--shift-by", 1), 4),
        (("--to-datetime", "1970-01-01T00:00:01.500Z"), 2),
        (("--to-datetime", 4_000), 4),
    ],
)
def test_offsets_are_shown_first_and_then_set(cluster, place, offset):
    reset(cluster, "--topic", "orders", "--to-offset", 3, "--execute")
    table = [
        "group  topic   partition  current  new",
        f"g      orders          0        3    {offset}",
    ]
    shown = run("groups", "reset-offsets", "g", "--all-topics", *place, cluster=cluster)
    assert (shown.exit_code, shown.stdout.splitlines()) == (0, table)
    assert shown.stderr == "nothing was changed: --execute does it\n"
    assert committed(cluster) == {("orders", 0): 3}
    result = run("groups", "reset-offsets", "g", "--all-topics", *place, "--execute", cluster=cluster)
    assert (result.stdout.splitlines(), result.stderr) == (table, "")
    assert committed(cluster) == {("orders", 0): offset}


def test_an_offset_outside_of_the_log_is_moved_to_its_end(cluster):
    done("topics", "delete-records", "orders", "--before-offset", 2, cluster=cluster)
    for asked, taken in ((9, "9 is beyond the log end, 5 is taken"), (1, "1 is below the log start, 2 is taken")):
        result = run("groups", "reset-offsets", "g", "--topic", "orders", "--to-offset", asked, cluster=cluster)
        assert f"orders-0: {taken}\n" in result.stderr
    assert done("groups", "list", cluster=cluster) == ""


def test_what_was_exported_can_be_read_again(cluster, tmp_path):
    reset(cluster, "--topic", "orders", "--topic", "audit:0", "--to-latest", "--execute")
    text = reset(cluster, "--all-topics", "--to-current", "--export")
    assert text == "audit,0,0\norders,0,5\n"
    file = tmp_path / "offsets.csv"
    file.write_text(text.replace("5", "2"))
    rows = json.loads(reset(cluster, "--from-file", file, "--execute", "--json"))
    orders = {"group": "g", "topic": "orders", "partition": 0, "current_offset": 5, "new_offset": 2}
    assert rows[1] == orders
    assert committed(cluster) == {("audit", 0): 0, ("orders", 0): 2}
    assert reset(cluster, "--from-file", "-", "--export", input="\norders,0,1\n") == "orders,0,1\n"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("orders,0,1\norders,0\n", "line 2: got orders,0, expected topic,partition,offset"),
        ("orders,0,-1\n", "line 1: got orders,0,-1"),
        ("orders,0,1\norders,0,2\n", "line 2: partition orders-0 is there twice"),
        ("orders,7,1\n", "no partition 7"),
        ("nosuch,0,1\n", "unknown topic"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(cluster, lines, problem):
    told = failure("groups", "reset-offsets", "g", "--from-file", "-", "--execute", cluster=cluster, input=lines)
    assert problem in told
    assert done("groups", "list", cluster=cluster) == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--all-topics",), "Where to?"),
        (("--all-topics", "--to-earliest", "--to-offset", 3), "Where to?"),
        (("--to-earliest",), "Of which topics?"),
        (("--to-earliest", "--all-topics", "--topic", "orders"), "Of which topics?"),
        (("--from-file", "-", "--all-topics"), "leave out --topic"),
        (("--to-earliest", "--all-topics", "--execute", "--dry-run"), "not both"),
        (("--to-earliest", "--all-topics", "--export", "--json"), "not both"),
        (("--to-datetime", "soon", "--all-topics"), "expected a time"),
        (("--to-earliest", "--topic", "orders:x"), "expected TOPIC, or TOPIC:0,1"),
    ],
)
def test_wrong_usage_of_a_reset(cluster, arguments, problem):
    assert problem in failure("groups", "reset-offsets", "g", *arguments, code=2, cluster=cluster)


def test_what_can_not_be_reset(cluster):
    shift = ("groups", "reset-offsets", "g", "--topic", "orders", "--shift-by", "1")
    assert "orders-0 can't be shifted" in failure(*shift, cluster=cluster)
    assert "has no partition 1" in failure(
        "groups", "reset-offsets", "g", "--topic", "orders:0,1", "--to-latest", "--execute", cluster=cluster
    )
    unknown = failure("groups", "reset-offsets", "nosuch", "--all-topics", "--to-latest", cluster=cluster)
    assert "unknown group: 'nosuch'" in unknown


# Deleting


def test_offsets_and_groups_are_deleted(cluster):
    reset(cluster, "--topic", "orders", "--topic", "audit", "--to-earliest", "--execute")
    assert "give --yes" in failure("groups", "delete-offsets", "g", "--topic", "audit", code=2, cluster=cluster)
    assert done("groups", "delete-offsets", "g", "--topic", "audit:0", "--yes", cluster=cluster) == ""
    assert committed(cluster) == {("orders", 0): 0}
    assert "give --yes" in failure("groups", "delete", "g", code=2, cluster=cluster)
    told = failure("groups", "delete", "g", "nosuch", "--yes", cluster=cluster)
    assert told == "sparklog: error: unknown group: 'nosuch' (done: g)"
    assert done("groups", "list", cluster=cluster) == ""


def test_names_are_completed(cluster, monkeypatch):
    for group in ("billing", "backup", "audit"):
        done("groups", "reset-offsets", group, "--topic", "orders", "--to-latest", "--execute", cluster=cluster)
    context, name = click.Context(groups), groups.commands["delete"].params[0]
    monkeypatch.setenv("SPARKLOG_CLUSTER", cluster)
    assert complete_groups(context, name, "b") == ["backup", "billing"]
    monkeypatch.setenv("SPARKLOG_CLUSTER", "memory://nosuch")
    assert complete_groups(context, name, "b") == []
