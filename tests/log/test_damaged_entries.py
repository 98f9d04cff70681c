"""Entries that changed at rest, and entries that are JSON but not what an entry is: each is refused by one error that
names it, or is read as it was."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.checksums import SUM_FIELD
from sparklog.delta.actions import Entry, decode_entry
from sparklog.delta.names import entry_path
from sparklog.errors import CorruptLogError, NotATopicError, SparklogError, UnsupportedVersionError
from sparklog.groups.membership.generations import (
    GenerationMember,
    GenerationPlan,
    Subscription,
    TopicFacts,
    decode_generation,
    encode_generation,
)
from sparklog.groups.sharing.entries import decode_entry as decode_share_entry
from sparklog.groups.sharing.entries import encode_entry as encode_share_entry
from sparklog.groups.sharing.states import RecordState, SharePartition, StateRange
from sparklog.log.follow import TopicFollower
from sparklog.log.state import load_state, open_state
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.depth import by_depth
from tests.support import T0_MS, a_topic, a_writer, append, resealed


def an_entry(number: int = 1) -> bytes:
    log = a_topic(configs={"retention.ms": 86_400_000})
    append(a_writer(log), "a", "b")
    return log.store.read(entry_path(log.table, number))


def a_generation() -> bytes:
    member = GenerationMember(
        instance_id=None, client_id="c", host="h", subscription=Subscription(("crc32",), "", ("range",))
    )
    plan = GenerationPlan(
        members={"m": member},
        topics={"crc32": TopicFacts(topic_id="00", partition_count=1, first_count=1)},
        assignment={"m": frozenset({TopicPartition("crc32", 0)})},
        created_ms=1,
    )
    return encode_generation(plan, "mine")


def a_share_entry() -> bytes:
    state = StateRange(first=5, last=7, state=RecordState.AVAILABLE, delivery_count=1)
    return encode_share_entry(SharePartition(topic_id="00", start_offset=5, ranges=(state,), locks={}), "mine")


ENTRIES: dict[str, tuple[bytes, Callable[[int, str, bytes], Any]]] = {
    "a topic's first": (an_entry(0), decode_entry),
    "a topic's": (an_entry(1), decode_entry),
    "a generation": (a_generation(), decode_generation),
    "a share group's": (a_share_entry(), decode_share_entry),
}


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    for at in range(len(data)):
        for bit in range(8):
            yield at, data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


@pytest.mark.parametrize(("data", "decode"), [*ENTRIES.values()], ids=[*ENTRIES])
def test_each_bit_of_an_entry_that_changes_is_found(data, decode):
    whole = decode(7, "topics/t/7", data)
    named = data.index(SUM_FIELD.encode())
    for at, changed in flips(data):
        try:
            found = decode(7, "topics/t/7", changed)
        except (CorruptLogError, UnsupportedVersionError):
            continue
        assert named <= at < named + len(SUM_FIELD)  # it states no checksum, and is as it was but for that
        if isinstance(whole, Entry):
            assert (found.actions, found.token) == (whole.actions, whole.token)
        else:
            assert found == whole


def test_an_entry_with_our_marks_and_without_its_info_is_damaged_and_not_foreign():
    for name in (b'"sparklog":{', b'"commitInfo":{'):
        changed = an_entry().replace(name, b'"another' + name[-3:], 1)
        with pytest.raises(CorruptLogError, match="sparklog wrote it"):
            decode_entry(1, "path", changed)
    foreign = b'{"commitInfo":{"engineInfo":"other/1","userMetadata":"\\"engineInfo\\":\\"sparklog/"}}'
    assert decode_entry(1, "path", foreign).info is None


def test_older_entries_have_no_checksum_and_are_read():
    entry = an_entry()
    lines = entry.split(b"\n")
    first = json.loads(lines[0])
    del first["commitInfo"]["sparklog"][SUM_FIELD]
    older = b"\n".join([json.dumps(first).encode(), *lines[1:]])
    assert decode_entry(1, "path", older).actions == decode_entry(1, "path", entry).actions


OFFSETS = [
    ("log_end_offsets", [10**27]),
    ("log_end_offsets", "x"),
    ("log_end_offsets", None),
    ("log_end_offsets", {"a": 1}),
    ("log_end_offsets", [2.0]),
    ("log_end_offsets", [True]),
    ("log_end_offsets", [2, 3]),
    ("log_end_offsets", [2**63]),
    ("log_start_offsets", ["-5"]),
    ("log_start_offsets", [-1]),
    ("log_start_offsets", [3]),
    ("log_start_offsets", [None]),
    ("log_start_offsets", 0),
    ("live_files", "5"),
    ("live_files", -1),
    ("unsequenced", [1]),
    ("config", 5),
    ("config", None),
    ("config", ["retention.ms"]),
]


@pytest.mark.parametrize(("name", "value"), OFFSETS)
def test_an_entry_states_log_starts_and_ends_or_is_refused(name, value):
    log = a_topic()
    append(writer := a_writer(log), "a", "b")
    edit(log, 1, lambda lines: lines[0]["commitInfo"]["sparklog"].update({name: value}))
    with pytest.raises(CorruptLogError, match="version 1"):
        open_state(log)
    with pytest.raises(CorruptLogError, match="version 1"):
        append(a_writer(log), "c")
    assert writer.state.head.log_end_offsets == (2,)


@pytest.mark.parametrize("name", ["log_start_offsets", "log_end_offsets"])
def test_no_partition_is_no_topic(name):
    log = a_topic()
    append(a_writer(log), "a")
    edit(log, 1, lambda lines: lines[0]["commitInfo"]["sparklog"].update(log_start_offsets=[], log_end_offsets=[]))
    with pytest.raises(CorruptLogError, match="0 and 0 partitions"):
        open_state(log)


def test_nested_json_and_numbers_beyond_64_bits_are_named():
    deep = b'{"commitInfo":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}\n"
    huge = b'{"txn":{"appId":"a","version":1000000000000000000000,"lastUpdated":1}}\n'
    size = b'{"add":{"path":"p","partitionValues":{},"size":-1,"modificationTime":1,"dataChange":true}}'
    metadata = b'{"metaData":{"id":"x","schemaString":"{}","partitionColumns":[],"configuration":{"a":5}}}'
    for data in (deep, huge, size, metadata):
        with pytest.raises(CorruptLogError, match="corrupt log entry path: line 1"):
            decode_entry(1, "path", data)


def test_a_topic_whose_properties_are_null_is_no_topic():
    log = a_topic()
    metadata = {"id": "x", "schemaString": "{}", "partitionColumns": [], "configuration": {"sparklog.topic.id": None}}
    log.store.put(entry_path(log.table, 1), json.dumps({"metaData": metadata}).encode())
    with pytest.raises(NotATopicError):
        load_state(log)


def edit(log, version: int, change: Callable[[list[dict[str, Any]]], object]) -> None:
    path = entry_path(log.table, version)
    lines = [json.loads(line) for line in log.store.read(path).splitlines()]
    change(lines)
    log.store.put(path, resealed("".join(json.dumps(line) + "\n" for line in lines).encode()))


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**27, 1e300, 0.5, "", "x", "-5", [], {}, [[]]]),
    st.text(max_size=3),
    st.recursive(st.integers(), lambda inner: st.lists(inner, max_size=2), max_leaves=4),
)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values within one."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*at, key))


def put_at(value: Any, at: tuple[Any, ...], new: Any) -> None:
    for key in at[:-1]:
        value = value[key]
    value[at[-1]] = new


@settings(max_examples=by_depth(gate=60, nightly=5_000), deadline=None)
@given(st.data(), st.sampled_from([1, 2]), ODD, st.booleans())
def test_odd_values_in_an_entry_end_with_one_named_error(data, version, odd, is_in_stats):
    log = a_topic(MemoryStore(clock=(clock := ManualClock(start_ms=T0_MS))), clock)
    writer = a_writer(log)
    follower = TopicFollower(log, "t")
    append(writer, "a", "b")
    append(writer, "c")

    def change(lines: list[dict[str, Any]]) -> None:
        if is_in_stats:
            stats = json.loads(lines[1]["add"]["stats"])
            put_at(stats, data.draw(st.sampled_from([at for at in places(stats) if at])), odd)
            lines[1]["add"]["stats"] = json.dumps(stats)
        else:
            put_at(lines, data.draw(st.sampled_from([at for at in places(lines) if len(at) > 1])), odd)

    edit(log, version, change)
    for act in (
        lambda: load_state(log),
        lambda: open_state(log),
        lambda: append(a_writer(log), "d"),
        follower.poll,
        lambda: [*follower.segments(0, 0)],
    ):
        with suppress(SparklogError):
            act()
