"""Numbers of generations go on above those that were used, also where the log of generations was emptied or cut."""

import pytest

from sparklog.errors import NonEmptyGroupError
from sparklog.groups.admin.emptiness import empty_generation
from sparklog.groups.admin.unowned_commits import EmptyGroup
from sparklog.groups.membership.generation_numbers import greatest_stamp, not_to_be_taken
from sparklog.groups.membership.generations import encode_generation, generation_log
from sparklog.groups.membership.proposals import empty_plan
from sparklog.groups.offsets.changes import GENERATION_FENCE, CommitUnowned, DeleteAll
from sparklog.groups.offsets.rows import OffsetRow, Stamp
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.paths import generation_path
from tests.groups.membership.support import Group, Member, owned_once

FOLDER = "groups/g/generations/"


def empty_the_log(group: Group, *, keep: int = 0) -> list[int]:
    """Delete the entries of generations above ``keep``, as a rule by age does; returns their numbers."""
    gone = [found.path for found in group.memory.list(FOLDER) if found.path > generation_path("g", keep)]
    group.memory.delete(gone)
    return [int(path[len(FOLDER) :].removesuffix(".json")) for path in gone if path.endswith(".json")]


def three_lives(group: Group) -> int:
    """Members that come and go; the last number that was given."""
    for name in ("a", "b", "c"):
        member = Member(group, name)
        group.rounds(member, intervals=8)
        assert owned_once(member) == [0, 1, 2, 3]
        assert member.commit(7) is None
        member.loop.leave()
    return group.generation


def restart_at_1(group: Group) -> None:
    """What a client did that didn't know of used numbers."""
    plan = empty_plan(now_ms=group.clock.now_ms())
    group.memory.create(generation_path("g", 1), encode_generation(plan, "old"))


def test_an_emptied_log_begins_above_all_stamps():
    group = Group()
    last = three_lives(group)
    empty_the_log(group)
    member = Member(group, "new")
    group.rounds(member, intervals=8)
    assert owned_once(member) == [0, 1, 2, 3]
    assert set(member.has.values()) == {7}  # where the group had been
    assert group.generation >= greatest_stamp(group.rows) >= last - 1
    assert min(int(found.path[len(FOLDER) :][:20]) for found in group.memory.list(FOLDER)) > last - 1


def test_members_that_find_it_empty_at_once_share_one_log():
    group = Group()
    three_lives(group)
    empty_the_log(group)
    members = [Member(group, name) for name in ("x", "y", "z")]
    group.rounds(*members, intervals=20)
    assert owned_once(*members) == [0, 1, 2, 3]
    numbers = sorted(int(found.path[len(FOLDER) :][:20]) for found in group.memory.list(FOLDER))
    assert numbers == [*range(numbers[0], numbers[-1] + 1)]


@pytest.mark.parametrize("lives_ms", [0, 50_000, 600_000])
def test_a_member_that_lives_through_the_deletion_and_a_new_one_share_the_group(lives_ms):
    group = Group()
    three_lives(group)
    living = Member(group, "living")
    group.rounds(living, intervals=8)
    empty_the_log(group)
    group.rounds(living, intervals=lives_ms / 3_000 + 1)
    new = Member(group, "new")
    group.rounds(living, new, intervals=40)
    assert owned_once(living, new) == [0, 1, 2, 3]
    assert living.has
    assert new.has


def test_a_steady_member_whose_generation_is_gone_comes_back():
    group = Group()
    three_lives(group)
    living = Member(group, "living")
    group.rounds(living, intervals=8)
    last = group.generation
    empty_the_log(group)
    group.rounds(living, intervals=40)  # two minutes, and nobody else comes
    assert group.generation > last
    assert owned_once(living) == [0, 1, 2, 3]
    assert living.commit(9) is None


