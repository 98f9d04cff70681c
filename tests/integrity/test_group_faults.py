"""Damage to a group, each kind planted: it is found, and nothing else is."""

from __future__ import annotations

import pytest

from sparklog.groups.membership.generations import GenerationPlan, encode_generation
from sparklog.groups.membership.member_state import MemberState, encode_member
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.pending import PendOffsets
from sparklog.groups.offsets.rows import Decider
from sparklog.integrity import Code, check_cluster
from sparklog.log import Cluster, delete_records, delete_topic, describe_topic
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.paths import generation_path, group_offsets_table, member_state
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from sparklog.txn.states import TransactionState
from tests.integrity.support import ANN, a_plain_world, codes, commit_offset, found, infos, seen
from tests.support import T0_MS
from tests.txn.support import Driver, a_log

AT = TopicPartition("t", 0)


def a_group_world(offset: int = 5) -> tuple[MemoryStore, ManualClock, Cluster]:
    """Topic ``t`` with offsets 0 to 7, of which group ``h`` has committed one."""
    memory, clock, cluster, _ = a_plain_world()
    commit_offset(cluster, AT, offset)
    return memory, clock, cluster


@pytest.mark.parametrize("offset", [0, 8])
def test_an_offset_within_the_log_is_fine(offset: int) -> None:
    _, _, cluster = a_group_world(offset)
    report = check_cluster(cluster)
    assert report.findings == ()
    assert report.counts.committed_offsets == 1


def test_an_offset_above_the_log_end_is_found() -> None:
    _, _, cluster = a_group_world(9)
    report = check_cluster(cluster)
    assert codes(report) == {"committed-above-end"}
    [finding] = report.errors
    assert (finding.subject.group, finding.subject.topic, finding.subject.partition) == ("h", "t", 0)
    assert finding.expected.startswith("8 or less")


def test_an_offset_below_the_log_start_is_a_warning() -> None:
    _, _, cluster = a_group_world(1)
    delete_records(cluster.topic_log("t"), "t", {0: 4})
    report = check_cluster(cluster)
    assert codes(report) == {"committed-below-start"}
    assert report.errors == ()


def test_an_offset_of_a_partition_that_is_not_there_is_found() -> None:
    _, _, cluster = a_group_world()
    topic_id = check_id(cluster)
    commit_offset(cluster, TopicPartition("t", 3), 1, topic_id=topic_id)
    assert found(cluster) == {"committed-unknown-partition"}


def test_an_offset_of_a_topic_that_is_gone_is_told() -> None:
    _, _, cluster = a_group_world()
    delete_topic(cluster.topic_log("t"), "t")
    assert found(cluster) == set()
    assert infos(cluster) == {"committed-topic-gone"}


def test_an_offset_table_whose_file_is_gone_is_found() -> None:
    memory, _, cluster = a_group_world()
    folder = f"{group_offsets_table('h')}/"
    memory.delete([one.path for one in memory.list(folder) if one.path.endswith(".parquet")])
    assert found(cluster) == {"group-unreadable"}


def test_an_offset_table_whose_log_has_a_hole_is_found() -> None:
    memory, _, cluster = a_group_world()
    for offset in (6, 7):
        commit_offset(cluster, AT, offset)
    entries = [one.path for one in memory.list(f"{group_offsets_table('h')}/") if one.path.endswith(".json")]
    memory.delete([entries[1]])
    assert found(cluster) == {"group-unreadable"}


def a_generation(cluster: Cluster, number: int) -> None:
    plan = GenerationPlan(members={}, topics={}, assignment={}, created_ms=T0_MS)
    cluster.store.put(generation_path("h", number), encode_generation(plan, f"token {number}"))


def test_a_missing_generation_is_found() -> None:
    memory, _, cluster = a_group_world()
    for number in (1, 2, 3):
        a_generation(cluster, number)
    assert found(cluster) == set()
    memory.delete([generation_path("h", 2)])
    assert found(cluster) == {"generation-gap"}


def test_a_generation_that_is_cut_is_found() -> None:
    memory, _, cluster = a_group_world()
    a_generation(cluster, 1)
    memory.put(generation_path("h", 1), memory.read(generation_path("h", 1))[:-9])
    assert found(cluster) == {"group-unreadable"}


def test_members_without_a_generation_are_told_and_garbled_ones_are_a_warning() -> None:
    memory, _, cluster, _ = a_plain_world()
    state = MemberState(
        member_id="m",
        instance_id=None,
        client_id="c",
        host="h",
        topics=("t",),
        assignors=("range",),
        session_timeout_ms=1,
        generation=0,
        claims=frozenset(),
    )
    memory.put(member_state("h", "m"), encode_member(state))
    assert found(cluster) == set()
    assert infos(cluster) == {"member-without-group"}
    a_generation(cluster, 1)
    assert infos(cluster) == set()
    memory.put(member_state("h", "m"), b"{")
    assert found(cluster) == {"member-corrupt"}


# Offsets that wait for a transaction.


def pend(cluster: Cluster, decider: Decider) -> None:
    change = PendOffsets(offsets={AT: OffsetAndMetadata(7)}, decider=decider, owner=ANN, topic_ids={})
    done = OffsetTable(cluster, "h").change([change], deadline=cluster.clock.deadline_in(60_000))
    assert done.errors == (None,)


def a_transaction(cluster: Cluster, *, commits: bool) -> None:
    """Entries 2 and 3 of ``tx`` decide and finish one that moves an offset."""
    driver = Driver(cluster, topics=("t",)).init()
    driver.begin()
    driver.send("t", "one")
    metadata = ConsumerGroupMetadata("h", ANN.generation, ANN.member, None)
    driver.session.add_offsets({AT: OffsetAndMetadata(7)}, metadata, deadline=driver.deadline)
    if commits:
        driver.commit()
        driver.complete()
    else:
        driver.abort()
    states = [a_log(cluster).read_entry(number) for number in (2, 3)]
    expected = TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT
    assert states[1] is not None
    assert states[1].state is expected


def test_an_offset_of_a_transaction_that_is_open_or_being_finished_is_fine() -> None:
    _, _, cluster = a_group_world()
    Driver(cluster, topics=("t",)).init()
    pend(cluster, Decider("tx", 0, 2))
    assert check_cluster(cluster).findings == ()


@pytest.mark.parametrize(("commits", "code"), [(True, "pending-committed"), (False, "pending-aborted")])
def test_an_offset_that_waits_for_a_finished_transaction_is_found(commits: bool, code: str) -> None:
    _, _, cluster = a_group_world()
    a_transaction(cluster, commits=commits)
    pend(cluster, Decider("tx", 0, 2))
    assert found(cluster) == {code}


@pytest.mark.parametrize("name", ["tx", "nosuch"])
def test_an_offset_that_waits_for_an_unknown_transaction_is_found(name: str) -> None:
    _, _, cluster = a_group_world()
    Driver(cluster, topics=("t",)).init()
    pend(cluster, Decider(name, 0, 9))
    report = check_cluster(cluster)
    assert codes(report) == {"pending-unknown"}
    assert name in str(report.errors[0].subject)
    assert Code.PENDING_UNKNOWN.value in str(report)
    assert seen(report, Code.PENDING_UNKNOWN)[0].startswith("offsets wait for entry 9")


def check_id(cluster: Cluster) -> str:
    return describe_topic(cluster.topic_log("t"), "t").topic_id
