"""Metrics under names that dashboards know, in a format that Prometheus reads, however odd the names in them are."""

from __future__ import annotations

import gzip
import re
from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparklog import Admin, OffsetAndMetadata, TopicPartition
from sparklog.compaction.last_runs import note_run
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.exporter import CLUSTER_METRICS, EXPORTER_METRICS, STORE_METRICS, ExporterApp, Metric, metric_names
from sparklog.exporter.text import compressed, lines
from sparklog.log import create_topic
from sparklog.observe import ClusterWatch
from sparklog.observe.watching import Watching
from tests.compaction.support import a_run
from tests.observe.support import Watched, a_member, watched
from tests.support import T0_MS
from tests.txn.support import ANN, Driver, take

# Source: github.com/danielqsj/kafka_exporter, README, "Metrics": what its dashboard, Grafana 7589, and Strimzi's show.
KAFKA_EXPORTER = {
    "kafka_brokers": (),
    "kafka_topic_partitions": ("topic",),
    "kafka_topic_partition_current_offset": ("topic", "partition"),
    "kafka_topic_partition_oldest_offset": ("topic", "partition"),
    "kafka_topic_partition_in_sync_replica": ("topic", "partition"),
    "kafka_topic_partition_leader": ("topic", "partition"),
    "kafka_topic_partition_replicas": ("topic", "partition"),
    "kafka_topic_partition_under_replicated_partition": ("topic", "partition"),
    "kafka_consumergroup_current_offset": ("consumergroup", "topic", "partition"),
    "kafka_consumergroup_current_offset_sum": ("consumergroup", "topic"),
    "kafka_consumergroup_lag": ("consumergroup", "topic", "partition"),
    "kafka_consumergroup_lag_sum": ("consumergroup", "topic"),
    "kafka_consumergroup_members": ("consumergroup",),
}
Samples = dict[tuple[str, tuple[str, ...]], float]


@pytest.fixture
def here() -> Watched:
    return watched()


def an_app(here: Watched) -> tuple[ExporterApp, Watching]:
    app = ExporterApp()
    watching = Watching(
        lambda: ClusterWatch(here.cluster, patience_ms=0, orphans_every_ms=0),
        interval_ms=15_000,
        on_figures=app.keep,
        clock=here.clock,
    )
    app.watch(watching)
    return app, watching


