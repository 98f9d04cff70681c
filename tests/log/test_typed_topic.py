"""A typed topic's table: its columns, its schemas among the properties, and who is told of them (decision 0027)."""

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sparklog.delta import actions
from sparklog.errors import (
    InvalidConfigurationError,
    NotATopicError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from sparklog.log import head as heads
from sparklog.log.follow import TopicFollower
from sparklog.log.state import load_state, open_state
from sparklog.log.topic import (
    alter_topic,
    alter_value_schema,
    check_value_schema,
    create_partitions,
    create_topic,
    delete_topic,
    describe_topic,
)
from sparklog.log.value_schemas import check_columns
from sparklog.schemas import value_schema
from sparklog.storage import LocalStore, MemoryStore
from sparklog.testing import ManualClock
from tests.support import a_topic, entry_lines

ORDERS = value_schema(pa.schema([("id", pa.int64()), ("total", pa.float64())]))
WITH_NOTE = value_schema(pa.schema([("id", pa.int64()), ("total", pa.float64()), ("note", pa.string())]))
WITH_PLACE = value_schema(pa.schema([("id", pa.int64()), ("place", pa.struct([("city", pa.string())]))]))
OTHER_TYPE = value_schema(pa.schema([("id", pa.string())]))


@pytest.fixture
def memory():
    return MemoryStore()


@pytest.fixture
def clock():
    return ManualClock()


def a_typed_topic(memory, clock, schema=ORDERS, **options):
    return a_topic(memory, clock, value_schema=schema, **options)


def metadata_of(log):
    return load_state(log).require_whole().metadata


def columns(log):
    return {field["name"]: field["type"] for field in json.loads(metadata_of(log).schema_string)["fields"]}


def newest_names(head):
    assert head.schemas is not None
    return head.schemas.newest.arrow.names


def names(described):
    return [schema.arrow.names for schema in described.value_schemas]


def test_the_table_has_a_struct_and_an_id_beside_the_bytes(memory, clock):
    log = a_typed_topic(memory, clock)
    found = columns(log)
    assert list(found)[4:8] == ["key", "value", "data", "schema_id"]
    assert [field["name"] for field in found["data"]["fields"]] == ["id", "total"]
    properties = metadata_of(log).configuration
    assert properties["delta.dataSkippingStatsColumns"].endswith(",sequence,data.id,data.total")
    assert properties["sparklog.format.version"] == "2"
    assert ORDERS.to_json() == properties["sparklog.value.schema.1"]


def test_an_untyped_topic_says_nothing_of_schemas(memory, clock):
    log = a_topic(memory, clock)
    text = "".join(map(json.dumps, entry_lines(log, 0)))
    assert '"sparklog.format.version": "1"' in text
    assert "schema_id" not in text
    assert "value_schema" not in text


def test_evolution_adds_columns_and_its_schema_in_one_commit(memory, clock):
    log = a_typed_topic(memory, clock)
    described = alter_value_schema(log, "t", WITH_NOTE)
    assert names(described) == [["id", "total"], ["id", "total", "note"]]
    assert described.delta_version == 1
    assert [field["name"] for field in columns(log)["data"]["fields"]] == ["id", "total", "note"]
    assert metadata_of(log).configuration["delta.dataSkippingStatsColumns"].endswith("data.id,data.total,data.note")
    assert names(describe_topic(log, "t")) == names(described)


def test_what_a_schema_leaves_out_stays_in_the_table(memory, clock):
    log = a_typed_topic(memory, clock)
    alter_value_schema(log, "t", WITH_PLACE)
    assert [field["name"] for field in columns(log)["data"]["fields"]] == ["id", "total", "place"]


def test_an_equal_schema_is_no_commit(memory, clock):
    log = a_typed_topic(memory, clock)
    assert alter_value_schema(log, "t", ORDERS).delta_version == 0


def test_another_type_of_a_field_is_refused_with_the_reason(memory, clock):
    log = a_typed_topic(memory, clock)
    with pytest.raises(InvalidConfigurationError, match=r"BACKWARD.*schema 1.*id"):
        alter_value_schema(log, "t", OTHER_TYPE)
    assert describe_topic(log, "t").delta_version == 0


def test_of_two_evolutions_at_once_the_loser_is_checked_against_the_winner(memory, clock):
    log = a_typed_topic(memory, clock)
    clash = value_schema(pa.schema([("id", pa.int64()), ("note", pa.int64())]))
    original: Any = memory.create
    raced: list[str] = []

    def create(path, data, **options):
        if not raced and path.endswith("1.json"):
            raced.append(path)
            alter_value_schema(log, "t", WITH_NOTE)
        return original(path, data, **options)

    memory.create = create
    with pytest.raises(InvalidConfigurationError, match="note"):
        alter_value_schema(log, "t", clash)
    assert names(describe_topic(log, "t"))[1:] == [["id", "total", "note"]]


def test_an_untyped_topic_becomes_typed(memory, clock):
    log = a_topic(memory, clock)
    follower = TopicFollower(log, "t")
    assert follower.head.values is None
    alter_value_schema(log, "t", ORDERS)
    follower.poll()
    assert follower.head.value_schema_id == 1
    assert newest_names(follower.head) == ["id", "total"]


def test_a_follower_learns_each_new_schema(memory, clock):
    log = a_typed_topic(memory, clock)
    follower = TopicFollower(log, "t")
    alter_value_schema(log, "t", WITH_NOTE)
    alter_topic(log, "t", {"retention.ms": 5})
    create_partitions(log, "t", 7)
    while follower.poll():
        pass
    assert newest_names(follower.head) == ["id", "total", "note"]
    assert follower.head == load_state(log).head
    assert follower.head.schemas == load_state(log).head.schemas


def test_whoever_opens_by_the_newest_commit_knows_the_schemas(memory, clock):
    log = a_typed_topic(memory, clock)
    alter_topic(log, "t", {"retention.ms": 5})
    assert newest_names(open_state(log).head) == ["id", "total"]


def test_a_topic_created_again_begins_with_its_own_schemas(memory, clock):
    log = a_typed_topic(memory, clock)
    alter_value_schema(log, "t", WITH_NOTE)
    delete_topic(log, "t")
    assert names(create_topic(log, "t", value_schema=OTHER_TYPE)) == [["id"]]
    assert [field["type"] for field in columns(log)["data"]["fields"]] == ["string"]
    delete_topic(log, "t")
    assert create_topic(log, "t").value_schemas == ()
    assert "data" not in columns(log)
    assert metadata_of(log).configuration["sparklog.format.version"] == "1"
    assert metadata_of(log).configuration["delta.dataSkippingStatsColumns"].endswith(",sequence")


def test_an_older_sparklog_refuses_the_topic_with_a_clear_sentence(memory, clock, monkeypatch):
    log = a_typed_topic(memory, clock)
    monkeypatch.setattr(heads, "TYPED_FORMAT_VERSION", 1)
    with pytest.raises(UnsupportedVersionError, match=r"topic format 2.*upgrade"):
        load_state(log)
    monkeypatch.setattr(actions, "NEWEST_ENTRY_FORMAT", 1)
    with pytest.raises(UnsupportedVersionError, match=r"has format 2.*upgrade"):
        open_state(log)


def test_the_index_setting_chooses_leaves(memory, clock):
    log = a_typed_topic(memory, clock, WITH_PLACE, configs={"value.index": "place.city"})
    assert metadata_of(log).configuration["delta.dataSkippingStatsColumns"].endswith(",sequence,data.place.city")
    alter_topic(log, "t", {"value.index": "id"})
    assert metadata_of(log).configuration["delta.dataSkippingStatsColumns"].endswith(",sequence,data.id")
    with pytest.raises(InvalidConfigurationError, match=r"value\.index.*'plaice'.*id, place\.city"):
        alter_topic(log, "t", {"value.index": "plaice"})


def test_a_foreign_engine_that_garbles_a_schema_is_named(memory, clock):
    log = a_typed_topic(memory, clock)
    metadata = metadata_of(log)
    for garbled in ({"sparklog.value.schema.1": "{"}, {"sparklog.value.schema.3": "{}"}):
        table = replace(metadata, configuration={**metadata.configuration, **garbled})
        with pytest.raises(NotATopicError, match=r"sparklog\.value\.schema\.1"):
            heads.head_of_table(log.table, 0, table, {}, live_end_offsets={}, live_file_count=0, unsequenced_count=0)


def struct_of(*fields):
    return {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields],
    }


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (("data", struct_of(("note", "long"))), "field note: string, but long in the table's column data"),
        (("data", struct_of(("NOTE", "string"))), "field note: the table's column data calls it NOTE"),
        (("data", struct_of(("note", "timestamp_ntz"))), "timestamp_ntz"),
        (("data", "string"), "column data is string, expected data struct"),
        (("Data", struct_of(("note", "string"))), "column Data is struct"),
        (("schema_id", "string"), "a column schema_id of another engine's: string"),
        (("data", struct_of(("note", "string"), ("other", "timestamp_ntz"))), None),
        (("schema_id", "integer"), None),
        (("mine", "string"), None),
    ],
    ids=str,
)
def test_a_schema_that_another_engine_s_columns_hinder_is_refused(column, told):
    table = json.dumps(struct_of(("value", "binary"), column))
    if told is None:
        check_columns(WITH_NOTE, table)
        return
    with pytest.raises(InvalidConfigurationError, match=told):
        check_columns(WITH_NOTE, table)


