"""The log of a transactional id: bytes, the chain of tokens, opening at the newest, cleaning."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from operator import methodcaller
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.checksums import SUM_FIELD
from sparklog.errors import CorruptLogError, InvalidArgumentError, InvalidTxnStateError, UnsupportedVersionError
from sparklog.log.data.data_files import UploadedFile
from sparklog.log.data.producer_stamp import ProducerStamp
from sparklog.model import TopicPartition
from sparklog.storage.position import Position
from sparklog.testing import CountingStore, ManualClock
from sparklog.txn.cleaning import KEEP_MS, clean_transaction_log
from sparklog.txn.entries import (
    NOTHING,
    BatchTarget,
    Contents,
    Header,
    QueryBatch,
    TopicFiles,
    TransactionEntry,
    TransactionLog,
    append_entry,
    decode_transaction,
    encode_transaction,
    first_entry,
    open_transaction_log,
)
from sparklog.txn.states import TransactionState
from tests.support import resealed
from tests.txn.support import a_cluster, a_log, states

S = TransactionState
HEADER = Header(producer_id=2**63 - 1, producer_epoch=3, timeout_ms=60_000)


def a_file(path: str = "partition=0/a.parquet", *, partition: int = 0, sequence: int = 0) -> UploadedFile:
    return UploadedFile(
        path=path,
        partition=partition,
        record_count=5,
        size_bytes=999,
        min_timestamp_ms=7,
        max_timestamp_ms=8,
        stamp=ProducerStamp(HEADER.producer_id, HEADER.producer_epoch, sequence),
        uploaded_ms=77,
    )


OF_ANOTHER = replace(a_file(), stamp=ProducerStamp(12, 0, 7))
"""Uploaded by another process than the one that commits it."""
CONTENTS = Contents(
    topics={
        "t": TopicFiles(
            topic_id="id", files=(a_file(), a_file("partition=1/ü.parquet", partition=1, sequence=2**31 - 1))
        ),
        "u.v-w_x": TopicFiles(topic_id="other", files=(a_file(),)),
    },
    groups={"g/ü": frozenset({TopicPartition("t", 0), TopicPartition("t", 11), TopicPartition("in", 0)})},
)


def an_entry(**changes: Any) -> TransactionEntry:
    fields = {"version": 4, "token": "mine", "previous": "before", "state": S.PREPARE_COMMIT, "header": HEADER}
    return TransactionEntry(**{**fields, "contents": CONTENTS, "written_ms": 5, **changes})


def filled(*following: TransactionState, clock: ManualClock | None = None) -> tuple[TransactionLog, Position]:
    """A log with an Empty entry and those that follow, and the position after them."""
    log = open_transaction_log(a_cluster(clock=clock), "tx")
    entry, position = first_entry(HEADER, now_ms=0), Position(version=0, token="", anchor_ticks_ms=0)
    entry, position, _ = append_entry(log, position, entry, tokens=set(), deadline=log.clock.deadline_in(None))
    for state in following:
        entry, position, is_ours = append_entry(
            log, position, entry.follow(state, now_ms=0), tokens=set(), deadline=log.clock.deadline_in(None)
        )
        assert is_ours
    return log, position


# --- bytes


@pytest.mark.parametrize(
    "entry",
    [
        an_entry(),
        an_entry(version=1, previous="", state=S.EMPTY, contents=NOTHING),
        an_entry(state=S.PREPARE_ABORT, contents=Contents(groups=CONTENTS.groups), reason="timed out: ü \n"),
        an_entry(
            header=replace(HEADER, holder="run", is_unsynced=True),
            batches=(QueryBatch(query_id="q", batch_id=0), QueryBatch(query_id="ü", batch_id=2**40)),
        ),
        an_entry(
            batches=(
                QueryBatch(query_id="q", batch_id=0, target=BatchTarget(topic="t")),
                QueryBatch(query_id="r", batch_id=1),
                QueryBatch(query_id="s", batch_id=2, target=BatchTarget(topics=frozenset("tu"))),
            ),
        ),
        an_entry(contents=Contents(topics={"t": TopicFiles(topic_id="id", files=(a_file(), OF_ANOTHER))})),
    ],
)
def test_an_entry_survives_the_way_through_its_bytes(entry: TransactionEntry) -> None:
    assert decode_transaction(entry.version, "path", encode_transaction(entry, "mine")) == entry


@pytest.mark.slow
@settings(max_examples=25)
@given(
    state=st.sampled_from(sorted(S, key=lambda state: state.value)),
    header=st.builds(
        Header,
        producer_id=st.integers(0, 2**63 - 1),
        producer_epoch=st.integers(0, 32766),
        timeout_ms=st.integers(1, 900_000),
    ),
    reason=st.text(),
    groups=st.dictionaries(st.text(), st.frozensets(st.builds(TopicPartition, st.text(), st.integers(0, 9999)))),
)
def test_any_entry_does(state: TransactionState, header: Header, reason: str, groups: dict[str, Any]) -> None:
    if state is S.ONGOING:
        return
    entry = an_entry(state=state, header=header, reason=reason, contents=Contents(groups=groups))
    assert decode_transaction(4, "path", encode_transaction(entry, "mine")) == entry


def test_a_file_is_few_bytes_so_that_a_long_transactions_entry_stays_small() -> None:
    files = tuple(a_file(f"partition=0/{number:032x}.parquet") for number in range(1_000))
    entry = an_entry(contents=Contents(topics={"t": TopicFiles(topic_id="id", files=files)}))
    assert len(encode_transaction(entry, "mine")) < 110 * len(files)


def test_an_entry_without_batches_is_as_it_was_before_there_were_any() -> None:
    body = json.loads(encode_transaction(an_entry(), "mine"))
    assert not {"batches", "holder", "unsynced"} & body.keys()
    assert [len(file) for topic in body["topics"].values() for file in topic["files"]] == [8, 8, 8]
    assert decode_transaction(4, "path", resealed(json.dumps(body).encode())).batches == ()


def test_an_older_sparklog_reads_the_batches_and_passes_over_their_targets() -> None:
    """It expects pairs of a query id and a number; what it doesn't know of an entry it leaves alone."""
    batches = (
        QueryBatch(query_id="q", batch_id=7, target=BatchTarget(topic="t")),
        QueryBatch(query_id="r", batch_id=1),
    )
    body = json.loads(encode_transaction(an_entry(batches=batches), "mine"))
    assert body["batches"] == [["q", 7], ["r", 1]]
    assert body["targets"] == {"q": "t"}
    del body["targets"]  # as it hands them on
    found = decode_transaction(4, "path", resealed(json.dumps(body).encode())).batches
    assert found == tuple(replace(batch, target=None) for batch in batches)
    with pytest.raises(CorruptLogError, match="target 5"):
        decode_transaction(4, "path", resealed(json.dumps({**body, "targets": {"q": 5}}).encode()))