def test_a_member_behind_a_gap_finds_the_newest_generation():
    group = Group()
    members = [Member(group, name) for name in ("a", "b")]
    group.rounds(*members, intervals=20)
    sleeper, awake = members
    before = group.generation
    late, later = Member(group, "late"), Member(group, "later")
    group.rounds(awake, late, intervals=1)
    group.rounds(awake, late, later, intervals=1.5)
    assert group.generation > before + 1
    group.memory.delete([generation_path("g", before + 1)])
    group.rounds(sleeper, awake, late, later, intervals=60)
    assert owned_once(sleeper, awake, late, later) == [0, 1, 2, 3]
    assert sleeper.has


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_a_log_that_has_restarted_is_filled_until_it_is_above_the_stamps(keep):
    group = Group()
    three_lives(group)
    stamped = greatest_stamp(group.rows)
    empty_the_log(group, keep=keep)
    if keep == 0:
        restart_at_1(group)
    members = [Member(group, name) for name in ("x", "y")]
    group.rounds(*members, intervals=60)
    assert owned_once(*members) == [0, 1, 2, 3]
    assert group.generation > stamped
    assert members[0].commit(8) is members[1].commit(8) is None
    numbers = sorted(int(found.path[len(FOLDER) :][:20]) for found in group.memory.list(FOLDER))
    assert numbers == [*range(1, numbers[-1] + 1)]  # each, so that those who follow the log arrive


def test_a_log_that_ends_at_a_used_number_goes_on():
    group = Group()
    three_lives(group)
    stamped = greatest_stamp(group.rows)
    empty_the_log(group)
    for number in range(1, stamped):  # the next member's generation has the number of the newest stamps
        plan = empty_plan(now_ms=group.clock.now_ms())
        group.memory.create(generation_path("g", number), encode_generation(plan, f"old {number}"))
    member = Member(group, "new")
    group.rounds(member, intervals=20)
    assert owned_once(member) == [0, 1, 2, 3]


@pytest.mark.parametrize("restarted", [False, True])
def test_administrators_write_above_the_numbers_that_were_used(restarted):
    group = Group()
    three_lives(group)
    stamped = greatest_stamp(group.rows)
    empty_the_log(group)
    if restarted:
        restart_at_1(group)
    group.clock.advance(60_000)
    cluster = group.cluster(group.memory)
    number = EmptyGroup(cluster, "g").generation()
    assert number > stamped
    partition = TopicPartition("t", 0)
    change = CommitUnowned(offsets={partition: OffsetAndMetadata(3)}, topic_ids={}, generation=number)
    member = Member(group, "table")
    deadline = group.clock.deadline_in(30_000)
    assert member.table.change([change, DeleteAll(generation=number)], deadline=deadline).errors == (None, None)
    assert empty_generation(cluster, "g", NonEmptyGroupError("no")) == number
    new = Member(group, "new")
    group.rounds(new, intervals=12)
    assert owned_once(new) == [0, 1, 2, 3]


def test_a_group_that_never_had_a_generation_begins_at_1():
    group = Group()
    assert empty_generation(group.cluster(group.memory), "g", NonEmptyGroupError("no")) == 0
    group.rounds(Member(group, "a"))
    assert group.memory.exists(generation_path("g", 1))


def a_row(generation: int, member: str) -> OffsetRow:
    return OffsetRow(topic_id="", stamp=Stamp(generation, member), committed=None, commit_timestamp_ms=0)


@pytest.mark.parametrize(
    ("key", "generation", "member", "is_wrong"),
    [
        (TopicPartition("t", 0), 0, "", False),
        (TopicPartition("t", 0), 1, "", False),
        (TopicPartition("t", 0), 1, "stranger", True),
        (TopicPartition("t", 0), 2, "", True),
        (GENERATION_FENCE, 1, "", True),
        (GENERATION_FENCE, 0, "", False),
    ],
)
def test_a_stamp_that_no_generation_explains_is_found(key, generation, member, is_wrong):
    group = Group()
    known = Member(group, "a")
    group.rounds(known)
    newest, _ = generation_log(group.cluster(group.memory), "g").open_newest()
    assert newest is not None
    assert newest.version == 1
    assert (not_to_be_taken(newest, {key: a_row(generation, member)}) is not None) == is_wrong
    assert not_to_be_taken(newest, group.rows) is None


def test_who_joins_behind_a_gap_takes_its_partitions():
    group = Group()
    three_lives(group)
    last = group.generation
    first = Member(group, "first")
    group.rounds(first, intervals=8)
    group.memory.delete([generation_path("g", number) for number in (last - 1, last)])
    second = Member(group, "second")
    group.rounds(first, second, intervals=40)
    assert owned_once(first, second) == [0, 1, 2, 3]
    assert second.has