def test_a_field_that_another_engine_has_added_keeps_its_type(tmp_path, clock):
    log = a_typed_topic(LocalStore(tmp_path), clock)
    table = pa.table({"data": pa.array([{"id": 7, "note": 1}])})
    write_deltalake(tmp_path / log.table, table, mode="append", schema_mode="merge")
    told = "field note: string, but long in the table's column data"
    with pytest.raises(InvalidConfigurationError, match=told):
        alter_value_schema(log, "t", WITH_NOTE)
    verdict = check_value_schema(log, "t", WITH_NOTE)
    assert not verdict.compatible
    assert told in str(verdict)
    other = value_schema("id BIGINT, note BIGINT")
    assert check_value_schema(log, "t", other).compatible
    alter_value_schema(log, "t", other)


def test_a_check_says_what_setting_the_schema_would(clock):
    """Of the schemas before it, the format's bytes, and registry ids; a topic that is gone is told."""
    log = a_typed_topic(MemoryStore(), clock)
    head = load_state(log).head
    assert head.schemas is not None
    version = head.delta_version
    assert check_value_schema(log, "t", head.schemas.newest).compatible
    assert check_value_schema(log, "t", WITH_NOTE).compatible
    retyped = value_schema("id STRING")
    again = WITH_NOTE.with_registry_id(1)
    for schema in (retyped, again):
        verdict = check_value_schema(log, "t", schema)
        assert not verdict.compatible
        with pytest.raises(InvalidConfigurationError) as told:
            alter_value_schema(log, "t", schema)
        assert all(reason in str(told.value) for reason in verdict.reasons)
    assert load_state(log).head.delta_version == version
    delete_topic(log, "t")
    with pytest.raises(UnknownTopicOrPartitionError):
        check_value_schema(log, "t", WITH_NOTE)
