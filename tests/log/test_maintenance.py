"""Checkpoints in the background: when they are written, what they cost, and that nobody's append suffers from them."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from sparklog.delta.listing import read_hint
from sparklog.delta.names import last_checkpoint_path
from sparklog.log import maintenance
from sparklog.log.claims import Claim, take_claim
from sparklog.log.maintenance import Checkpoints
from sparklog.log.state import open_state
from sparklog.paths import sequencing_claim
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock, WrappedStore
from tests.support import T0_MS, a_log, a_topic, a_writer, append, contents, inline_checkpoints, unsequenced_file

NEWEST = 2


@pytest.fixture
def memory():
    return MemoryStore()


@pytest.fixture
def clock():
    return ManualClock(start_ms=T0_MS)


@pytest.fixture
def log(memory, clock):
    log = a_topic(memory, clock)
    writer = a_writer(log)
    append(writer, "a")
    append(writer, "b")
    return log


def committed(log, version, **changes):
    """What a process knows whose newest commit made this version."""
    state = open_state(log)
    return replace(state, position=replace(state.position, version=version), **changes)


def claimed(log):
    """Another client's claim."""
    claim = take_claim(log.store, log.clock, sequencing_claim(log.table), None)
    assert isinstance(claim, Claim)
    return claim


def store_that_fails(error):
    class Failing(WrappedStore):
        healthy = False

        def create(self, path, data, *, sync=False):
            if not self.healthy:
                raise error
            return super().create(path, data, sync=sync)

    return Failing


@pytest.mark.parametrize("version", [99, 109, 119])
def test_a_checkpoint_that_is_due_is_written(log, version):
    inline_checkpoints().after_commit(committed(log, version))
    assert open_state(log).checkpoint_version == read_hint(log) == NEWEST
    assert contents(log)[0] == [(0, "a"), (1, "b")]


@pytest.mark.parametrize(
    ("version", "checkpoint_version"), [(98, -1), (100, -1), (101, 2)], ids=["not yet", "in between", "one is there"]
)
def test_where_none_is_due_nothing_is_started_and_no_store_is_asked(memory, clock, log, version, checkpoint_version):
    store = CountingStore(memory)
    state = replace(committed(log, version, checkpoint_version=checkpoint_version), log=a_log(store, clock))
    Checkpoints(run=lambda work: pytest.fail("started")).after_commit(state)
    assert store.counts() == {}


def test_whose_records_another_published_starts_no_checkpoint(log):
    started: list[Callable[[], None]] = []
    checkpoints = Checkpoints(run=started.append)
    checkpoints.after_commit(committed(log, 99), created=False)
    checkpoints.after_commit(committed(log, 149), created=False)
    assert started == []
    checkpoints.close()
    assert len(started) == 1


def test_what_another_wrote_meanwhile_is_not_written_again_and_not_looked_for_again(memory, clock, log):
    inline_checkpoints().after_commit(committed(log, 99))
    store = CountingStore(memory)
    behind = replace(committed(log, 99, checkpoint_version=-1), log=a_log(store, clock))
    checkpoints = inline_checkpoints()
    checkpoints.after_commit(behind)
    assert store.counts() == {"get": 1}  # the hint
    checkpoints.after_commit(behind)
    assert store.counts() == {"get": 1}


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError("odd"), MemoryError()], ids=repr)
def test_whatever_fails_is_logged_and_tried_again_at_the_next_that_is_due(memory, clock, log, error, caplog):
    store = store_that_fails(error)(memory)
    state = replace(committed(log, 99), log=a_log(store, clock))
    checkpoints = inline_checkpoints()
    checkpoints.after_commit(state)
    assert "checkpoint of topics/t failed" in caplog.text
    assert str(error) in caplog.text
    assert read_hint(log) == -1
    store.healthy = True
    checkpoints.after_commit(replace(state, position=replace(state.position, version=109)))
    assert read_hint(log) == NEWEST


