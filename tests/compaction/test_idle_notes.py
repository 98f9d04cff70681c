"""Topics in which nothing is due cost three requests, and nothing that becomes due is ever passed over."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from sparklog.compaction import MaintenanceReport, OptimizePolicy, Step, maintain
from sparklog.compaction.idle_notes import TopicNote, read_notes
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.names import entry_path
from sparklog.errors import StorePermissionError
from sparklog.log import Cluster
from sparklog.log.state import load_state
from sparklog.log.topic import alter_topic, create_topic, delete_records, delete_topic
from sparklog.paths import MAINTENANCE_NOTES
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock, WrappedStore
from tests.compaction.support import append_at, append_pairs, live, pairs_of, stored
from tests.depth import each_nth
from tests.support import DAY_MS, T0_MS, a_writer, append, foreign_commit, foreign_entry, unsequenced_file, versions_of
from tests.txn.support import Driver, a_cluster, data_files

HOUR_MS = DAY_MS // 24
POLICY = OptimizePolicy(min_files=4)


def a_world(count: int = 3, **configs: object) -> tuple[MemoryStore, ManualClock, Cluster]:
    """So many topics of a record each."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, clock)
    for number in range(count):
        log = cluster.topic_log(f"t{number}")
        create_topic(log, f"t{number}", configs=configs)
        append_at(a_writer(log, topic=f"t{number}"), T0_MS, "x")
    return memory, clock, cluster


def looked_at(report: MaintenanceReport) -> list[str]:
    """The topics that weren't passed over."""
    assert report.failures == []
    return [topic.topic for topic in report.topics if not topic.unchanged]


def calls(memory: MemoryStore, clock: ManualClock, **more: object) -> dict[str, int]:
    """The calls of one run."""
    store = CountingStore(memory)
    assert maintain(a_cluster(store, clock), **more).failures == []  # type: ignore[arg-type]
    return store.counts()


# What it costs


@pytest.mark.slow
def test_a_topic_in_which_nothing_is_due_costs_three_requests_and_nothing_is_written() -> None:
    found = {}
    for count in (1, 6):
        memory, clock, cluster = a_world(count)
        writer = a_writer(cluster.topic_log("t0"), topic="t0")
        for number in range(30):
            append(writer, str(number))  # however much is in it
        maintain(cluster)
        maintain(cluster)
        before = {(one.path, one.etag) for one in memory.list("")}
        found[count] = calls(memory, clock)
        assert {(one.path, one.etag) for one in memory.list("")} == before
    assert {name: found[6][name] - found[1][name] for name in found[6]} == {
        "get": 2 * 5,
        "list": 5,
        **dict.fromkeys(("put", "delete"), 0),
    }
    assert sum(found[1].values()) < 20


def test_a_topic_to_which_something_was_appended_is_loaded_once_for_all_steps() -> None:
    memory, clock, cluster = a_world(2)
    maintain(cluster)
    idle = calls(memory, clock)
    append(a_writer(cluster.topic_log("t1"), topic="t1"), "new")
    busy = calls(memory, clock)
    more = {name: busy[name] - idle.get(name, 0) for name in busy}
    # The hint of how large it is, the hint and the three entries of its log; three listings of that, one of them for
    # the marks of cleanups; the notes and runs, which an idle run reads as well.
    assert more == {"get": 5, "list": 3, "put": 2, "delete": 0}


def test_each_topic_is_looked_at_in_full_once_a_day_for_one_listing_more() -> None:
    memory, clock, cluster = a_world(2)
    maintain(cluster)
    few = sum(calls(memory, clock).values())
    clock.advance(DAY_MS)
    assert sum(calls(memory, clock).values()) - few < 2 * 10
    assert sum(calls(memory, clock).values()) == few


def test_transactional_ids_are_looked_at_once_for_all_topics_that_are_vacuumed() -> None:
    """Each topic has files to be swept, and markers of all ids."""
    found = {}
    for topics in (1, 4):
        memory, clock, cluster = a_world(topics)
        names = tuple(f"t{number}" for number in range(topics))
        for number in range(5):
            driver = Driver(cluster, f"id{number}", topics=names).init()
            driver.begin()
            for name in names:
                driver.send(name, "x")
            driver.commit()
            driver.complete()
            driver.session.close()
        left = {f"topics/{name}/partition=0/left.parquet" for name in names}
        for path in left:
            memory.put(path, b"")
        clock.advance(8 * DAY_MS)
        store = FaultyStore(memory)
        assert maintain(a_cluster(store, clock), steps=[Step.VACUUM]).failures == []
        assert left.isdisjoint(one.path for one in memory.list("topics/"))
        found[topics] = Counter(call.op for call in store.calls if call.path.startswith("transactions"))
    assert found[4] == found[1]
    assert found[1]["get"] == 3 * 5  # for the markers, the recovery and the barrier


