"""Another engine upgrades the table's Delta protocol, or breaks the topic's properties, and takes it back: clients that
run fail as long as it lasts, and then go on by themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from sparklog.delta.actions import Action, Metadata, Protocol, SetTransaction
from sparklog.delta.listing import list_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.snapshot import check_protocol
from sparklog.errors import NotATopicError, SparklogError, UnsupportedVersionError
from sparklog.log.append import TopicWriter
from sparklog.log.follow import TopicFollower
from sparklog.log.state import load_state
from sparklog.log.topic import alter_topic
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, ManualClock
from tests.support import (
    T0_MS,
    OvertakenStore,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    foreign_entry,
    foreign_file,
    foreign_records,
    records,
    said_to_be_placed,
    within,
)

OURS = Protocol(min_reader_version=1, min_writer_version=2)
COLUMN_MAPPING = Protocol(min_reader_version=2, min_writer_version=5)
DELETION_VECTORS = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("appendOnly", "deletionVectors", "invariants"),
)
ROW_TRACKING = Protocol(
    min_reader_version=1,
    min_writer_version=7,
    writer_features=("appendOnly", "domainMetadata", "invariants", "rowTracking"),
)
LISTED = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("appendOnly", "invariants"))


ACCEPTED = (
    "allowColumnDefaults",
    "changeDataFeed",
    "checkConstraints",
    "checkpointProtection",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "inCommitTimestamp",
    "vacuumProtocolCheck",
)
REFUSED = ("clustering", "icebergCompatV2", "materializePartitionColumns", "rowTracking", "a feature of tomorrow")


@pytest.mark.parametrize(
    ("protocol", "reads", "writes"),
    [
        (OURS, True, True),
        (Protocol(min_reader_version=1, min_writer_version=1), True, True),
        (LISTED, True, True),
        (replace(LISTED, writer_features=()), True, True),
        (replace(LISTED, min_reader_version=3, reader_features=()), True, True),
        *((replace(LISTED, writer_features=("appendOnly", name)), True, True) for name in ACCEPTED),
        (
            replace(
                LISTED,
                min_reader_version=3,
                reader_features=("vacuumProtocolCheck",),
                writer_features=("vacuumProtocolCheck",),
            ),
            True,
            True,
        ),
        *((Protocol(min_reader_version=1, min_writer_version=version), True, True) for version in (3, 4, 5, 6)),
        *((replace(LISTED, writer_features=("appendOnly", name)), True, False) for name in REFUSED),
        (replace(LISTED, writer_features=None), True, False),
        (replace(LISTED, min_writer_version=8), True, False),
        (replace(LISTED, min_reader_version=3, reader_features=None), False, False),
        (ROW_TRACKING, True, False),
        (COLUMN_MAPPING, False, False),
        (DELETION_VECTORS, False, False),
        (replace(LISTED, min_reader_version=2), False, False),
    ],
    ids=str,
)
def test_a_protocol_is_known_by_its_version_or_by_the_features_it_lists(
    protocol: Protocol, reads: bool, writes: bool
) -> None:
    for write, is_known in ((False, reads), (True, writes)):
        if is_known:
            check_protocol("t", protocol, write=write)
            continue
        with pytest.raises(UnsupportedVersionError, match=f"t needs Delta {'writer' if reads else 'reader'} version"):
            check_protocol("t", protocol, write=write)


def test_a_table_that_lists_only_what_we_know_is_written_and_read() -> None:
    log = a_topic()
    commit(log, replace(LISTED, min_reader_version=3, reader_features=()))
    append(a_writer(log), "a")
    alter_topic(log, "t", {"retention.ms": 5})
    assert contents(log)[0] == [(0, "a")]


def commit(log: DeltaLog, *actions: Action) -> None:
    """As another engine, which doesn't mind what sparklog understands."""
    listing = list_log(log)
    assert listing is not None
    version = listing.newest_version + 1
    foreign_entry(log, version, [action.to_json() for action in (*actions, *said_to_be_placed(version, actions))])


def metadata(log: DeltaLog) -> Metadata:
    return load_state(log).require_whole().metadata