@pytest.mark.parametrize("known", [True, False])
def test_known_foreign_files_are_sequenced_before_a_checkpoint_forgets_their_order(log, known):
    """Rule F2."""
    unsequenced_file(log, "f")
    state = committed(log, 99)
    count = 1 if known else 0
    inline_checkpoints().after_commit(replace(state, head=replace(state.head, unsequenced_count=count)))
    assert read_hint(log) == NEWEST + 1 + count
    assert contents(log)[0] == [(0, "a"), (1, "b"), (2, "f")][: 2 + count]


def test_while_another_client_sequences_a_checkpoint_waits_and_copies_nothing(memory, clock, log):
    unsequenced_file(log, "f")
    other = claimed(log)
    state = committed(log, 99)
    store = CountingStore(memory)
    checkpoints = inline_checkpoints()
    checkpoints.after_commit(replace(state, log=a_log(store, clock)))
    assert store.counts() == {"get": 2, "create": 1}  # the hint, and the claim of the other
    checkpoints.after_commit(replace(state, log=a_log(store, clock)))
    assert store.counts() == {"get": 2, "create": 1}
    assert read_hint(log) == -1
    other.release()
    clock.advance(5_000)
    checkpoints.after_commit(state)
    assert read_hint(log) == NEWEST + 2
    assert contents(log)[0] == [(0, "a"), (1, "b"), (2, "f")]
    assert "_sequencing.json" not in memory.list_names(f"{log.table}/")


@pytest.mark.parametrize(("goes_on", "waited_s"), [(False, 20), (True, 60)], ids=["one that died", "one without end"])
def test_a_checkpoint_waits_for_no_client_for_ever(memory, clock, log, goes_on, waited_s):
    unsequenced_file(log, "f")
    other = claimed(log)
    state, checkpoints, began = committed(log, 99), inline_checkpoints(), clock.ticks_ms()
    while read_hint(log) == -1:
        checkpoints.after_commit(state)
        clock.advance(1_000)
        if goes_on:
            other.renew()
    assert (clock.ticks_ms() - began) // 1_000 == waited_s + 1
    assert contents(log)[0] == [(0, "a"), (1, "b"), (2, "f")]


def test_who_closes_waits_for_no_other_client(memory, clock, log):
    unsequenced_file(log, "f")
    claimed(log)
    checkpoints = inline_checkpoints()
    checkpoints.after_commit(committed(log, 99))
    assert read_hint(log) == -1
    checkpoints.close()
    assert read_hint(log) == NEWEST + 2


def test_where_sequencing_fails_no_checkpoint_forgets_the_order(memory, clock, log, caplog):
    unsequenced_file(log, "f")
    store = FaultyStore(memory, Fault(kind=FaultKind.DISK_FULL, ops=["put"], path="partition=0"))
    checkpoints = inline_checkpoints()
    for version, checkpoint_version in ((99, -1), (109, NEWEST + 2)):
        checkpoints.after_commit(replace(committed(log, version), log=a_log(store, clock)))
        assert read_hint(log) == checkpoint_version
    assert "checkpoint of topics/t failed" in caplog.text


def test_one_is_written_at_a_time(log):
    started: list[Callable[[], None]] = []
    checkpoints = Checkpoints(run=started.append, max_delay_ms=0)
    for version in (99, 109):
        checkpoints.after_commit(committed(log, version))
    assert len(started) == 1
    started.pop()()
    assert read_hint(log) == NEWEST
    checkpoints.after_commit(committed(log, 109, checkpoint_version=-1))
    assert started == []  # what was written is known, whatever the state says
    checkpoints.after_commit(committed(log, 112, checkpoint_version=-1))
    assert len(started) == 1


class WaitingStore(WrappedStore):
    """Keeps the checkpoint's thread waiting at its first call until the gate opens."""

    def __init__(self, store):
        super().__init__(store)
        self.gate = threading.Event()

    def _call(self, op, path, call):
        if threading.current_thread().name == "sparklog-checkpoint":
            assert self.gate.wait(60)
        return call()