def samples(text: str) -> Samples:
    """What Prometheus' own parser reads."""
    return {
        (one.name, tuple(one.labels.values())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def scraped(app: ExporterApp) -> Samples:
    return samples(app.respond("/metrics").body.decode())


def a_full_cluster(here: Watched) -> None:
    """Every metric has a row."""
    for name in ("t", "u"):
        create_topic(here.cluster.topic_log(name), name)
    writer = here.topic("orders", num_partitions=2)
    here.append(writer, "a", "b", timestamp_ms=T0_MS - 8_000)
    here.append(writer, "c", timestamp_ms=T0_MS - 4_000, partition=1)
    write_checkpoint(here.cluster.topic_log("orders"))
    with Admin(here.cluster) as admin:
        partitions = [TopicPartition("orders", number) for number in range(2)]
        admin.alter_group_offsets("g", dict.fromkeys(partitions, OffsetAndMetadata(0)))
    take(here.cluster, ANN)
    driver = Driver(here.cluster).init()
    driver.begin()
    driver.send_offset(6)
    here.memory.put("maintenance/notes.json", b"")
    note_run(here.cluster, a_run(failed_count=1, topic_count=1), failed_topics=["torn"])
    a_member(here, "stuck", "orders", session_timeout_ms=600_000, reads_from_start=True)
    here.topic("torn")
    here.memory.put("topics/torn/_delta_log/00000000000000000001.json", b"{")
    here.clock.advance(100_000)


def test_names_of_kafka_exporter_are_there_with_its_labels(here: Watched) -> None:
    ours = {metric.name: metric.labels for metric in CLUSTER_METRICS if metric.name.startswith("kafka_")}
    assert ours == KAFKA_EXPORTER
    told = [(one.name, one.kind, one.help) for one in CLUSTER_METRICS]
    told += [(one.name, one.kind, one.help) for one in EXPORTER_METRICS]
    told += [(one.name, one.kind, one.help) for one in STORE_METRICS]
    for name, kind, text in told:
        assert re.fullmatch("(kafka|sparklog)_[a-z_]+", name)
        assert (kind == "counter") == name.endswith("_total")
        assert text.endswith((".", "?"))


def test_figures_are_under_their_names(here: Watched) -> None:
    a_full_cluster(here)
    app, watching = an_app(here)
    watching.look()
    found = scraped(app)
    assert found["kafka_topic_partition_current_offset", ("orders", "0")] == 2
    assert found["kafka_consumergroup_lag", ("g", "orders", "0")] == 2
    assert found["kafka_consumergroup_lag_sum", ("g", "orders")] == 3
    assert found["sparklog_consumergroup_lag_seconds", ("g", "orders", "0")] == 108
    assert found["sparklog_consumergroup_lag_seconds", ("g", "orders", "1")] == 104
    assert found["sparklog_topic_commits_total", ("orders",)] == 3
    assert found["sparklog_topic_commit_timestamp_seconds", ("orders",)] == T0_MS / 1_000
    assert found["sparklog_topic_checkpoint_age_seconds", ("orders",)] == 100
    assert found["sparklog_unreadable", ("topic", "torn")] == 1
    assert found["sparklog_transaction_overdue", ("tx", "Ongoing")] == 1
    assert found["sparklog_transactional_ids", ("Ongoing",)] == 1
    assert found["sparklog_up", ()] == 1
    names = {name for name, _ in found}
    assert found["sparklog_store_requests_total", ("list",)] >= 4
    of_a_folder = {f"sparklog_disk_{name}" for name in ("free_bytes", "size_bytes", "free_inodes", "inodes")}
    assert metric_names() - names == of_a_folder | {"sparklog_exporter_left_out_series"}
    assert found["sparklog_topic_maintenance_failed_runs_total", ("torn",)] == 1
    assert found["sparklog_maintenance_failed_runs_total", ()] == 1
    assert found["sparklog_consumergroup_uncommitted_records", ("stuck", "orders")] == 3
    assert found["sparklog_consumergroup_subscribed", ("stuck", "orders")] == 1
    assert names <= metric_names()


def test_a_scrape_calls_no_store_and_says_how_old_it_is(here: Watched) -> None:
    here.append(here.topic("t"), "a")
    app, watching = an_app(here)
    assert scraped(app) == {
        ("sparklog_up", ()): 0,
        ("sparklog_exporter_looks_total", ()): 0,
        ("sparklog_exporter_failed_looks_total", ()): 0,
    }
    watching.look()
    here.failing.is_away = True
    here.requests()
    before = scraped(app)
    assert here.requests() == 0
    for _ in range(2):
        here.clock.advance(15_000)
        watching.look()
    found = scraped(app)
    assert found.pop(("sparklog_store_errors_total", ("list",))) == 2
    assert (
        found.pop(("sparklog_store_requests_total", ("list",)))
        == before["sparklog_store_requests_total", ("list",)] + 2
    )
    changed = {name: value for (name, _), value in found.items() if before[name, _] != value}
    assert changed == {
        "sparklog_up": 0,
        "sparklog_exporter_look_age_seconds": 30,
        "sparklog_exporter_looks_total": 3,
        "sparklog_exporter_failed_looks_total": 2,
    }
    here.failing.is_away = False
    watching.look()
    assert scraped(app)["sparklog_up", ()] == 1


def test_a_compressed_answer_is_the_same_text(here: Watched) -> None:
    a_full_cluster(here)
    app, watching = an_app(here)
    watching.look()
    response = app.respond("/metrics", accepts_gzip=True)
    assert response.is_gzip
    assert gzip.decompress(response.body) == app.respond("/metrics").body
    assert app.respond("/metrics").content_type.startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize("label", ['a"b', "a\\b", "a\nb", "ä }", "{x=", ""])
def test_any_label_is_read_back_as_it_was(label: str) -> None:
    metric: Metric[str] = Metric("m", 'help "with" \\ and\nlines', ("l",), lambda value: [((value,), 1.5)])
    assert samples("".join(lines([metric], label))) == {("m", (label,)): 1.5}


def test_compressed_lines_are_whole_however_many() -> None:
    texts = [f"{number}\n" for number in range(10_000)]
    assert gzip.decompress(compressed(iter(texts))).decode() == "".join(texts)


def test_health_tells_whether_to_restart_and_whether_to_trust(here: Watched) -> None:
    here.topic("t")
    app, watching = an_app(here)
    assert [app.respond(path).status for path in ("/healthz", "/readyz")] == [200, 503]
    watching.look()
    assert [app.respond(path).status for path in ("/healthz", "/readyz")] == [200, 200]
    here.failing.is_away = True
    here.clock.advance(60_000)
    watching.look()
    assert app.respond("/readyz").status == 200
    here.clock.advance(90_000)
    watching.look()
    response = app.respond("/readyz")
    assert response.status == 503
    assert b"the store is away" in response.body
    assert app.respond("/healthz").status == 200
    here.clock.advance(3_600_000)
    assert app.respond("/healthz").status == 503
    assert app.respond("/nosuch").status == 404
    assert b"/metrics" in app.respond("/").body


def test_a_store_that_answers_nothing_is_not_up_though_the_newest_look_succeeded(here: Watched) -> None:
    """✗ A server of files hangs: no look fails, as none ends, and the last one went well."""
    here.append(here.topic("t"), "a")
    _, watching = an_app(here)
    watching.look()
    counts = here.cluster.store.counts
    counts.begun(here.clock.ticks_ms())
    here.clock.advance(29_000)
    assert watching.status().is_up
    counts.answered(here.clock.ticks_ms())  # a look that takes its time: another of its calls is answered
    here.clock.advance(29_000)
    assert watching.status().is_up
    here.clock.advance(1_000)
    assert not watching.status().is_up
    counts.ended()
    counts.answered(here.clock.ticks_ms())
    here.clock.advance(3_600_000)  # nobody asks
    assert watching.status().is_up


def test_a_look_that_fails_for_an_unknown_reason_ends_no_thread(
    here: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> ClusterWatch:
        raise RuntimeError("a mistake")

    watching = Watching(broken, interval_ms=1_000, clock=here.clock)
    watching.look()
    assert isinstance(watching.status().error, RuntimeError)
    assert "a mistake" in caplog.text
    assert not watching.status().is_up


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_look_that_meets_what_is_no_exception_ends_the_callers_but_not_the_thread(
    here: Watched, error: type[BaseException]
) -> None:
    def broken() -> ClusterWatch:
        raise error("a panic")

    watching = Watching(broken, interval_ms=1, clock=here.clock)
    with pytest.raises(error):
        watching.look()
    watching.start()
    assert watching.wait_for_look(60, beyond=1)
    assert "a panic" in str(watching.status().error)
    watching.stop()


def test_series_of_a_metric_are_bounded_and_it_is_told_how_many_are_left_out(here: Watched) -> None:
    for name in ("second", "third"):
        create_topic(here.cluster.topic_log(name), name)
    whole, watching = an_app(here)
    watching.look()
    figures = watching.status().figures
    assert figures is not None
    bounded = ExporterApp(most_series=2)
    for app in (bounded, whole):
        app.keep(figures)
    own = {*[metric.name for metric in EXPORTER_METRICS], *[metric.name for metric in STORE_METRICS]}
    shown, all_ = ({key: value for key, value in scraped(app).items() if key[0] not in own} for app in (bounded, whole))
    counts = Counter(name for name, _ in all_)
    assert max(counts.values()) > 2
    for name, count in counts.items():
        assert sum(one == name for one, _ in shown) == min(count, 2)
        left_out = shown.get(("sparklog_exporter_left_out_series", (name,)))
        assert left_out == (count - 2 if count > 2 else None)
    assert set(shown) - set(all_) == {key for key in shown if key[0] == "sparklog_exporter_left_out_series"}
    assert not any(name == "sparklog_exporter_left_out_series" for name, _ in all_)