def test_a_topics_files_count_as_uploaded_behind_the_earliest_of_their_versions() -> None:
    files = tuple(replace(a_file(), topic_version=version) for version in (7, 5, 6))
    entry = an_entry(contents=Contents(topics={"t": TopicFiles(topic_id="id", files=files)}))
    decoded = decode_transaction(4, "path", encode_transaction(entry, "mine"))
    assert [file.topic_version for file in decoded.contents.topics["t"].files] == [5, 5, 5]
    body = json.loads(encode_transaction(entry, "mine"))
    del body["topics"]["t"]["version"]  # as it was before it was written
    assert decode_transaction(4, "path", resealed(json.dumps(body).encode())).contents.topics["t"].topic_version == -1


def test_every_entry_that_follows_hands_the_batches_on() -> None:
    batches = (QueryBatch(query_id="q", batch_id=3),)
    decided = an_entry(state=S.EMPTY).follow(S.PREPARE_COMMIT, batches=batches, now_ms=0)
    completed = decided.follow(S.COMPLETE_COMMIT, now_ms=0)
    next_epoch = completed.follow(S.EMPTY, header=replace(HEADER, producer_epoch=4), now_ms=0)
    assert next_epoch.follow(S.PREPARE_ABORT, reason="r", now_ms=0).batches == batches


def test_an_entry_says_whether_another_than_the_producer_aborted() -> None:
    assert an_entry(state=S.PREPARE_ABORT, reason="timed out").is_forced
    assert not an_entry(state=S.PREPARE_ABORT).is_forced
    assert CONTENTS
    assert Contents(groups=CONTENTS.groups)
    assert not NOTHING


