"""What a run of the benchmarks leaves as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager
from functools import partial

import pytest

from benchmarks import __main__ as command
from benchmarks.extent import Extent
from benchmarks.harness import Case, Goal, Running, Usage, compare, print_table
from benchmarks.processes import tree_cpu_seconds
from benchmarks.report import Report, add_target
from benchmarks.shared import lent, sharing


def burn() -> None:
    """Take 0.2 s of CPU time when told to, and end when told to."""
    input()
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    print("burnt", flush=True)
    input()


def test_a_section_has_its_lines_and_tables(capsys):
    report = Report({"machine": "ours"})
    with report.section("send") as section:
        print("Sending")
        print_table(["", "per s"], [["sparklog", "1,000"]])
    print("behind it")
    assert section.seconds > 0
    assert section.others_cores is None or section.others_cores >= 0
    found = json.loads(json.dumps(report.as_json()))
    assert found["environment"] == {"machine": "ours"}
    [sending] = found["benchmarks"]
    assert sending["name"] == "send"
    assert sending["tables"] == [{"columns": ["", "per s"], "rows": [["sparklog", "1,000"]]}]
    assert sending["lines"][0] == "Sending"
    assert len(sending["lines"]) == 3
    assert capsys.readouterr().out.splitlines() == [*sending["lines"], "behind it"]


def test_a_run_writes_json_and_says_how_busy_the_machine_was(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(command.BENCHMARKS, "own", lambda extent: print_table(["", "n"], [["of", extent.name]]))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "own", "--quick", "--json", str(tmp_path / "found.json")])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert command.main() == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["environment"]["work"] == Extent.QUICK.value
    assert found["benchmarks"][0]["tables"] == [{"columns": ["", "n"], "rows": [["of", "QUICK"]]}]
    assert found["seconds"] >= found["benchmarks"][0]["seconds"]
    assert {"cpu_s", "others_cores"} <= {*found, *found["benchmarks"][0]}
    assert "(own: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "extent"), [([], Extent.USUAL), (["--quick"], Extent.QUICK), (["--full"], Extent.FULL)]
)
def test_a_run_is_usual_quick_or_full(monkeypatch, option, extent):
    seen: list[Extent] = []
    monkeypatch.setitem(command.BENCHMARKS, "own", seen.append)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "own", *option])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert command.main() == 0
    assert seen == [extent]


@pytest.mark.parametrize(
    ("option", "seen"), [([], ["age"]), (["--quick"], ["age", "burst"]), (["--full"], ["age", "burst"])]
)
def test_a_run_of_all_leaves_out_what_has_no_target(monkeypatch, capsys, option, seen):
    ran = []
    for name in [*command.BENCHMARKS]:
        if name in ("age", "burst"):
            monkeypatch.setitem(command.BENCHMARKS, name, lambda extent, name=name: ran.append(name))
        else:
            monkeypatch.delitem(command.BENCHMARKS, name)
    monkeypatch.setattr(sys, "argv", ["benchmarks", *option])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert command.main() == 0
    assert ran == seen
    assert ("Left out" in capsys.readouterr().out) == (option == [])


def test_what_is_left_out_is_there():
    assert {*command.WITHOUT_TARGETS} <= {*command.BENCHMARKS}


def test_a_run_ends_with_the_time_of_each_benchmark_and_of_all(monkeypatch, capsys):
    for name in ("one", "other"):
        monkeypatch.setitem(command.BENCHMARKS, name, lambda extent: None)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "one", "other"])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert command.main() == 0
    times = capsys.readouterr().out.partition("\nTimes\n")[2].splitlines()
    assert [line.split()[0] for line in times[1:4]] == ["one", "other", "all,"]
    assert times[-1].endswith(" minutes")


def test_what_a_run_shares_is_made_once_and_gone_at_its_end():
    steps = []

    @contextmanager
    def make():
        steps.append("made")
        yield len(steps)
        steps.append("gone")

    with sharing():
        for _ in range(2):
            with lent("thing", make) as found:
                assert found == 1
        assert steps == ["made"]
    assert steps == ["made", "gone"]
    with lent("thing", make):
        pass
    assert steps == ["made", "gone", "made", "gone"]


def test_cpu_time_of_a_process_that_runs_on_is_its_parents_too():
    """What a broker takes isn't taken for other processes."""
    with Running(burn) as burning:
        before = tree_cpu_seconds(os.getpid())
        burning.say("begin")
        burning.hear()
        assert tree_cpu_seconds(os.getpid()) - before >= 0.15
        burning.say("end")


def test_a_file_that_cant_be_written_is_refused_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setitem(command.BENCHMARKS, "own", lambda _: pytest.fail("was run"))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "own", "--json", str(tmp_path / "none" / "found.json")])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(FileNotFoundError):
        command.main()


def test_a_run_ends_with_its_targets_and_what_was_reached(tmp_path, monkeypatch, capsys):
    def own(extent):
        add_target("idle, % of a core", 1, 0.5, is_at_most=True)
        add_target("not there", 2, float("nan"))
        peer, ours, other = (
            Case(name, partial(Usage, 10, seconds, 2 * seconds), is_peer=name == "peer")
            for name, seconds in (("peer", 3.0), ("ours", 1.0), ("other", 0.1))
        )
        monkeypatch.setattr("benchmarks.harness.warm_memory", lambda: None)
        compare([peer, ours, other], [Goal("send", "ours", cpu=3.5, wall=2)])

    monkeypatch.setitem(command.BENCHMARKS, "own", own)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "own", "--json", str(tmp_path / "found.json")])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert command.main() == 0
    targets = json.loads((tmp_path / "found.json").read_text())["benchmarks"][0]["targets"]
    assert [(one["name"], one["wanted"], one["reached"], one["is_met"]) for one in targets] == [
        ("idle, % of a core", "≤ 1", "0.50", True),
        ("not there", "≥ 2", "not measured", False),
        ("send: CPU, × peer", "≥ 3.5", "3.00", False),
        ("send: wall, × peer", "≥ 2", "3.00", True),
    ]
    table = capsys.readouterr().out.partition("\nTargets\n")[2].splitlines()
    assert [line.split()[-1] for line in table[1:5]] == ["met", "measured", "met", "met"]
    assert "not met" in table[3]
