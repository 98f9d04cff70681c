"""Alerts and dashboards name what the exporter shows, and each alert has a runbook and a test."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from sparklog.exporter import CLUSTER_METRICS, EXPORTER_METRICS, STORE_METRICS, Metric, metric_names
from sparklog.gateway.figures import GATEWAY_METRICS

REPOSITORY = Path(__file__).parent.parent.parent
PROMETHEUS = REPOSITORY / "deploy" / "prometheus"
RULES = (PROMETHEUS / "rules.yml").read_text()
RULES_TEST = (PROMETHEUS / "rules_test.yml").read_text()
DASHBOARDS = sorted((REPOSITORY / "deploy" / "grafana").glob("*.json"))
ALERTS = re.findall(r"- alert: (\w+)", RULES)
OWN_LABELS = {"job", "instance", "severity", "alertname"}
"""Labels that Prometheus or the rules give."""
OF_CLIENTS = {"client_id", "client"}
"""Labels of the same metrics where clients show them (``sparklog.prometheus``)."""
EXPORTED: tuple[Metric[Any], ...] = (*CLUSTER_METRICS, *EXPORTER_METRICS, *STORE_METRICS, *GATEWAY_METRICS)
NAMES = metric_names() | {one.name for one in GATEWAY_METRICS}
LABELS = (OWN_LABELS | OF_CLIENTS).union(*(one.labels for one in EXPORTED))
METRIC = re.compile(r"\b(?:kafka|sparklog)_[a-z_]+")


def panels(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["panels"]
    return found


def expressions(path: Path) -> list[str]:
    return [target["expr"] for panel in panels(path) for target in panel.get("targets", ())]


def labels_of(text: str) -> set[str]:
    """Labels by which an expression groups or joins, which it selects by, or which a text shows."""
    lists = re.findall(r"\b(?:by|without|on|ignoring) \(([^)]*)\)", text)
    named = {name.strip() for each in lists for name in each.split(",")}
    return named | set(re.findall(r"(\w+)=~?\"", text)) | set(re.findall(r"\$labels\.(\w+)", text))


@pytest.mark.parametrize("path", [PROMETHEUS / "rules.yml", PROMETHEUS / "rules_test.yml", *DASHBOARDS], ids=str)
def test_every_metric_and_label_is_exported(path: Path) -> None:
    text = "\n".join(expressions(path)) if path.suffix == ".json" else path.read_text()
    assert set(METRIC.findall(text)) <= NAMES
    assert labels_of(text) <= LABELS
    assert len(set(METRIC.findall(text))) > 5


def test_a_metric_that_is_not_exported_would_be_found() -> None:
    assert set(METRIC.findall("rate(kafka_topic_partition_offset[5m])")) - NAMES
    assert labels_of('sum by (topic, group) (x{topics="a"})') - LABELS == {"group", "topics"}


def test_the_page_names_every_metric_and_no_other() -> None:
    page = (REPOSITORY / "docs" / "monitoring.md").read_text().partition("\n## Producers and consumers\n")[0]
    assert set(re.findall(r"`((?:kafka|sparklog)_[a-z_]+)`", page)) == NAMES


def test_every_alert_has_a_runbook() -> None:
    page = (REPOSITORY / "docs" / "operations.md").read_text()
    assert re.findall(r"^### (Sparklog\w+)$", page, re.MULTILINE) == ALERTS
    runbooks = re.findall(r"runbook: (\S+)", RULES)
    assert runbooks == [f"docs/operations.md#{name.lower()}" for name in ALERTS]
    assert len(re.findall("severity: (?:warning|critical)}", RULES)) == len(ALERTS)
    assert len(re.findall("summary: ", RULES)) == len(ALERTS)


def test_every_alert_is_played_until_it_fires() -> None:
    fired = re.findall(r"alertname: (\w+)\n +exp_alerts:\n +- exp_labels", RULES_TEST)
    assert sorted(set(fired)) == sorted(ALERTS)


def test_for_every_alert_the_thing_happens_in_a_process() -> None:
    text = Path(__file__).with_name("test_rules_in_processes.py").read_text()
    assert sorted(set(re.findall(r'assert_fires\(\s*"(\w+)"', text))) == sorted(ALERTS)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_a_dashboard_is_whole(path: Path) -> None:
    found = panels(path)
    assert len({panel["id"] for panel in found}) == len(found)
    assert all(panel["targets"] for panel in found if panel["type"] != "row")
    variables = {one["name"] for one in json.loads(path.read_text())["templating"]["list"]}
    used = {name for text in expressions(path) for name in re.findall(r"\$(\w+)", text)}
    assert used - {"__rate_interval"} <= variables
    for one, other in combinations((panel["gridPos"] for panel in found), 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )


def test_grafana_is_provisioned_with_what_is_there() -> None:
    """What each variable stands for is in the page; the folder of dashboards has no other JSON."""
    folder, page = (
        REPOSITORY / "deploy" / "grafana" / "provisioning",
        (REPOSITORY / "docs" / "monitoring.md").read_text(),
    )
    texts = {path.parent.name: path.read_text() for path in folder.rglob("*.yml")}
    assert {"type: prometheus", "url: $SPARKLOG_PROMETHEUS"} <= set(map(str.strip, texts["datasources"].splitlines()))
    assert {"type: file", "path: $SPARKLOG_DASHBOARDS"} <= set(map(str.strip, texts["dashboards"].splitlines()))
    assert "`SPARKLOG_PROMETHEUS`" in page
    assert "`SPARKLOG_DASHBOARDS`" in page
    assert [*(REPOSITORY / "deploy" / "grafana").rglob("*.json")] == DASHBOARDS


def test_gateways_are_scraped_where_somebody_takes_them_in() -> None:
    """A critical alert fires for a job whose target isn't there."""
    text = (PROMETHEUS / "prometheus.yml").read_text()
    assert re.findall(r"^  - job_name: (\S+)", text, re.MULTILINE) == ["sparklog"]
    assert re.findall(r"^  - job_name: (\S+)", with_gateways(text), re.MULTILINE) == ["sparklog", "sparklog-gateway"]


def with_gateways(text: str) -> str:
    """The configuration with what is commented out in it."""
    return re.sub(r"^  # (?=-|  )", "  ", text, flags=re.MULTILINE)


@pytest.mark.slow
def test_prometheus_takes_the_configuration_with_gateways(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    (tmp_path / "prometheus.yml").write_text(with_gateways((PROMETHEUS / "prometheus.yml").read_text()))
    (tmp_path / "rules.yml").write_text(RULES)
    arguments = [promtool, "check", "config", "prometheus.yml"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_rules_do_as_their_tests_say() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    for arguments in (["check", "config", "prometheus.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run([promtool, *arguments], cwd=PROMETHEUS, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_prometheus_understands_every_expression_of_a_dashboard(path: Path, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    plain = [
        re.sub(r"\$(\w+)", lambda name: "5m" if name[1] == "__rate_interval" else ".*", one)
        for one in expressions(path)
    ]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(plain)]
    file = tmp_path / "rules.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