@pytest.mark.slow
def test_an_append_does_not_wait_for_its_checkpoint_but_closing_does(memory, clock):
    a_topic(memory, clock)
    store = WaitingStore(memory)
    log = a_log(store, clock)
    writer = a_writer(log, checkpoints=Checkpoints())
    for number in range(100):
        append(writer, str(number))
    assert read_hint(log) == -1
    opener = threading.Timer(0.05, store.gate.set)
    opener.start()
    writer.close()
    assert read_hint(log) == 100
    opener.join()
    writer.close()


def test_closing_waits_no_longer_than_it_is_told(memory, clock, log):
    store = WaitingStore(memory)
    checkpoints = Checkpoints()
    checkpoints.after_commit(replace(committed(log, 99), log=a_log(store, clock)))
    checkpoints.close(timeout_ms=1)
    assert read_hint(log) == -1
    store.gate.set()
    checkpoints.close()
    assert read_hint(log) == NEWEST


@pytest.mark.slow
def test_an_append_succeeds_without_threads_and_the_next_checkpoint_is_written(memory, clock, monkeypatch, caplog):
    log = a_topic(memory, clock)
    writer = a_writer(log, checkpoints=Checkpoints())
    for number in range(98):
        append(writer, str(number))
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):

        def refuse(thread):
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", refuse)
        assert append(writer, "crosses the threshold").delta_version == 99
        assert append(writer, "one more").delta_version == 100
        writer.close()
    assert "checkpoint of topics/t can't be started: thread sparklog-checkpoint can't be started" in caplog.text
    for number in range(9):
        append(writer, str(number))
    writer.close()
    assert read_hint(log) == 109
    assert len(contents(log)[0]) == 109


def test_a_checkpoint_that_was_never_due_is_not_waited_for():
    Checkpoints().close()


# --- what became due while one was written, or during the rest after it


class SlowStore(WrappedStore):
    """A checkpoint takes so long, by the clock; ``written`` is released once the hint names one."""

    def __init__(self, store, clock, duration_ms):
        super().__init__(store)
        self.clock = clock
        self.duration_ms = duration_ms
        self.written = threading.Semaphore(0)

    def create(self, path, data, *, sync=False):
        if "checkpoint" in path:
            self.clock.advance(self.duration_ms)
        return super().create(path, data, sync=sync)

    def put(self, path, data, *, sync=False):
        super().put(path, data, sync=sync)
        if "_last_checkpoint" in path:
            self.written.release()


def grown(memory, clock, *, store, checkpoints, commits=100):
    """A topic whose first checkpoint is written; its writer."""
    a_topic(memory, clock)
    writer = a_writer(a_log(store, clock), checkpoints=checkpoints)
    for number in range(commits):
        append(writer, str(number))
    return writer


def behind(log, writer):
    return writer.state.position.version - read_hint(log)


@pytest.mark.slow
def test_a_writer_that_goes_idle_leaves_no_checkpoint_due(memory, clock):
    store = SlowStore(memory, clock, 5)
    log = a_log(memory, clock)
    writer = grown(memory, clock, store=store, checkpoints=Checkpoints(max_delay_ms=0))
    assert store.written.acquire(timeout=60)
    for number in range(120):  # due again, perhaps while it rests
        append(writer, str(number))
    assert store.written.acquire(timeout=60)  # nobody commits any more, and nobody closes
    assert behind(log, writer) <= 100
    writer.close()


@pytest.fixture
def rested(memory, clock, log):
    """A checkpoint of version 2 took a second. Asked whether a commit of a version starts the next."""
    started: list[Callable[[], None]] = []
    checkpoints = Checkpoints(run=started.append, max_delay_ms=0)
    slow = a_log(SlowStore(memory, clock, 1_000), clock)
    checkpoints.after_commit(replace(committed(log, 99), log=slow))
    started.pop()()

    def starts(version):
        checkpoints.after_commit(replace(committed(log, version), log=slow))
        return bool(started)

    return starts


