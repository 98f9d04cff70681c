"""Names of announced files: what an owner states is what others read, and nothing else is read as a name."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.log.announced.names import (
    Announcement,
    announcer_and_number,
    encode_name,
    folders_to_list,
    parse_name,
    topic_tag,
)
from sparklog.log.data.encode import MAX_TIMESTAMP_MS
from sparklog.log.data.producer_stamp import ProducerStamp
from sparklog.storage import LocalStore

TOPIC_ID = "0123456789abcdef" * 2
LONG = 2**63 - 1
MAX_VERSION = 32 * 10**12 - 1


def an_announcement(**changes):
    facts = {
        "known": 77,
        "partition": 3,
        "topic": topic_tag(TOPIC_ID),
        "announcer": 5,
        "number": 9,
        "ahead": 2,
        "part": 1,
        "parts": 2,
        "record_count": 4,
        "size_bytes": 1_000,
        "min_timestamp_ms": 10,
        "max_timestamp_ms": 20,
        "stamp": ProducerStamp(6, 0, 7),
        "uploaded_ms": 30,
        "salt": 11,
    }
    return Announcement(**{**facts, **changes})


def name_of(announcement):
    name = encode_name(announcement)
    assert name is not None
    return name


announcements = st.builds(
    lambda number, ahead, parts, part, times, stamp, **facts: Announcement(
        number=number,
        ahead=min(ahead, number + 1),
        parts=parts,
        part=part % parts,
        min_timestamp_ms=min(times),
        max_timestamp_ms=max(times),
        stamp=ProducerStamp(*stamp),
        **facts,
    ),
    known=st.integers(0, MAX_VERSION),
    partition=st.integers(0, 2**31 - 1),
    topic=st.integers(0, 2**48 - 1),
    announcer=st.integers(0, LONG),
    number=st.integers(0, 2**48 - 1),
    ahead=st.integers(1, 255),
    part=st.integers(0, 999),
    parts=st.integers(1, 1_000),
    record_count=st.integers(1, 2**32 - 1),
    size_bytes=st.integers(1, 2**40 - 1),
    times=st.lists(st.integers(0, MAX_TIMESTAMP_MS), min_size=2, max_size=2),
    stamp=st.tuples(st.integers(0, LONG), st.integers(0, 32_767), st.integers(0, 2**31 - 1)),
    uploaded_ms=st.integers(0, 2**48 - 1),
    salt=st.integers(0, 2**48 - 1),
)


@pytest.mark.slow
@given(announcements)
def test_a_name_states_all_facts(announcement):
    name = name_of(announcement)
    assert parse_name(name) == announcement
    assert announcement.to_uploaded().path == name
    assert announcement.to_uploaded().topic_version == announcement.known


@given(announcements)
def test_announcer_and_number_are_read_without_the_rest(announcement):
    assert announcer_and_number(name_of(announcement)) == (announcement.announcer, announcement.number)


@given(st.text())
def test_garbage_states_no_announcer_or_is_passed_over_later(text):
    assert announcer_and_number(text) is None or parse_name(text) is None


@pytest.mark.slow
@given(announcements, st.data())
def test_a_name_in_which_one_character_was_changed_states_nothing(announcement, data):
    name = name_of(announcement)
    at = data.draw(st.integers(0, len(name) - 1))
    other = data.draw(st.sampled_from("0123456789abcdef/.=x").filter(lambda one: bool(one != name[at])))
    assert parse_name(name[:at] + other + name[at + 1 :]) is None
    assert parse_name(name[:at] + name[at + 1 :]) is None


@given(st.text())
def test_garbage_states_nothing(text):
    assert parse_name(text) is None
    assert parse_name(f"announced/000000000002/{77:020d}/partition=3/{text}.parquet") is None


@pytest.mark.parametrize(
    "changes",
    [
        {"known": -1},
        {"known": MAX_VERSION + 1},
        {"partition": -1},
        {"partition": 2**31},
        {"announcer": LONG + 1},
        {"number": 2**48},
        {"ahead": 0},
        {"ahead": 256, "number": 300},
        {"ahead": 11},
        {"part": 2},
        {"parts": 0},
        {"parts": 1_001},
        {"record_count": 0},
        {"record_count": 2**32},
        {"size_bytes": 0},
        {"size_bytes": 2**40},
        {"min_timestamp_ms": 21},
        {"min_timestamp_ms": -1},
        {"max_timestamp_ms": MAX_TIMESTAMP_MS + 1},
        {"stamp": ProducerStamp(LONG + 1, 0, 0)},
        {"stamp": ProducerStamp(1, 32_768, 0)},
        {"stamp": ProducerStamp(1, 0, 2**31)},
        {"uploaded_ms": 2**48},
        {"uploaded_ms": -1},
        {"salt": 2**48},
    ],
    ids=str,
)
def test_a_fact_that_doesnt_fit_makes_no_name(changes):
    assert encode_name(an_announcement(**changes)) is None


def test_a_name_says_the_folder_of_its_version_and_partition():
    name = name_of(an_announcement(known=77, partition=3))
    assert name.startswith(f"announced/000000000002/{77:020d}/partition=3/01")


def test_the_longest_name_fits_a_local_store(tmp_path):
    longest = an_announcement(known=MAX_VERSION, partition=2**31 - 1)
    store = LocalStore(tmp_path)
    store.put(f"t/{encode_name(longest)}", b"x")
    assert [found.path for found in store.list("t/announced/")] == [f"t/{encode_name(longest)}"]


@pytest.mark.parametrize(("topic_id", "tag"), [(TOPIC_ID, 0x0123456789AB), ("id", None), ("not hexadecimal", None)])
def test_the_tag_of_a_topic_is_the_beginning_of_its_id(topic_id, tag):
    assert topic_tag(topic_id) == tag


@pytest.mark.parametrize(
    ("version", "listed"),
    [
        (0, [(0, 0)]),
        (5, [(0, 0)]),
        (6, [(0, 1)]),
        (31, [(0, 26)]),
        (33, [(0, 28), (1, 32)]),
        (36, [(0, 21), (1, 32)]),
        (37, [(1, 32)]),
        (48, [(1, 33)]),
    ],
)
def test_what_is_listed_begins_six_versions_ago_and_at_times_sixteen(version, listed):
    expected = tuple((f"announced/{b:012d}/", f"announced/{b:012d}/{known:020d}/") for b, known in listed)
    assert folders_to_list(version) == expected


def test_a_wide_listing_begins_64_versions_ago():
    expected = [(2, 67), (3, 96), (4, 128)]
    assert folders_to_list(130, is_wide=True) == tuple(
        (f"announced/{b:012d}/", f"announced/{b:012d}/{known:020d}/") for b, known in expected
    )
    assert folders_to_list(5, is_wide=True) == folders_to_list(5)


def test_a_listing_that_begins_at_a_version_shows_its_files():
    ((folder, after),) = folders_to_list(6)
    assert name_of(replace(an_announcement(), known=1)) > after
    assert name_of(replace(an_announcement(), known=0)) < after
    assert after.startswith(folder)
