"""Transactional ids that nobody uses: taken from their producers after a week, let go by topics a week later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparklog.delta.actions import FAR_FUTURE_MS, Metadata
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.properties import deleted_file_retention_ms
from sparklog.errors import InvalidConfigurationError, ProducerFencedError, StoreOutcomeUnknownError
from sparklog.log import Cluster, create_topic
from sparklog.log.publishing import marker_app_id
from sparklog.log.state import load_state
from sparklog.paths import open_transactions
from sparklog.storage import CreateResult, MemoryStore, ObjectStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash, WrappedStore
from sparklog.txn.barrier import IdSeen, look_at_ids
from sparklog.txn.description import describe_transactions
from sparklog.txn.entries import Header, QueryBatch, next_header
from sparklog.txn.markers import expire_markers
from sparklog.txn.overview import store_time_ms
from sparklog.txn.recovery import EXPIRATION_MS, recover_transactions
from sparklog.txn.states import TransactionState
from tests.support import DAY_MS
from tests.txn.support import Driver, a_cluster, a_world, contents, newest_entry, states, values

WEEK_MS = 7 * DAY_MS


def recover(cluster: Cluster) -> dict[str, str]:
    found = recover_transactions(cluster, expire_after_ms=EXPIRATION_MS)
    return {one.transactional_id: one.action.value for one in found}


def forget(cluster: Cluster, topic: str = "t", *, dry_run: bool = False) -> list[str]:
    state = load_state(cluster.topic_log(topic))
    now_ms = cluster.clock.now_ms() if dry_run else store_time_ms(cluster)
    return expire_markers(state, lambda: look_at_ids(cluster, now_ms=now_ms), dry_run=dry_run, timeout_ms=60_000)[0]


def send(driver: Driver, value: str) -> None:
    driver.begin()
    driver.send("t", value)
    driver.commit()
    driver.complete()


def used(cluster: Cluster) -> Driver:
    driver = Driver(cluster, topics=("t",)).init()
    send(driver, "a")
    return driver


def marker(cluster: Cluster) -> tuple[int, int] | None:
    found = load_state(cluster.topic_log("t")).transactions.get(marker_app_id("tx"))
    return None if found is None else (found.version, found.last_updated_ms)


def test_an_id_unused_for_a_week_is_taken_from_its_producer_and_its_log_shrinks() -> None:
    memory, clock, cluster = a_world()
    driver = used(cluster)
    for number in range(5):
        send(driver, str(number))
    clock.advance(WEEK_MS)
    assert recover(cluster) == {"tx": "timed out"}  # it had not closed
    clock.advance(WEEK_MS)
    assert recover(cluster) == {"tx": "nothing"}
    clock.advance(1)
    assert recover_transactions(cluster)[0].action.value == "nothing"  # only for whoever asks
    assert recover(cluster) == {"tx": "expired"}
    assert states(cluster) == ["CompleteAbort", "Empty"]
    assert not [*memory.list(open_transactions("tx"))]
    clock.advance(WEEK_MS)
    assert recover(cluster) == {"tx": "nothing"}
    with pytest.raises(ProducerFencedError, match="expired after 604800001 ms without use"):
        send(driver, "late")
    entry = newest_entry(cluster)
    assert entry is not None
    send(Driver(cluster, topics=("t",)).init(), "again")
    assert values(cluster, "t") == ["a", *"01234", "again"]
    after = newest_entry(cluster)
    assert after is not None
    assert after.version == entry.version + 3
    assert after.header.producer_id == entry.header.producer_id
    assert after.header.producer_epoch == entry.header.producer_epoch + 1
    assert not after.is_expired


def test_what_is_unfinished_or_may_be_open_is_not_taken() -> None:
    _, clock, cluster = a_world()
    driver = used(cluster)
    driver.begin()
    driver.send("t", "b")
    driver.commit()  # decided, and never said to be carried out
    clock.advance(4 * WEEK_MS)
    assert recover(cluster) == {"tx": "committed"}
    long = Driver(cluster, "long", topics=("t",))
    long.session._timeout_ms = 3 * WEEK_MS
    long.init()
    clock.advance(WEEK_MS + 1)
    assert recover(cluster) == {"long": "nothing", "tx": "timed out"}
    clock.advance(WEEK_MS + 1)
    assert recover(cluster) == {"long": "nothing", "tx": "expired"}


def test_the_batches_of_streaming_queries_are_handed_on() -> None:
    _, clock, cluster = a_world()
    driver = Driver(cluster, topics=("t",)).init()
    driver.begin()
    batch = QueryBatch(query_id="q", batch_id=7)
    driver.session.commit({}, deadline=driver.deadline, batch=batch)
    driver.complete()
    driver.session.close()
    clock.advance(WEEK_MS + 1)
    assert recover(cluster) == {"tx": "expired"}
    assert Driver(cluster, topics=("t",)).init().session.batches == (batch,)


class Overtaken(WrappedStore):
    """Right before a create of the log others act, once."""

    def __init__(self, store: ObjectStore, others_act: Callable[[], object]) -> None:
        super().__init__(store)
        self._others_act: Callable[[], object] | None = others_act

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        act, self._others_act = self._others_act, None
        if act is not None:
            act()
        return super().create(path, data, sync=sync)


def test_a_producer_that_comes_back_at_the_same_time_keeps_its_id_or_is_fenced() -> None:
    """Whoever creates the number has it, whoever sleeps before its create."""
    memory, clock, cluster = a_world()
    used(cluster).session.close()
    clock.advance(WEEK_MS + 1)
    back: list[Driver] = []
    overtaken = a_cluster(Overtaken(memory, lambda: back.append(Driver(cluster, topics=("t",)).init())), clock)
    assert recover(overtaken) == {"tx": "nothing"}
    send(back[0], "b")
    clock.advance(2 * WEEK_MS)
    recover(cluster)
    clock.advance(2 * WEEK_MS)
    slow = a_cluster(Overtaken(memory, lambda: recover(cluster)), clock)
    send(Driver(slow, topics=("t",)).init(), "c")  # its first create meets the entry that took the id
    assert values(cluster, "t") == ["a", "b", "c"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER, FaultKind.LOST_ANSWER])
@pytest.mark.parametrize("skip", range(12))
def test_died_at_any_call_or_without_an_answer_it_is_done_by_the_next(kind: FaultKind, skip: int) -> None:
    memory, clock, cluster = a_world()
    used(cluster).session.close()
    clock.advance(WEEK_MS + 1)
    store = FaultyStore(memory, Fault(kind=kind, skip=skip))
    try:
        recover(a_cluster(store, clock))
    except SimulatedCrash:
        assert kind is not FaultKind.LOST_ANSWER
    assert recover(cluster)["tx"] in ("expired", "nothing")
    entry = newest_entry(cluster)
    assert entry is not None
    assert entry.is_expired
    clock.advance(WEEK_MS + 1)
    store = FaultyStore(memory, Fault(kind=kind, skip=skip))
    try:
        forget(a_cluster(store, clock))
    except SimulatedCrash:
        assert kind is not FaultKind.LOST_ANSWER
    except StoreOutcomeUnknownError:  # of an fsync: whoever called is told, and does it again
        assert kind is FaultKind.LOST_ANSWER
    forget(cluster)
    assert forget(cluster) == []
    send(Driver(cluster, topics=("t",)).init(), "b")
    assert contents(cluster)["t"] == ["a", "b"]


# Topics


def test_a_topic_lets_an_id_go_a_week_after_it_was_taken_and_a_checkpoint_forgets_it() -> None:
    clock = ManualClock()
    cluster = a_cluster(MemoryStore(clock=clock), clock)
    create_topic(cluster.topic_log("t"), "t")
    used(cluster).session.close()
    assert marker(cluster) == (2, FAR_FUTURE_MS)
    clock.advance(WEEK_MS + 1)
    assert forget(cluster) == []
    assert recover(cluster) == {"tx": "expired"}
    clock.advance(WEEK_MS)
    assert forget(cluster) == []
    clock.advance(1)
    assert forget(cluster, dry_run=True) == ["tx"]
    assert marker(cluster) == (2, FAR_FUTURE_MS)
    assert forget(cluster) == ["tx"]
    assert marker(cluster) == (2, clock.now_ms())
    assert forget(cluster) == []
    clock.advance(8 * DAY_MS)  # delta.setTransactionRetentionDuration
    write_checkpoint(cluster.topic_log("t"))
    assert marker(cluster) is None
    send(Driver(cluster, topics=("t",)).init(), "b")
    assert values(cluster, "t") == ["a", "b"]
    found = marker(cluster)
    assert found is not None
    assert found[0] > 2
    assert found[1] == FAR_FUTURE_MS


def test_an_id_that_is_taken_up_again_meanwhile_keeps_its_marker() -> None:
    memory, clock, cluster = a_world()
    used(cluster).session.close()
    clock.advance(WEEK_MS + 1)
    recover(cluster)
    clock.advance(WEEK_MS + 1)
    overtaken = a_cluster(Overtaken(memory, lambda: send(Driver(cluster, topics=("t",)).init(), "b")), clock)
    forget(overtaken)
    found = marker(cluster)
    assert found is not None
    assert found == (found[0], FAR_FUTURE_MS)
    assert found[0] > 2


def test_a_topic_without_markers_costs_nothing() -> None:
    _, _, cluster = a_world()
    state = load_state(cluster.topic_log("t"))

    def nobody_asks() -> dict[str, IdSeen]:
        raise AssertionError

    assert expire_markers(state, nobody_asks, timeout_ms=1) == ([], state)


def test_epochs_that_are_used_up_get_a_new_producer_id() -> None:
    before = Header(producer_id=5, producer_epoch=32_765, timeout_ms=1, holder="h")
    after = next_header(before)
    assert after == Header(producer_id=5, producer_epoch=32_766, timeout_ms=1, holder="h")
    assert next_header(after).producer_epoch == 0
    assert next_header(after).producer_id != 5


# Delta's own setting


def a_metadata(**properties: str) -> Metadata:
    return Metadata(
        table_id="x",
        schema_string="",
        partition_columns=(),
        configuration=properties,
        created_ms=None,
        name=None,
        description=None,
    )


@pytest.mark.parametrize(
    ("given", "expected_ms"),
    [
        (None, WEEK_MS),
        ("interval 30 days", 30 * DAY_MS),
        ("INTERVAL 1 day", DAY_MS),
        ("2 weeks", 2 * WEEK_MS),
        (" 7 days", WEEK_MS),
        ("interval 1 week 2 hours", WEEK_MS + 7_200_000),
        ("interval 90 seconds 5 milliseconds", 90_005),
        (" interval 3  minutes ", 180_000),
    ],
)
def test_how_long_removed_files_stay_is_read_as_delta_writes_it(given: str | None, expected_ms: int) -> None:
    properties = {} if given is None else {"delta.deletedFileRetentionDuration": given}
    assert deleted_file_retention_ms("t", a_metadata(**properties)) == expected_ms


@pytest.mark.parametrize(
    "given", ["", "30", "interval", "interval 1 month", "interval -1 days", "1 dayss", "interval 1day"]
)
def test_what_is_not_understood_is_refused(given: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="deletedFileRetentionDuration"):
        deleted_file_retention_ms("t", a_metadata(**{"delta.deletedFileRetentionDuration": given}))


def test_a_producer_killed_before_cleaning_its_ids_log_leaves_that_to_the_next() -> None:
    memory, clock, cluster = a_world()
    driver = used(cluster)
    for number in range(5):
        send(driver, str(number))
    driver.session.close()
    clock.advance(WEEK_MS + 1)
    creates = FaultyStore(memory, Fault(kind=FaultKind.CRASH_AFTER, ops=("create",)))
    with pytest.raises(SimulatedCrash):
        recover(a_cluster(creates, clock))
    assert len(states(cluster)) == 14
    assert recover(cluster) == {"tx": "nothing"}
    assert states(cluster) == ["CompleteCommit", "Empty"]


def test_an_id_that_expired_is_not_told_as_aborted() -> None:
    _, clock, cluster = a_world()
    used(cluster).session.close()
    clock.advance(WEEK_MS + 1)
    recover(cluster)
    [found] = describe_transactions(cluster, ["tx"])
    assert (found.state, found.abort_reason) == (TransactionState.EMPTY, None)
