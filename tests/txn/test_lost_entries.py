"""Entries of a transactional id were deleted by others than sparklog, say by a rule that goes by age."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import pytest

from sparklog import Consumer, Producer
from sparklog.admin.client import Admin
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.errors import KafkaTimeoutError, SparklogError, StoreUnavailableError, TransactionAbortableError
from sparklog.groups.offsets.rows import Decider
from sparklog.integrity import check_cluster, repair_cluster
from sparklog.log import Cluster, TopicWriter, create_topic, open_cluster
from sparklog.log.publishing import newest_marker
from sparklog.log.reloading import reload_state
from sparklog.log.state import load_state
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.paths import transaction_log
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from sparklog.txn.entries import TopicFiles, TransactionEntry, open_transaction_log
from sparklog.txn.forward import publish_topics
from sparklog.txn.recovery import recover_transactions
from sparklog.txn.session import TransactionSession
from sparklog.txn.states import TransactionState
from tests.support import DAY_MS, append, no_checkpoints
from tests.txn.support import Driver, Overtaken, a_cluster
from tests.txn.support import values as read_back

AT = TopicPartition("t", 0)


def a_used_id(count: int = 3) -> tuple[MemoryStore, Cluster]:
    memory = MemoryStore()
    cluster = open_cluster(memory)
    create_topic(cluster.topic_log("t"), "t")
    with Producer(cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        for number in range(count):
            commit(producer, f"old {number}")
    return memory, cluster


def commit(producer: Producer, value: str) -> int:
    producer.begin_transaction()
    future = producer.send("t", value=value.encode())
    producer.commit_transaction()
    return future.get(10).offset


def lose(memory: MemoryStore, keep: Sequence[int] = ()) -> None:
    entries = [found.path for found in memory.list(transaction_log("tx"))]
    memory.delete([path for path in entries if int(path[-25:-5]) not in keep])


def values(cluster: Cluster) -> list[str]:
    with Consumer(cluster=cluster, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([AT])
        end = consumer.end_offsets([AT])[AT]
        read: list[str] = []
        while consumer.position(AT) < end:
            read += [record.value.decode() for rows in consumer.poll(timeout_ms=200).values() for record in rows]
        return read


@pytest.mark.parametrize("keep", [(), (1,), (1, 2, 3), (7,)])
def test_what_is_committed_afterwards_is_readable(keep: Sequence[int]) -> None:
    memory, cluster = a_used_id()
    lose(memory, keep)
    for number in range(3):
        with Producer(cluster, transactional_id="tx") as producer:
            producer.init_transactions()
            assert commit(producer, f"new {number}") == 3 + number
    assert values(cluster) == ["old 0", "old 1", "old 2", "new 0", "new 1", "new 2"]
    newest, _ = open_transaction_log(cluster, "tx").open_newest()
    assert newest is not None
    assert newest.version > 7


def test_a_producer_that_lives_through_it_goes_on() -> None:
    memory, cluster = a_used_id()
    with Producer(cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        assert commit(producer, "before") == 3
        lose(memory)
        assert commit(producer, "after") == 4
    with Producer(cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        assert commit(producer, "another") == 5
    assert values(cluster)[3:] == ["before", "after", "another"]


def test_a_transaction_with_offsets_is_aborted_and_the_next_one_passes_the_numbers() -> None:
    memory, cluster = a_used_id()
    lose(memory)
    nobody = ConsumerGroupMetadata("g", -1, "", None)
    with Producer(cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({AT: OffsetAndMetadata(1)}, nobody)
        producer.send("t", value=b"refused")
        with pytest.raises(TransactionAbortableError, match="a topic has transaction 6 of this id"):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({AT: OffsetAndMetadata(2)}, nobody)
        producer.send("t", value=b"stored")
        producer.commit_transaction()
    assert values(cluster)[3:] == ["stored"]


GROUP = ConsumerGroupMetadata("g", -1, "", None)
ANOTHER = TopicPartition("t", 1)


def an_offset_that_waits_for_a_lost_entry() -> tuple[MemoryStore, Cluster, Decider]:
    """Of partition 0: its transaction wasn't decided, its producer is dead, and the id's log was emptied."""
    memory = MemoryStore()
    cluster = open_cluster(memory)
    create_topic(cluster.topic_log("t"), "t", num_partitions=2)
    session = TransactionSession(cluster, "tx", timeout_ms=60_000)
    session.begin_epoch(deadline=cluster.clock.deadline_in(10_000))
    session.begin(ticks_ms=cluster.clock.ticks_ms())
    decider = session.decider
    session.add_offsets({AT: OffsetAndMetadata(100)}, GROUP, deadline=cluster.clock.deadline_in(10_000))
    lose(memory)
    return memory, cluster, decider


def commit_an_offset(cluster: Cluster, *, dies: bool) -> Decider:
    """An offset of partition 1 is committed by a new producer of the id."""
    session = TransactionSession(cluster, "tx", timeout_ms=60_000)
    deadline = cluster.clock.deadline_in(10_000)
    session.begin_epoch(deadline=deadline)
    session.begin(ticks_ms=cluster.clock.ticks_ms())
    decider = session.decider
    session.add_offsets({ANOTHER: OffsetAndMetadata(7)}, GROUP, deadline=deadline)
    session.commit({}, deadline=deadline)
    if not dies:
        session.settle_groups(is_committed=True, deadline=deadline)
        session.complete(deadline=deadline)
    return decider


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("who", ["its producer", "recovery", "an administrator", "a reader", "check --repair"])
def test_another_transaction_with_the_number_does_not_commit_an_offset_that_waits(who: str, dies: bool) -> None:
    """The log of the id begins again with epoch 0: a transaction of another partition has the lost one's number."""
    _, cluster, lost = an_offset_that_waits_for_a_lost_entry()
    assert commit_an_offset(cluster, dies=dies) == lost
    admin = Admin(cluster)
    if who == "recovery":
        recover_transactions(cluster)
    elif who == "an administrator":
        admin.alter_group_offsets("g", {AT: OffsetAndMetadata(0)})
    elif who == "check --repair":
        recover_transactions(cluster)
        assert repair_cluster(cluster, check_cluster(cluster)).failed == []
    elif who == "its producer" and dies:
        with Producer(cluster, transactional_id="tx") as producer:
            producer.init_transactions()
    found = admin.list_group_offsets("g")
    assert found[ANOTHER].offset == 7
    assert AT not in found or found[AT].offset == 0, "nothing of partition 0 was ever committed"
    with Consumer(cluster=cluster, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([AT, ANOTHER])
        assert consumer.position(AT) == 0


def test_check_names_the_transactions_whose_entries_are_gone() -> None:
    memory, cluster = a_used_id()
    lose(memory)
    found = [finding for finding in check_cluster(cluster).errors if finding.subject.transactional_id == "tx"]
    assert {finding.code.value for finding in found} == {"transaction-not-committed"}


def test_an_id_whose_numbers_are_right_passes_none() -> None:
    memory, cluster = a_used_id()
    with Producer(cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        commit(producer, "next")
    numbers = [int(found.path[-25:-5]) for found in memory.list(transaction_log("tx"))]
    assert max(numbers) == 10


def a_used_topic(count: int = 3) -> tuple[MemoryStore, ManualClock, Cluster]:
    """A topic that has transactions of an id, the newest of number ``2 * count``, then plain records: its newest entry
    says nothing of the id, whose entries are all lost."""
    clock = ManualClock()
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, clock)
    create_topic(cluster.topic_log("t"), "t")
    driver = Driver(cluster, topics=["t"]).init()
    for number in range(count):
        driver.begin()
        driver.send("t", f"old {number}")
        driver.commit()
        driver.complete()
    append(TopicWriter(cluster.topic_log("t"), "t", checkpoints=no_checkpoints()), "plain")
    assert marker(cluster) == 2 * count
    lose(memory)
    return memory, clock, cluster


def marker(cluster: Cluster) -> int:
    return newest_marker(load_state(cluster.topic_log("t")), "tx")


def decide_and_die(cluster: Cluster) -> Driver:
    """The decision has number 2, since the topic's newest entry is all that its producer knows."""
    driver = Driver(cluster, topics=["t"]).init()
    assert newest_marker(driver.writers["t"].state, "tx") == 0
    driver.begin()
    driver.send("t", "new")
    named = TopicFiles(topic_id=driver.writers["t"].topic_id, files=tuple(driver.files["t"]))
    assert driver.session.commit({"t": named}, deadline=driver.deadline).number == 2
    return driver


def newest_entry(cluster: Cluster) -> TransactionEntry:
    newest, _ = open_transaction_log(cluster, "tx").open_newest()
    assert newest is not None
    return newest


def merge(cluster: Cluster) -> None:
    """Merge every file that is there."""
    append(TopicWriter(cluster.topic_log("t"), "t", checkpoints=no_checkpoints()), "p", "q", "r")
    while optimize_topic(cluster.topic_log("t"), "t", policy=OptimizePolicy(min_files=2, growth=1.01)).ranges:
        pass


def commit_another(cluster: Cluster) -> None:
    driver = Driver(cluster, topics=["t"]).init()
    driver.begin()
    driver.send("t", "another")
    driver.commit()
    driver.complete()


@pytest.mark.parametrize("count", [1, 3])
def test_whoever_finishes_a_transaction_publishes_it_beside_a_marker_of_before(count: int) -> None:
    """The topic has marker 2, which is the number of the new one, too, or marker 6."""
    _, _, cluster = a_used_topic(count)
    decide_and_die(cluster)
    for _ in range(2):
        recover_transactions(cluster)
        assert newest_entry(cluster).state is TransactionState.COMPLETE_COMMIT
        assert read_back(cluster, "t")[count:] == ["plain", "new"]
        assert marker(cluster) == 2 * count, "a marker never decreases"
    commit_another(cluster)
    assert read_back(cluster, "t")[count:] == ["plain", "new", "another"]


def test_a_producer_that_loads_the_topic_after_its_decision_publishes_as_well() -> None:
    """commit_transaction returned, and the records were nowhere."""
    _, _, cluster = a_used_topic()
    driver = decide_and_die(cluster)
    writer = driver.writers["t"]
    writer._state = reload_state(writer.state)  # as after a lost position
    driver.commit()
    assert read_back(cluster, "t")[3:] == ["plain", "new"]
    driver.complete()
    driver.begin()
    driver.send("t", "next")
    driver.commit()
    assert read_back(cluster, "t")[3:] == ["plain", "new", "next"]


def test_a_producer_of_the_client_that_dies_right_after_its_decision() -> None:
    _, _, cluster = a_used_topic()
    with Producer(cluster, transactional_id="tx", max_block_ms=10_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", value=b"new")
        dead = StoreUnavailableError("dead")
        with patch.object(TopicWriter, "publish", side_effect=dead), pytest.raises(KafkaTimeoutError, match="dead"):
            producer.commit_transaction()
        recover_transactions(cluster)
        assert read_back(cluster, "t")[3:] == ["plain", "new"]
        producer.commit_transaction()  # it lives, and says so now
    assert read_back(cluster, "t")[3:] == ["plain", "new"]


@pytest.mark.parametrize("skip", [0, 1])
def test_helpers_that_finish_at_once_publish_once(skip: int) -> None:
    """One of them decides, then sleeps while another one publishes, the producer goes on, and all is compacted."""
    memory, clock, cluster = a_used_topic()
    decide_and_die(cluster)
    log, entry = open_transaction_log(cluster, "tx"), newest_entry(cluster)
    acts = 0

    def others_act() -> None:
        nonlocal acts
        acts += 1
        recover_transactions(cluster)
        if skip:
            commit_another(cluster)
            merge(cluster)

    late = a_cluster(Overtaken(memory, "topics/t/_delta_log/", others_act), clock)
    publish_topics(late, log, entry, timeout_ms=10_000)
    assert acts == 1
    assert read_back(cluster, "t")[3:] == (["plain", "new", "another", "p", "q", "r"] if skip else ["plain", "new"])


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_what_was_published_and_compacted_since_is_not_published_again(is_checkpointed: bool) -> None:
    _, clock, cluster = a_used_topic()
    decide_and_die(cluster)
    log, entry = open_transaction_log(cluster, "tx"), newest_entry(cluster)
    publish_topics(cluster, log, entry, timeout_ms=10_000)
    merge(cluster)
    [file] = entry.contents.topics["t"].files
    assert file.path not in load_state(cluster.topic_log("t")).require_whole().index.by_path
    if is_checkpointed:
        clock.advance(2 * DAY_MS)
        append(TopicWriter(cluster.topic_log("t"), "t", checkpoints=no_checkpoints()), "later")
        write_checkpoint(cluster.topic_log("t"))
        assert clean_log(cluster.topic_log("t"), retention_ms=DAY_MS)
    before = read_back(cluster, "t")
    recover_transactions(cluster)
    assert newest_entry(cluster).state is TransactionState.COMPLETE_COMMIT
    assert read_back(cluster, "t") == before


@pytest.mark.parametrize(("age_days", "is_published"), [(4, True), (6, False)])
def test_once_a_removal_may_be_forgotten_the_marker_alone_counts(
    age_days: int, is_published: bool, caplog: pytest.LogCaptureFixture
) -> None:
    _, clock, cluster = a_used_topic()
    decide_and_die(cluster)
    clock.advance(age_days * DAY_MS)
    recover_transactions(cluster)
    assert ("new" in read_back(cluster, "t")) is is_published
    [warning] = [record.getMessage() for record in caplog.records if "knows none of the 1 files" in record.getMessage()]
    assert ("they count as published" in warning) is not is_published


def test_while_the_topic_can_not_be_loaded_nothing_counts_as_published() -> None:
    """The topic has a marker that isn't smaller, and whether it is of this transaction only the table tells."""
    memory, _, cluster = a_used_topic()
    driver = decide_and_die(cluster)
    recover_transactions(cluster)  # by another: the producer meets the marker as it follows the log
    first = next(found.path for found in memory.list("topics/t/_delta_log/"))
    data = memory.read(first)
    memory.delete([first])
    with pytest.raises(SparklogError):
        driver.commit()
    memory.put(first, data)
    driver.commit()
    assert read_back(cluster, "t")[3:] == ["plain", "new"]