def test_while_it_rests_a_checkpoint_waits_until_one_and_a_half_times_the_threshold(rested):
    assert [version for version in range(3, 153) if rested(version)] == [152]


def test_the_rest_is_four_times_what_the_checkpoint_took(clock, rested):
    clock.advance(3_999)
    assert not rested(102)
    clock.advance(1)
    assert rested(112)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "is_written"), [(98, False), (100, True), (155, True)])
def test_closing_writes_a_checkpoint_if_one_is_due_whoever_made_it_so(memory, clock, version, is_written):
    log = a_topic(memory, clock)
    writer, other = a_writer(log, checkpoints=Checkpoints(max_delay_ms=0)), a_writer(log)
    for number in range(version - 1):
        append(other, str(number))
    append(writer, "mine")
    assert read_hint(log) == -1
    for _ in range(2):
        writer.close()
        assert read_hint(log) == (version if is_written else -1)


def test_closing_doesnt_write_what_another_has_written(memory, clock, log):
    inline_checkpoints().after_commit(committed(log, 99))
    store = CountingStore(memory)
    checkpoints = Checkpoints(max_delay_ms=0)
    checkpoints.after_commit(replace(committed(log, 101, checkpoint_version=-1), log=a_log(store, clock)))
    assert store.counts() == {}
    checkpoints.close()
    assert store.counts() == {"get": 1}  # the hint


def test_who_closes_waits_for_no_delay_before_a_checkpoint(memory, clock, log):
    """Days, drawn by chance, before the one that this commit started."""
    checkpoints = Checkpoints(max_delay_ms=10**10)
    checkpoints.after_commit(committed(log, 99))
    assert checkpoints._background._under_way
    checkpoints.close()
    assert read_hint(a_log(memory, clock)) == 2


@pytest.mark.slow
def test_a_checkpoint_that_fails_is_tried_again_though_nobody_commits(memory, clock, monkeypatch, caplog):
    monkeypatch.setattr(maintenance, "_FAILURE_REST_MS", 1)
    failures = Fault(kind=FaultKind.DISK_FULL, ops=["create"], path="checkpoint", times=2)
    store = SlowStore(FaultyStore(memory, failures), clock, 0)
    writer = grown(memory, clock, store=store, checkpoints=Checkpoints(max_delay_ms=0))
    assert store.written.acquire(timeout=60)
    assert behind(a_log(memory, clock), writer) <= 1
    assert caplog.text.count("checkpoint of topics/t failed") == 2
    writer.close()


@pytest.mark.slow
def test_tries_are_bounded_and_the_next_that_is_due_begins_anew(memory, clock, monkeypatch, caplog):
    monkeypatch.setattr(maintenance, "_FAILURE_REST_MS", 0)
    checkpoints = Checkpoints(max_delay_ms=0)
    store = FaultyStore(memory, Fault(kind=FaultKind.DISK_FULL, ops=["create"], path="checkpoint", times=5))
    writer = grown(memory, clock, store=store, checkpoints=checkpoints)
    checkpoints._background.close(60_000)
    assert caplog.text.count("checkpoint of topics/t failed") == 5
    for number in range(10):
        append(writer, str(number))
    checkpoints._background.close(60_000)
    assert read_hint(a_log(memory, clock)) >= 109
    writer.close()


def test_what_a_checkpoint_holds_beside_live_files_puts_off_the_next(memory, clock, log):
    """600,000 removed files, and hardly any live one: the threshold is 3,000."""
    memory.put(last_checkpoint_path(log.table), b'{"version":0,"size":600000}')
    store = CountingStore(memory)
    checkpoints = inline_checkpoints()
    looks = []
    for version in (100, 110, 120, 2_999):
        state = committed(log, version, checkpoint_version=0)
        checkpoints.after_commit(replace(state, log=a_log(store, clock)))
        looks.append(store.counts())
    assert looks == [{"get": 1}] * 4  # once it had to ask
    checkpoints.after_commit(committed(log, 3_000, checkpoint_version=0))
    assert read_hint(log) == NEWEST