def test_each_entry_of_a_log_that_is_swept_is_read_once() -> None:
    memory, clock, cluster = a_world(1)
    log = cluster.topic_log("t0")
    memory.put("topics/t0/partition=0/left.parquet", b"")
    clock.advance(8 * DAY_MS)
    writer = a_writer(log, topic="t0")
    for number in range(30):
        append(writer, str(number))
    write_checkpoint(log)
    store = FaultyStore(memory)
    maintain(a_cluster(store, clock), steps=[Step.VACUUM])
    assert data_files(cluster, "t0").isdisjoint({"topics/t0/partition=0/left.parquet"})
    below = {entry_path(log.table, version) for version in versions_of(log) if version < 31}
    assert len(below) == 30
    assert sorted(call.path for call in store.calls if call.op == "get" and call.path in below) == sorted(below)


# What is passed over, and what isn't


@pytest.mark.parametrize(
    "act",
    [
        lambda log: append(a_writer(log, topic="t1"), "y"),
        lambda log: unsequenced_file(log, "y"),
        lambda log: alter_topic(log, "t1", {"retention.ms": 5}),
        lambda log: delete_records(log, "t1", {0: 1}),
        lambda log: delete_topic(log, "t1"),
        lambda log: log.store.put(MAINTENANCE_NOTES, log.store.read(MAINTENANCE_NOTES).replace(b'"t1"', b'"tx"')),
    ],
)
def test_whatever_happens_to_a_topic_it_is_looked_at(act: Callable[..., object]) -> None:
    _, _, cluster = a_world()
    assert looked_at(maintain(cluster)) == ["t0", "t1", "t2"]
    assert looked_at(maintain(cluster)) == []
    act(cluster.topic_log("t1"))
    assert looked_at(maintain(cluster)) == ["t1"]
    again = looked_at(maintain(cluster))
    assert again in ([], ["t1"])
    assert looked_at(maintain(cluster)) == []


def test_what_becomes_due_by_time_alone_is_done_when_it_does() -> None:
    _, clock, cluster = a_world(1, **{"retention.ms": 5 * HOUR_MS})
    maintain(cluster)
    log = cluster.topic_log("t0")
    for hour in range(5):
        assert (hour, len(live(log)), looked_at(maintain(cluster))) == (hour, 1, [])
        clock.advance(HOUR_MS)
    assert looked_at(maintain(cluster)) == []  # exactly five hours
    clock.advance(1)
    assert looked_at(maintain(cluster)) == ["t0"]
    assert live(log) == []


KEYED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 1}


@pytest.mark.parametrize(
    ("configs", "due_after_ms"),
    [
        ({**KEYED, "max.compaction.lag.ms": 3 * HOUR_MS}, 3 * HOUR_MS + 1),
        ({**KEYED, "min.cleanable.dirty.ratio": 0.5, "min.compaction.lag.ms": 2 * HOUR_MS}, 2 * HOUR_MS),
        ({**KEYED, "max.compaction.lag.ms": 1, "delete.retention.ms": 5 * HOUR_MS}, 5 * HOUR_MS),
    ],
    ids=["a record that waited", "one that was too young", "a tombstone"],
)
def test_compaction_that_becomes_due_by_time_is_noted_to_the_millisecond(
    configs: dict[str, object], due_after_ms: int
) -> None:
    _, clock, cluster = a_world(0)
    log = cluster.topic_log("t")
    create_topic(log, "t", configs=configs)
    for pair in (("a", None), ("a", None), ("newest", "x")):
        append_pairs(a_writer(log), [pair], timestamp_ms=clock.now_ms())
    if "delete.retention.ms" in configs:
        clock.advance(2)
    maintain(cluster)
    before = pairs_of(log)
    began_ms = clock.now_ms()
    assert read_notes(cluster)["t"].due_ms[Step.COMPACT] == began_ms + due_after_ms
    clock.advance(due_after_ms - 1)
    assert looked_at(maintain(cluster)) == []
    maintain(cluster, full=True)
    assert pairs_of(log) == before  # nor does a look find anything
    clock.advance(1)
    assert looked_at(maintain(cluster)) == ["t"]
    assert pairs_of(log) != before


def test_what_a_run_leaves_for_the_next_it_does_not_note_as_done() -> None:
    """Files that were merged may be merged again."""
    pairs = OptimizePolicy(min_files=2, max_files=2, growth=1.1)
    _, _, cluster = a_world(1)
    log = cluster.topic_log("t0")
    writer = a_writer(log, topic="t0")
    for number in range(8):
        append(writer, str(number))
    counts = []
    while looked_at(maintain(cluster, policy=pairs)):
        counts.append(len(live(log)))
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (5, 2)


