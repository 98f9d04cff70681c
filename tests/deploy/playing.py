"""What processes show in their metrics, played to Prometheus' rules: does an alert fire?"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

RULES = Path(__file__).parent.parent.parent / "deploy" / "prometheus" / "rules.yml"
USED = {"up", *re.findall(r"\b(?:kafka|sparklog)_[a-z_]+", RULES.read_text())}
"""The metrics of which a rule knows."""
WAIT_S = 120.0
_TIME = "_timestamp_seconds"
_LONG = 1_000
"""Beyond so many minutes rules are evaluated more rarely: promtool takes long."""

Series = tuple[str, tuple[tuple[str, str], ...]]
_Expected = tuple[str, int, list[dict[str, object]]]
"""An expression, the minute at which it is asked, and the samples that it has."""


@dataclass(frozen=True)
class Scrape:
    """What a target showed at one moment, as Prometheus would store it."""

    job: str
    at_s: float
    """Since the epoch."""
    values: Mapping[Series, float]
    """Of the metrics that rules use, by name and labels; ``up`` too."""
    counters: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> float:
        """The sum over the labels; 0 without any."""
        return sum(value for (metric, _), value in self.values.items() if metric == name)

    def of(self, metric: str, **labels: str) -> float:
        """The sum over the series that have these labels; 0 without any."""
        return sum(
            value
            for (name, found), value in self.values.items()
            if name == metric and labels.items() <= dict(found).items()
        )


def scrape(port: int, job: str) -> Scrape:
    """Ask a process for its metrics. One that can't be reached has none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    except OSError:
        return Scrape(job, time.time(), {("up", ()): 0.0})
    values: dict[Series, float] = {("up", ()): 1.0}
    counters = set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in USED:
                values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
                if family.type == "counter":
                    counters.add(sample.name)
    return Scrape(job, time.time(), values, frozenset(counters))


def scrape_when(port: int, job: str, is_so: Callable[[Scrape], bool]) -> Scrape:
    """Scrape until something is to be seen."""
    until = time.monotonic() + WAIT_S
    while not is_so(found := scrape(port, job)):
        if time.monotonic() > until:
            pytest.fail(f"not seen within {WAIT_S:g} s; the newest: {dict(found.values)}")
        time.sleep(0.2)
    return found


@dataclass(frozen=True, kw_only=True)
class Span:
    """Minutes in which a target shows what it showed at one moment, or goes on as between two moments."""

    first: Scrape
    minutes: int
    then: Scrape | None = None
    """Counters, and what ``growing`` names, go on from here at the rate at which they have grown since ``first``."""
    growing: frozenset[str] = frozenset()
    """Gauges."""


@dataclass
class _Line:
    values: list[float | None] = field(default_factory=list)
    """For each minute; None: there is no sample."""
    shift: float = 0.0
    """A counter's played value less the one that was scraped."""

    def text(self) -> str:
        """The values in promtool's notation. Where samples end, a target was scraped without them, or not at all."""
        found, is_there = [], False
        for value in self.values:
            if value is None:
                found.append("stale" if is_there else "_")
            else:
                found.append(f"{value:f}")
            is_there = value is not None
        return " ".join(found)


def _rate(span: Span, series: Series) -> float:
    """By how much a series grows in a minute."""
    then = span.then
    if then is None or not (series[0] in then.counters or series[0] in span.growing):
        return 0.0
    before = span.first.values.get(series, 0.0 if series[0] in then.counters else then.values[series])
    return 60 * (then.values[series] - before) / (then.at_s - span.first.at_s)


def lines_of(spans: Sequence[Span]) -> dict[Series, _Line]:
    """Each series' value for each minute of all spans, one after the other. Times are moved to the minutes that are
    played; a counter goes on where the span before left it, unless it began anew."""
    lines: dict[Series, _Line] = {}
    begins = 0
    for before, span in pairwise([None, *spans]):
        assert span is not None
        shown, last = span.then or span.first, None if before is None else before.then or before.first
        for series, value in shown.values.items():
            line = lines.setdefault(series, _Line())
            line.values += [None] * (begins - len(line.values))
            known = None if last is None else last.values.get(series)
            if series[0] in shown.counters and known is not None and known <= value and line.values[-1] is not None:
                line.shift = line.values[-1] - known
            else:
                line.shift = 60.0 * begins - shown.at_s if series[0].endswith(_TIME) else 0.0
            grown = _rate(span, series)
            line.values += [value + line.shift + grown * minute for minute in range(span.minutes)]
        begins += span.minutes
        for line in lines.values():
            line.values += [None] * (begins - len(line.values))
    return lines


def assert_fires(
    alert: str,
    labels: Mapping[str, str] | None = None,
    *,
    healthy: Sequence[Span],
    sick: Sequence[Span],
    never: Mapping[str, str] | None = None,
) -> None:
    """Fail unless an alert fires at the end of all spans, and not at the end of the healthy ones.

    Args:
        labels: of the alert.
        never: labels of such an alert that fires at neither end.
    """
    fires, is_there = _firing({"alertname": alert, **(labels or {})}), [{"labels": "{}", "value": 1}]
    ends = [_minutes(spans) - 1 for spans in (healthy, [*healthy, *sick])]
    expected: list[_Expected] = [(fires, ends[0], []), (f"count({fires})", ends[1], is_there)]
    if never is not None:
        expected += [(_firing({"alertname": alert, **never}), end, []) for end in ends]
    _play([*healthy, *sick], expected)


def assert_none_fires(spans: Sequence[Span]) -> None:
    """Fail if any alert fires at the end of spans."""
    _play(spans, [(_firing({}), _minutes(spans) - 1, [])])


def _minutes(spans: Sequence[Span]) -> int:
    return sum(span.minutes for span in spans)


def _play(spans: Sequence[Span], expected: Sequence[_Expected]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    target = {"job": spans[-1].first.job, "instance": "a"}
    test = {
        "interval": "1m",
        "input_series": [
            {"series": name + _selector({**dict(labels), **target}), "values": line.text()}
            for (name, labels), line in lines_of(spans).items()
        ],
        "promql_expr_test": [
            {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}
            for expression, minute, samples in expected
        ],
    }
    every = "1m" if _minutes(spans) < _LONG else "5m"
    played = json.dumps({"rule_files": [str(RULES)], "evaluation_interval": every, "tests": [test]}, indent=1)
    command = [promtool, "test", "rules", "/dev/stdin"]
    done = subprocess.run(command, input=played, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{played[:20_000]}"


def _firing(labels: Mapping[str, str]) -> str:
    return "ALERTS" + _selector({"alertstate": "firing", **labels})


def _selector(labels: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"