def broken(change: Callable[[dict[str, Any]], object], seal: Callable[[bytes], bytes] = resealed) -> bytes:
    body = json.loads(encode_transaction(an_entry(), "mine"))
    change(body)
    return seal(json.dumps(body).encode())


BAD = {
    "empty": b"",
    "truncated": encode_transaction(an_entry(), "mine")[:-9],
    "no JSON object": b"[1]",
    "no UTF-8": b"\xff\xfe\xff",
    "null": b"null",
    **{
        f"without {key}": broken(methodcaller("pop", key))
        for key in json.loads(broken(lambda _: None))
        if key != SUM_FIELD
    },
    "another checksum": broken(lambda body: body.update(crc32="00000001"), seal=bytes),
    "unknown state": broken(lambda body: body.update(state="Dead")),
    "a state that is never written": broken(lambda body: body.update(state="Ongoing")),
    "a file with a field too few": broken(lambda body: body["topics"]["t"]["files"][0].pop()),
    "a file with a field too many": broken(lambda body: body["topics"]["t"]["files"][0].append(1)),
    "a file of words": broken(lambda body: body["topics"]["t"].update(files=["abc"])),
    "a topic without id": broken(lambda body: body["topics"]["t"].pop("id")),
    "groups that are a list": broken(lambda body: body.update(groups=[])),
    "a producer id that is no number": broken(lambda body: body.update(producer_id="x")),
    "a format that is no number": broken(lambda body: body.update(format=None)),
}


@pytest.mark.parametrize("data", [*BAD.values()], ids=[*BAD])
def test_bad_bytes_are_named_with_their_path(data: bytes) -> None:
    with pytest.raises(CorruptLogError, match=r"corrupt transaction entry transactions/tx/0+4\.json"):
        decode_transaction(4, "transactions/tx/00000000000000000004.json", data)


def test_a_newer_format_is_left_alone() -> None:
    with pytest.raises(UnsupportedVersionError, match="path has format 3; this sparklog knows up to 2: upgrade"):
        decode_transaction(4, "path", broken(lambda body: body.update(format=3, state="Levitating")))


# --- the chain


def test_every_entry_names_the_token_of_the_one_before() -> None:
    log, position = filled(S.PREPARE_COMMIT, S.COMPLETE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_ABORT)
    entries = log.read_entries(1, 6)
    found = [entry for entry in entries if entry is not None]
    assert [entry.state for entry in found] == [
        S.EMPTY,
        S.PREPARE_COMMIT,
        S.COMPLETE_COMMIT,
        S.PREPARE_ABORT,
        S.COMPLETE_ABORT,
    ]
    assert [entry.previous for entry in found] == ["", *(entry.token for entry in found[:-1])]
    assert [entry.version for entry in found] == [1, 2, 3, 4, 5]
    assert len({entry.token for entry in found}) == 5
    newest, opened = log.open_newest()
    assert newest == found[-1]
    assert (opened.version, opened.token) == (position.version, position.token)


def test_whoever_is_slower_is_handed_what_has_the_number() -> None:
    log, position = filled()
    newest, _ = log.open_newest()
    assert newest is not None
    for expected_ours in (True, False):
        found, after, is_ours = append_entry(
            log,
            position,
            newest.follow(S.PREPARE_ABORT, reason=str(expected_ours), now_ms=0),
            tokens=set(),
            deadline=log.clock.deadline_in(None),
        )
        assert is_ours is expected_ours
        assert (found.version, found.reason, after.token) == (2, "True", found.token)


def test_an_entry_that_may_not_follow_is_never_made() -> None:
    with pytest.raises(InvalidTxnStateError):
        an_entry().follow(S.PREPARE_ABORT, now_ms=0)
    following = an_entry().follow(S.COMPLETE_COMMIT, now_ms=9)
    assert (following.version, following.previous, following.header, following.token) == (5, "mine", HEADER, "")
    assert following.contents == NOTHING


def test_a_log_without_entries_has_a_position_before_the_first() -> None:
    log = a_log(a_cluster())
    newest, position = log.open_newest()
    assert newest is None
    assert position.version == 0
    assert log.numbers() == []