def test_other_steps_and_other_policies_have_to_look_for_themselves() -> None:
    _, _, cluster = a_world(1)
    assert looked_at(maintain(cluster, steps=[Step.RETENTION])) == ["t0"]
    assert looked_at(maintain(cluster, steps=[Step.RETENTION])) == []
    assert looked_at(maintain(cluster, steps=[Step.RETENTION, Step.OPTIMIZE])) == ["t0"]
    assert looked_at(maintain(cluster, steps=[Step.OPTIMIZE])) == []
    assert looked_at(maintain(cluster)) == ["t0"]
    assert looked_at(maintain(cluster)) == []
    assert looked_at(maintain(cluster, policy=POLICY)) == ["t0"]
    assert looked_at(maintain(cluster, policy=POLICY)) == []
    assert looked_at(maintain(cluster, steps=[Step.RETENTION])) == []


def test_who_asks_for_a_topic_or_for_vacuum_or_for_all_of_it_gets_it() -> None:
    memory, clock, cluster = a_world(2)
    clock.advance(8 * DAY_MS)
    maintain(cluster)
    searched = [
        maintain(cluster, ["t0"]),
        maintain(cluster, steps=[Step.VACUUM]),
        maintain(cluster, full=True),
        maintain(cluster, dry_run=True),
    ]
    for report in searched:
        assert report.topics[0].vacuum is not None
        assert report.topics[0].vacuum.searched
    append(a_writer(cluster.topic_log("t0"), topic="t0"), "y")
    busy, idle = maintain(cluster).topics
    assert busy.vacuum is not None
    assert (busy.vacuum.searched, idle.unchanged) == (False, True)  # the folder of a busy topic once a day, too
    memory.put("topics/t0/partition=0/left.parquet", b"")
    for day in range(1, 9):
        assert (day, "topics/t0/partition=0/left.parquet" in data_files(cluster, "t0")) == (day, True)
        clock.advance(DAY_MS)
        maintain(cluster)
    assert "topics/t0/partition=0/left.parquet" not in data_files(cluster, "t0")


def test_a_topic_with_a_failure_is_looked_at_by_each_run_and_its_folder_once_a_day() -> None:
    _, _, cluster = a_world(2)
    log = cluster.topic_log("t0")
    metadata = load_state(log).require_whole().metadata
    odd = {**metadata.configuration, "sparklog.retention.ms": "a week"}
    foreign_commit(log, replace(metadata, configuration=odd))
    for searched in (True, False, False):
        bad, good = maintain(cluster).topics
        assert {*bad.errors} == {Step.RETENTION, Step.OPTIMIZE}
        assert bad.vacuum is not None
        assert bad.vacuum.searched is searched
        assert good.unchanged is not searched


def test_another_entry_of_the_same_version_is_another_topic() -> None:
    """As after a power loss, or a restored backup."""
    memory, _, cluster = a_world(1)
    maintain(cluster)
    log = cluster.topic_log("t0")
    memory.delete([entry_path(log.table, 1)])
    foreign_entry(log, 1, [{"txn": {"appId": "x", "version": 1, "lastUpdated": 1}}])
    assert looked_at(maintain(cluster)) == ["t0"]


@pytest.mark.parametrize(
    "odd",
    [
        *(b"", b"{", b"[]", b"null", b'{"format":2}', b'{"format":1,"cluster_id":"another","topics":{}}'),
        *(b'{"format":1,"cluster_id":"c","topics":{"t0":%s}}' % note for note in (b"{}", b"[]", b"null", b'"x"')),
        b'{"format":1,"cluster_id":"c","topics":{"t0":{"version":1,"token":"","deleted":false,"due":{"x":1}}}}',
        b'{"format":1,"cluster_id":"c","topics":{"t0":{"version":1e999,"token":"","deleted":false,"due":{}}}}',
    ],
)
def test_notes_that_make_no_sense_are_none_and_are_written_anew(odd: bytes) -> None:
    memory, _, cluster = a_world(1)
    maintain(cluster)
    good = memory.read(MAINTENANCE_NOTES)
    memory.put(MAINTENANCE_NOTES, odd)
    assert read_notes(cluster) == {}
    assert looked_at(maintain(cluster)) == ["t0"]
    assert memory.read(MAINTENANCE_NOTES) == good