def without_id(found: Metadata) -> Metadata:
    kept = {name: value for name, value in found.configuration.items() if name != "sparklog.topic.id"}
    return replace(found, configuration=kept)


Commits = Callable[[Metadata], list[Action]]
"""Of the metadata before: an action each."""

BREAKS: dict[str, tuple[Commits, Commits, type[SparklogError]]] = {
    "newer reader": (lambda _: [COLUMN_MAPPING], lambda _: [OURS], UnsupportedVersionError),
    "one newer reader after the other": (
        lambda _: [COLUMN_MAPPING, DELETION_VECTORS],
        lambda _: [LISTED],
        UnsupportedVersionError,
    ),
    "no topic any more": (lambda before: [without_id(before)], lambda before: [before], NotATopicError),
}


@pytest.mark.parametrize("what", BREAKS)
def test_running_clients_fail_while_it_lasts_and_then_go_on(what: str) -> None:
    """✗ They stand before the entry for ever, while whoever begins anew works."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    breaks, mends, expected = BREAKS[what]
    before = metadata(log)
    counted = CountingStore(memory)
    follower, writer = TopicFollower(a_log(counted, clock), "t"), a_writer(log)
    append(writer, "before")
    follower.poll()
    for action in breaks(before):
        commit(log, action)
    for _ in range(3):
        counted.reset()
        with pytest.raises(expected):
            follower.poll()
        assert counted.counts() == {"get": 1}
        with pytest.raises(expected):
            append(writer, "meanwhile", timeout_ms=1_000)
        with pytest.raises(expected):
            writer.refresh()
    with pytest.raises(expected):
        TopicFollower(log, "t")
    for action in mends(before):
        commit(log, action)
    commit(log, foreign_file(log, foreign_records("by another engine"), base_offset=1))
    assert append(writer, "after").base_offsets == (2,)
    for _ in range(4):
        follower.poll()
    expected_records = ["before", "by another engine", "after"]
    assert follower.read(0, 0)["value"].to_pylist() == [value.encode() for value in expected_records]
    assert contents(log)[0] == list(enumerate(expected_records))


@pytest.mark.parametrize("what", BREAKS)
def test_an_append_that_slept_through_the_upgrade_and_its_end_succeeds(what: str) -> None:
    """However many commits lie between the two."""
    log = a_topic()
    breaks, mends, expected = BREAKS[what]
    before = metadata(log)
    writer = a_writer(log)
    append(writer, "before")
    for action in breaks(before):
        commit(log, action)
    with pytest.raises(expected):
        append(writer, "meanwhile")
    for number in range(5):
        commit(log, SetTransaction(app_id="another engine", version=number, last_updated_ms=T0_MS))
    for action in mends(before):
        commit(log, action)
    assert append(writer, "after").base_offsets == (1,)


def with_properties(**properties: str) -> Callable[[Metadata], Metadata]:
    return lambda found: replace(
        found,
        configuration={**found.configuration, **{f"delta.{k.replace('__', '.')}": v for k, v in properties.items()}},
    )


def with_column(column: Mapping[str, Any]) -> Callable[[Metadata], Metadata]:
    def changed(found: Metadata) -> Metadata:
        schema = json.loads(found.schema_string)
        schema["fields"].append({"name": "extra", "type": "string", "nullable": True, "metadata": {}, **column})
        return replace(found, schema_string=json.dumps(schema, separators=(",", ":")))

    return changed


IN_A_STRUCT: dict[str, Any] = {
    "type": "struct",
    "fields": [{"name": "x", "type": "long", "nullable": False, "metadata": {}}],
}
DEMANDS: dict[str, tuple[Callable[[Metadata], Metadata], str]] = {
    "a constraint": (with_properties(constraints__c="partition >= 0"), "constraint c, partition >= 0"),
    "a constraint in capitals": (with_properties(Constraints__C="partition >= 0"), "constraint C, partition >= 0"),
    "times in commits": (with_properties(enableInCommitTimestamps="True"), "delta.enableInCommitTimestamps=true"),
    "column mapping": (with_properties(columnMapping__mode="id"), "delta.columnMapping.mode=id"),
    "an invariant": (with_column({"metadata": {"delta.invariants": "{}"}}), "column extra with an invariant"),
    "a generated column": (with_column({"metadata": {"delta.generationExpression": "1"}}), "generatedColumns"),
    "an identity": (with_column({"metadata": {"delta.identity.start": 1}}), "identityColumns"),
    "a default": (with_column({"metadata": {"CURRENT_DEFAULT": "'x'"}}), "allowColumnDefaults"),
    "a default within a struct": (
        with_column(
            {"type": {**IN_A_STRUCT, "fields": [{**IN_A_STRUCT["fields"][0], "metadata": {"CURRENT_DEFAULT": 1}}]}}
        ),
        "column x with a default",
    ),
    "not null": (with_column({"nullable": False}), "column extra that is NOT NULL"),
}


@pytest.mark.parametrize("what", DEMANDS)
def test_use_of_a_feature_stops_writers_until_it_ends(what: str) -> None:
    """By a writer that runs and by one that opens the topic anew; readers go on."""
    log = a_topic()
    changed, told = DEMANDS[what]
    before = metadata(log)
    writer = a_writer(log)
    follower = TopicFollower(log, "t")
    commit(log, replace(LISTED, writer_features=ACCEPTED))
    append(writer, "before")
    commit(log, changed(before))
    for _ in range(2):
        with pytest.raises(UnsupportedVersionError, match=told):
            append(writer, "meanwhile")
    with pytest.raises(UnsupportedVersionError, match=f"{told}.*( TABLE … .*).docs/operations.md, .Table features"):
        a_writer(log)
    follower.poll()
    assert contents(log)[0] == [(0, "before")]
    commit(log, before)
    assert append(writer, "after").base_offsets == (1,)
    assert append(a_writer(log), "anew").base_offsets == (2,)


@pytest.mark.parametrize(
    "harmless",
    [
        with_properties(enableInCommitTimestamps="false", columnMapping__mode="none", enableChangeDataFeed="true"),
        with_column({"type": IN_A_STRUCT}),
        with_column({"name": "CURRENT_DEFAULT", "metadata": {"comment": "delta.identity.start, false"}}),
    ],
    ids=["properties", "not null within a struct", "names alone"],
)
def test_metadata_that_asks_nothing_of_writers_hinders_none(harmless: Callable[[Metadata], Metadata]) -> None:
    log = a_topic()
    commit(log, harmless(metadata(log)))
    assert append(a_writer(log), "a").base_offsets == (0,)


def test_protocol_and_metadata_that_both_refuse_are_taken_back_apart() -> None:
    log = a_topic()
    writer, before = a_writer(log), metadata(log)
    commit(log, ROW_TRACKING)
    commit(log, with_properties(constraints__c="true")(before))
    with pytest.raises(UnsupportedVersionError, match="rowTracking"):
        append(writer, "a")
    commit(log, LISTED)
    with pytest.raises(UnsupportedVersionError, match="constraint c"):
        append(writer, "a")
    commit(log, before)
    assert append(writer, "a").base_offsets == (0,)


def test_a_writer_goes_on_after_a_newer_writer_version_was_taken_back() -> None:
    log = a_topic()
    writer = a_writer(log)
    append(writer, "before")
    commit(log, ROW_TRACKING)
    staged = writer.upload([(0, records("after"))])
    for _ in range(2):
        with pytest.raises(
            UnsupportedVersionError,
            match=r"writer version 7 \(feature rowTracking\).*DROP FEATURE rowTracking .docs/operations.md",
        ):
            writer.append(staged, deadline=within(writer, 1_000))
    commit(log, OURS)
    assert writer.append(staged, deadline=within(writer, 1_000)).base_offsets == (1,)


def test_an_append_that_loses_its_race_to_the_upgrade_fails_and_the_next_goes_on() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    overtaken = OvertakenStore(memory, lambda: commit(log, COLUMN_MAPPING))
    writer: TopicWriter = a_writer(a_log(overtaken, clock))
    with pytest.raises(UnsupportedVersionError, match="reader version 2"):
        append(writer, "meanwhile")
    commit(log, OURS)
    assert append(writer, "after").base_offsets == (0,)
    assert contents(log)[0] == [(0, "after")]
