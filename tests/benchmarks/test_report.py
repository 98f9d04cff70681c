"""What a run of the benchmarks leaves as JSON."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import __main__ as command
from benchmarks.harness import print_table
from benchmarks.report import Report


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
