"""What a run of the benchmarks leaves as JSON."""

from __future__ import annotations

import json
import sys
from functools import partial

import pytest

from benchmarks import __main__ as command
from benchmarks.harness import Case, Goal, Usage, compare, print_table
from benchmarks.report import Report, add_target


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
    monkeypatch.setitem(command.BENCHMARKS, "own", lambda quick: print_table(["", "n"], [["quick", str(quick)]]))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "own", "--quick", "--json", str(tmp_path / "found.json")])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert command.main() == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["environment"]["work"] == "a tenth"
    assert found["benchmarks"][0]["tables"] == [{"columns": ["", "n"], "rows": [["quick", "True"]]}]
    assert "(own: " in capsys.readouterr().out


def test_a_file_that_cant_be_written_is_refused_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setitem(command.BENCHMARKS, "own", lambda _: pytest.fail("was run"))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "own", "--json", str(tmp_path / "none" / "found.json")])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(FileNotFoundError):
        command.main()


def test_a_run_ends_with_its_targets_and_what_was_reached(tmp_path, monkeypatch, capsys):
    def own(quick):
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