def test_a_note_from_a_time_when_the_clock_was_ahead_hides_nothing() -> None:
    """A machine began with a wrong date, and its folder's times were so, too."""
    memory, clock, cluster = a_world(1, **{"retention.ms": 1_000 * DAY_MS})
    ahead = ManualClock(start_ms=T0_MS + 365 * DAY_MS)
    memory._clock = ahead
    maintain(a_cluster(memory, ahead))
    memory._clock = clock
    clock.advance(2 * DAY_MS)
    assert looked_at(maintain(cluster)) == ["t0"]
    assert read_notes(cluster)["t0"].search_ms == clock.now_ms() + DAY_MS
    assert looked_at(maintain(cluster)) == []


class Denied(WrappedStore):
    """A store where nobody may read the notes."""

    def read(self, path: str) -> bytes:
        if path == MAINTENANCE_NOTES:
            raise StorePermissionError(f"access denied: {path}")
        return super().read(path)


def test_notes_that_can_not_be_read_or_written_are_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    memory, clock, cluster = a_world(1)
    refused = FaultyStore(memory, Fault(kind=FaultKind.READ_ONLY, ops=("put",), path=MAINTENANCE_NOTES, times=None))
    assert looked_at(maintain(a_cluster(refused, clock))) == ["t0"]
    assert "can't be written" in caplog.text
    maintain(cluster)
    assert looked_at(maintain(cluster)) == []
    assert looked_at(maintain(a_cluster(Denied(memory), clock))) == ["t0"]
    assert "can't be read" in caplog.text


def test_notes_of_topics_that_are_gone_are_dropped_and_notes_of_two_runs_are_joined() -> None:
    memory, _, cluster = a_world(2)
    maintain(cluster)
    memory.delete([found.path for found in memory.list("topics/t0/")])
    maintain(cluster)
    assert read_notes(cluster).keys() == {"t1"}
    note = read_notes(cluster)["t1"]
    assert TopicNote.from_json(note.to_json()) == note


# Passing over is no different from looking


class Twin:
    """A cluster that is maintained: by notes, or by looking at everything."""

    def __init__(self, *, full: bool) -> None:
        self.clock = ManualClock(start_ms=T0_MS)
        self.cluster = a_cluster(MemoryStore(clock=self.clock), self.clock)
        self.full = full
        self.passed_over = 0
        shared = {"retention.ms": 20 * HOUR_MS, "delete.retention.ms": 3 * HOUR_MS, "min.cleanable.dirty.ratio": 0.6}
        self.configs: dict[str, dict[str, object]] = {
            "cut": {"retention.ms": 7 * HOUR_MS, "retention.bytes": 20_000},
            "keyed": {**shared, "cleanup.policy": "compact", "min.compaction.lag.ms": 2 * HOUR_MS},
            "both": {**shared, "cleanup.policy": "compact,delete", "max.compaction.lag.ms": 5 * HOUR_MS},
        }
        for topic, configs in self.configs.items():
            create_topic(self.cluster.topic_log(topic), topic, configs=configs)

    def act(self, seed: int) -> None:
        chance = random.Random(seed)
        topic = chance.choice([*self.configs])
        log = self.cluster.topic_log(topic)
        action = chance.random()
        time_ms = self.clock.now_ms() - chance.choice([0, 0, 3 * HOUR_MS])
        if action < 0.6:
            pairs = [(chance.choice("ab"), chance.choice(["1", "2", None])) for _ in range(chance.randint(1, 3))]
            append_pairs(a_writer(log, topic=topic), pairs, timestamp_ms=time_ms)
        elif action < 0.65 and topic == "cut":
            delete_records(log, topic, {0: load_state(log).head.log_end_offsets[0]})
        self.clock.advance(chance.choice([1, HOUR_MS, HOUR_MS, 4 * HOUR_MS, 26 * HOUR_MS]))
        report = maintain(self.cluster, policy=POLICY, full=self.full)
        assert report.failures == []
        self.passed_over += sum(one.unchanged for one in report.topics)

    def seen(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for topic in self.configs:
            log = self.cluster.topic_log(topic)
            head = load_state(log).head
            rows = [(row["offset"], row["key"], row["value"]) for row in stored(log)]
            found[topic] = (head.log_start_offsets, head.log_end_offsets, rows, len(live(log)))
        return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "steps"),
    [(1, 12), *(pytest.param(seed, 50, marks=pytest.mark.slow) for seed in each_nth(range(2, 12), 10))],
)
def test_by_notes_the_same_is_done_at_the_same_time_as_by_looking_at_everything(seed: int, steps: int) -> None:
    by_notes, by_looking = Twin(full=False), Twin(full=True)
    for step in range(steps):
        for twin in (by_notes, by_looking):
            twin.act(seed * 1_000 + step)
        assert by_notes.seen() == by_looking.seen()
    assert by_looking.passed_over == 0
    assert by_notes.passed_over > steps / 4
