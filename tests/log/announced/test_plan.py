"""Which flushes of others a commit takes, row by row of the includer's table, and what its entry says."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.config import TopicConfig
from sparklog.delta.actions import AddFile, SetTransaction
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.announced.names import Announcement, topic_tag
from sparklog.log.announced.plan import Listed, Listing, OwnFlush, StoreClock, plan_group, takeable
from sparklog.log.data.data_files import UploadedFile
from sparklog.log.data.encode import EncodedBatch
from sparklog.log.data.producer_stamp import ProducerStamp
from sparklog.log.head import TopicHead
from sparklog.log.uploads import Vacuum

TOPIC_ID = "0123456789abcdef" * 2
OTHER_ID = "f123456789abcdef" * 2
A, B, ME = 1, 2, 3
VERSION = 20
NOW = 1_000.0
STORE_MS = 5_000_000
FRESH_MS = 300_000


def a_head(ends=(0, 0), **changes):
    fields = {
        "delta_version": VERSION,
        "topic_id": TOPIC_ID,
        "deleted": False,
        "config": TopicConfig(),
        "log_start_offsets": (0,) * len(ends),
        "log_end_offsets": tuple(ends),
        "live_file_count": 10,
        "unsequenced_count": 0,
    }
    return TopicHead(**{**fields, **changes})


def a_listed(
    announcer=A, number=0, part=0, *, parts=1, ahead=None, known=18, partition=0, count=2, topic_id=TOPIC_ID, age_ms=100
):
    tag = topic_tag(topic_id)
    assert tag is not None
    announcement = Announcement(
        known=known,
        partition=partition,
        topic=tag,
        announcer=announcer,
        number=number,
        ahead=number + 1 if ahead is None else ahead,
        part=part,
        parts=parts,
        record_count=count,
        size_bytes=900,
        min_timestamp_ms=5,
        max_timestamp_ms=6,
        stamp=ProducerStamp(7, 0, 0),
        uploaded_ms=STORE_MS - age_ms,
        salt=number * 10 + part,
    )
    return Listed(announcement=announcement, modified_ms=STORE_MS - age_ms, size_bytes=900)


def a_listing(*files):
    return Listing(files=files, store_ms=STORE_MS, at_ticks_ms=NOW)


def taken(*files, settled=None, forgotten=-1, trusted=(A, B), now=NOW, vacuums=(), head=None, room=500):
    flushes = takeable(
        a_listing(*files),
        head=head or a_head(),
        settled=settled or {},
        forgotten_version=forgotten,
        vacuums=vacuums,
        trusted=trusted,
        own={ME},
        now_ticks_ms=now,
        room=room,
    )
    return [(flush[0].announcement.announcer, flush[0].announcement.number) for flush in flushes]


def test_a_flush_that_meets_every_rule_is_taken():
    assert taken(a_listed()) == [(A, 0)]
    assert taken() == []


def test_facts_a_file_of_another_size_is_passed_over():
    assert taken(replace(a_listed(), size_bytes=899)) == []


def test_facts_a_file_that_states_what_no_owner_does_is_passed_over():
    lie = a_listed()
    assert taken(replace(lie, announcement=replace(lie.announcement, record_count=0))) == []


def test_facts_a_partition_is_taken_as_of_the_state_that_is_decided_on():
    assert taken(a_listed(partition=2)) == []
    assert taken(a_listed(partition=2), head=a_head((0, 0, 0))) == [(A, 0)]


def test_topic_a_file_for_another_topic_of_the_name_is_passed_over():
    assert taken(a_listed(topic_id=OTHER_ID)) == []


def test_topic_nothing_is_taken_into_a_deleted_topic():
    assert taken(a_listed(), head=a_head(deleted=True)) == []


def test_complete_a_flush_waits_for_all_of_its_parts():
    first, second = a_listed(part=0, parts=2), a_listed(part=1, parts=2, partition=1)
    assert taken(second) == []
    assert taken(second, first) == [(A, 0)]


def test_complete_a_part_that_is_there_twice_is_not_taken():
    one = a_listed()
    assert taken(one, replace(one, announcement=replace(one.announcement, salt=99))) == []


def test_complete_parts_that_state_another_version_are_not_of_one_flush():
    assert taken(a_listed(part=0, parts=2), a_listed(part=1, parts=2, known=17)) == []


def test_complete_the_flushes_behind_one_in_part_wait_too():
    assert taken(a_listed(number=0, parts=2), a_listed(number=1)) == []


def test_knowledge_who_has_forgotten_what_the_owner_knew_leaves_it():
    assert taken(a_listed(known=18), forgotten=18) == [(A, 0)]
    assert taken(a_listed(known=18), forgotten=19) == []


def test_knowledge_who_is_behind_the_owner_leaves_it():
    assert taken(a_listed(known=VERSION)) == [(A, 0)]
    assert taken(a_listed(known=VERSION + 1)) == []


def test_number_what_is_settled_isnt_taken_again():
    files = [a_listed(number=number) for number in range(3)]
    assert taken(*files, settled={A: 1}) == [(A, 2)]
    assert taken(*files, settled={A: 2}) == []


def test_number_no_number_is_passed_over():
    assert taken(a_listed(number=1, ahead=2), a_listed(number=3, ahead=4), settled={A: 0}) == [(A, 1)]
    assert taken(a_listed(number=2, ahead=3), settled={A: 0}) == []


def test_number_where_none_is_known_the_owner_is_believed():
    assert taken(a_listed(number=7, ahead=1)) == [(A, 7)]
    assert taken(a_listed(number=7, ahead=1), a_listed(number=8, ahead=2)) == [(A, 7), (A, 8)]
    assert taken(a_listed(number=8, ahead=2)) == []


def test_number_what_the_includer_knows_counts_more_than_what_the_owner_states():
    assert taken(a_listed(number=7, ahead=1), settled={A: 5}) == []


def test_number_a_flush_that_is_settled_may_lack_parts():
    assert taken(a_listed(number=0, parts=2), a_listed(number=1), settled={A: 0}) == [(A, 1)]


def test_age_what_is_old_by_now_is_left_to_its_owner():
    assert taken(a_listed(age_ms=FRESH_MS - 1)) == [(A, 0)]
    assert taken(a_listed(age_ms=FRESH_MS)) == []
    assert taken(a_listed(age_ms=100), now=NOW + FRESH_MS - 101) == [(A, 0)]
    assert taken(a_listed(age_ms=100), now=NOW + FRESH_MS - 100) == []


def test_age_half_of_a_short_retention_counts():
    head = a_head(deleted_file_retention_ms=20_000)
    assert taken(a_listed(age_ms=9_999), head=head) == [(A, 0)]
    assert taken(a_listed(age_ms=10_000), head=head) == []


def test_age_what_a_vacuum_may_take_is_left_to_its_owner():
    vacuum = Vacuum(version=19, horizon_ms=STORE_MS)
    assert taken(a_listed(known=18), vacuums=[vacuum]) == []
    assert taken(a_listed(known=19), vacuums=[vacuum]) == [(A, 0)]


def test_trust_an_announcer_whose_files_nobody_has_read_is_left():
    assert taken(a_listed(A), a_listed(B), trusted=(B,)) == [(B, 0)]


def test_an_includer_doesnt_take_its_own_from_the_listing():
    assert taken(a_listed(ME), trusted=(A, ME)) == []


def test_bounds_whole_flushes_are_taken_as_long_as_there_is_room():
    large = [a_listed(A, 0, part, parts=3) for part in range(3)]
    small = [a_listed(B, number, known=19) for number in range(3)]
    assert taken(*large, *small, room=4) == [(A, 0), (B, 0)]
    assert taken(*large, *small, room=2) == [(B, 0), (B, 1)]


def test_the_oldest_are_taken_first_and_each_announcers_in_order():
    files = [
        a_listed(A, 0, known=18, age_ms=50),
        a_listed(A, 1, known=18, age_ms=40),
        a_listed(B, 0, known=17, age_ms=10),
        a_listed(B, 1, known=18, age_ms=45),
    ]
    assert taken(*files) == [(B, 0), (A, 0), (B, 1), (A, 1)]


def test_the_files_of_a_flush_are_in_the_order_of_its_parts():
    parts = [a_listed(part=part, parts=3) for part in (2, 0, 1)]
    (flush,) = takeable(
        a_listing(*parts),
        head=a_head(),
        settled={},
        forgotten_version=-1,
        vacuums=(),
        trusted=(A,),
        own=(),
        now_ticks_ms=NOW,
    )
    assert [file.announcement.part for file in flush] == [0, 1, 2]


# The entry.


def an_own_file(path, partition=0, count=1):
    batch = EncodedBatch(
        data=b"x" * 9, record_count=count, min_timestamp_ms=5, max_timestamp_ms=6, stamp=ProducerStamp(9, 0, 0)
    )
    return UploadedFile.of(path, partition, batch, uploaded_ms=77)


def own(number, *paths, announcer=ME, is_given_up=False):
    files = tuple(an_own_file(path) for path in paths)
    return OwnFlush(announcer=announcer, number=number, files=files, is_given_up=is_given_up)


def planned(flushes, others=(), *, counter=None, head=None):
    return plan_group(head or a_head(), flushes, others, counter=counter, topic="t", now_ms=77)


def added(plan):
    return [action.path for action in plan.commit.actions if isinstance(action, AddFile)]


def settles(plan):
    return {action.app_id: action.version for action in plan.commit.actions if isinstance(action, SetTransaction)}


def test_nobody_commits_for_others_alone():
    assert planned([], [(a_listed(),)]) is None


def test_own_files_come_first_and_each_announcers_greatest_number_is_settled():
    others = [(a_listed(A, 0),), (a_listed(A, 1),), (a_listed(B, 4),)]
    plan = planned([own(5, "x"), own(6, "y")], others)
    assert added(plan) == ["x", "y", *(flush[0].announcement.path for flush in others)]
    assert settles(plan) == {f"announced:{ME}": 6, f"announced:{A}": 1, f"announced:{B}": 4}
    assert plan.commit.includes_others
    assert plan.commit.blind_append
    assert plan.commit.operation == "WRITE"
    assert list(plan.commit.synced_first) == [flush[0].announcement.path for flush in others]


def test_a_flush_that_was_given_up_is_left_out_and_settled():
    plan = planned([own(5, "x", is_given_up=True), own(6, "y")])
    assert added(plan) == ["y"]
    assert settles(plan) == {f"announced:{ME}": 6}
    alone = planned([own(5, "x", is_given_up=True)])
    assert added(alone) == []
    assert settles(alone) == {f"announced:{ME}": 5}
    assert alone.commit.head.log_end_offsets == (0, 0)


def test_an_ordinary_flush_is_counted_and_settles_no_number():
    counter = SetTransaction(app_id="9", version=3, last_updated_ms=77)
    plan = planned([own(0, "x", announcer=None)], counter=counter)
    assert settles(plan) == {"9": 3}
    assert not plan.commit.includes_others


def test_a_partition_that_the_topic_doesnt_have_is_named():
    flush = OwnFlush(announcer=ME, number=0, files=(an_own_file("x", partition=2),))
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 2; it has 0 to 1"):
        planned([flush])


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 2**40), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), max_size=5),
    st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 5), st.integers(0, 2), st.integers(1, 4)), max_size=12),
)
def test_offsets_follow_one_another_for_any_input(ends, mine, theirs):
    head = a_head(ends)
    listed = [a_listed(a, n, partition=p % len(ends), count=c) for a, n, p, c in theirs]
    others = takeable(
        a_listing(*listed),
        head=head,
        settled={},
        forgotten_version=-1,
        vacuums=(),
        trusted=(A, B),
        own={ME},
        now_ticks_ms=NOW,
    )
    files = tuple(an_own_file(f"own-{n}", p % len(ends), c) for n, (p, c) in enumerate(mine))
    plan = planned([OwnFlush(announcer=ME, number=0, files=files)], others, head=head)
    reached = list(ends)
    for action in plan.commit.actions:
        if isinstance(action, AddFile):
            partition = int(action.partition_values["partition"] or 0)
            base_offset = int(action.partition_values["base_offset"] or 0)
            assert base_offset == reached[partition] == plan.base_offsets[action.path]
            reached[partition] += (action.stats or {})["numRecords"]
    assert plan.commit.head.log_end_offsets == tuple(reached)
    numbers = [flush[0].announcement.number for flush in others if flush[0].announcement.announcer == A]
    assert numbers == [*range(len(numbers))]


# The store's time.


def test_the_stores_time_is_known_for_a_minute_after_an_own_file_was_seen():
    clock = StoreClock()
    assert clock.store_ms(0.0) is None
    clock.observe(5_000, began_ticks_ms=100.0, now_ticks_ms=400.0)
    assert clock.store_ms(400.0) == 5_300
    assert clock.store_ms(60_400.0) == 65_300
    assert clock.store_ms(60_401.0) is None