def test_what_else_lies_in_the_folder_is_passed_over() -> None:
    log, _ = filled()
    for name in ("notes.txt", "x.json", "00000000000000000009.json.tmp", "7"):
        log.store.put(f"transactions/tx/{name}", b"?")
    assert log.numbers() == [1]


def test_an_id_that_none_may_have_is_refused_before_anything_is_read() -> None:
    for name in ("", "x" * 201, "\ud800"):
        with pytest.raises(InvalidArgumentError):
            open_transaction_log(a_cluster(), name)


# --- cleaning (rule T6)


def test_only_what_lies_before_the_newest_two_and_is_old_is_cleaned_away() -> None:
    clock = ManualClock()
    log, position = filled(S.PREPARE_COMMIT, S.COMPLETE_COMMIT, clock=clock)
    newest, _ = log.open_newest()
    assert newest is not None
    assert clean_transaction_log(log, newest) == 0  # too young
    clock.advance(KEEP_MS)
    assert clean_transaction_log(log, newest) == 0  # compared with the store's newest, not with a clock
    entry, position, _ = append_entry(
        log, position, newest.follow(S.PREPARE_ABORT, now_ms=0), tokens=set(), deadline=log.clock.deadline_in(None)
    )
    assert clean_transaction_log(log, entry) == 0  # not carried out
    entry, position, _ = append_entry(
        log, position, entry.follow(S.COMPLETE_ABORT, now_ms=0), tokens=set(), deadline=log.clock.deadline_in(None)
    )
    assert clean_transaction_log(log, newest) == 1  # as of a look that is old: it keeps the two before its own end
    assert log.numbers() == [2, 3, 4, 5]
    assert clean_transaction_log(log, entry) == 1
    assert log.numbers() == [3, 4, 5]  # 3 was the newest a moment ago: whoever has just listed goes on from there
    clock.advance(KEEP_MS)
    last, _, _ = append_entry(
        log, position, entry.follow(S.EMPTY, now_ms=0), tokens=set(), deadline=log.clock.deadline_in(None)
    )
    assert clean_transaction_log(log, last) == 2
    assert clean_transaction_log(log, last) == 0
    entry = last
    assert log.open_newest()[0] == entry


def test_cleaning_deletes_all_at_once_and_lists_no_more_than_it_deletes() -> None:
    """Beside the two pages of a listing that tell where the log ends and what is young."""
    clock = ManualClock()
    log, position = filled(*[S.PREPARE_ABORT, S.COMPLETE_ABORT] * 4, clock=clock)
    clock.advance(KEEP_MS)
    newest, _ = log.open_newest()
    assert newest is not None
    entry, _, _ = append_entry(
        log,
        position,
        newest.follow(S.EMPTY, header=HEADER, now_ms=0),
        tokens=set(),
        deadline=log.clock.deadline_in(None),
    )
    counting = CountingStore(log.store)
    assert clean_transaction_log(replace(log, store=counting), entry) == 8
    assert counting.counts() == {"list": 2, "get": 1, "delete": 1}
    assert log.numbers() == [9, 10]
    counting.reset()
    assert clean_transaction_log(replace(log, store=counting), entry) == 0
    assert counting.counts() == {"list": 2}


@pytest.mark.parametrize("left", [(1,), (3, 4), (8,), (2, 5, 7)], ids=str)
def test_a_cleaning_that_was_killed_is_finished_by_the_next(left: tuple[int, ...]) -> None:
    """It deletes in no order: whatever it left goes."""
    clock = ManualClock()
    log, position = filled(*[S.PREPARE_ABORT, S.COMPLETE_ABORT] * 4, clock=clock)
    clock.advance(KEEP_MS)
    newest, _ = log.open_newest()
    assert newest is not None
    entry, position, _ = append_entry(
        log,
        position,
        newest.follow(S.EMPTY, header=HEADER, now_ms=0),
        tokens=set(),
        deadline=log.clock.deadline_in(None),
    )
    log.store.delete([log.path_of(number) for number in range(1, 9) if number not in left])
    assert log.open_newest()[0] == entry
    assert clean_transaction_log(log, entry) == len(left)
    assert log.numbers() == [9, 10]


def test_the_names_of_states_are_kafkas() -> None:
    cluster = a_cluster()
    assert states(cluster) == []
    assert {state.value for state in S} == {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
    }
