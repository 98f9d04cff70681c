"""What is made, replaced and dropped in a catalog, and what never is."""

from __future__ import annotations

import pytest

from sparklog.admin import Admin, NewTopic
from sparklog.catalogs import sync_catalog
from sparklog.catalogs.entries import CLUSTER_ID, Found, Kind
from sparklog.log.cluster import open_cluster
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.storage import MemoryStore
from tests.catalogs.support import ROOT, MemoryCatalog

TOPICS = ["orders", "Pay-ments"]
NAMES = ["orders", "orders_raw", "pay_ments", "pay_ments_raw"]


@pytest.fixture
def cluster():
    cluster = open_cluster(MemoryStore())
    Admin(cluster).create_topics([NewTopic(name, 2) for name in TOPICS])
    return cluster


def test_topics_become_tables_and_views_over_them_once(cluster):
    catalog = MemoryCatalog()
    plan = sync_catalog(catalog, cluster)
    assert sorted(catalog.there) == NAMES
    assert [entry.kind for entry in plan.creates] == [Kind.TABLE, Kind.TABLE, Kind.VIEW, Kind.VIEW]
    assert catalog.there["pay_ments_raw"].location == f"{ROOT}/topics/Pay-ments"
    assert "'Pay-ments' AS \"topic\"" in catalog.entries["pay_ments"].text
    assert 'base_offset + offset_delta AS "offset"' in catalog.entries["orders"].text
    assert catalog.there["orders"].properties[CLUSTER_ID] == cluster.cluster_id
    again = sync_catalog(catalog, cluster)
    assert (again.creates, again.replacements, again.drops, again.unchanged) == ([], [], [], 4)
    assert catalog.calls == ["create pay_ments_raw", "create orders_raw", "create pay_ments", "create orders"]


def test_without_views_a_topic_is_a_table_of_its_own_name(cluster):
    catalog = MemoryCatalog(dialect=None)
    sync_catalog(catalog, cluster)
    assert sorted(catalog.there) == ["orders", "pay_ments"]
    columns = {column.name: str(column.type) for column in catalog.entries["orders"].columns}
    assert columns["base_offset"] == columns["offset_delta"] == "int64"


def test_lag_is_a_view_over_the_offsets_of_each_group(cluster):
    catalog = MemoryCatalog()
    Admin(cluster).alter_group_offsets("it's", {TopicPartition("orders", 1): OffsetAndMetadata(7)})
    sync_catalog(catalog, cluster)
    assert sorted({*catalog.there} - {*NAMES}) == ["sparklog_group_it_s", "sparklog_lag"]
    assert "'it''s' AS group_id" in catalog.entries["sparklog_lag"].text


def test_what_another_made_is_neither_changed_nor_dropped(cluster):
    catalog = MemoryCatalog()
    others = {
        "orders": Found(name="orders", kind=Kind.VIEW, properties={CLUSTER_ID: "another cluster's"}),
        "orders_old": Found(name="orders_old", kind=Kind.TABLE, location=f"{ROOT}/topics/old"),
        "pay_ments_raw": Found(name="pay_ments_raw", kind=Kind.TABLE, location="s3://elsewhere"),
    }
    catalog.there.update(others)
    plan = sync_catalog(catalog, cluster, drop=True)
    assert {name: catalog.there[name] for name in others} == others
    assert set(plan.taken) == {"topic orders", "the table of topic Pay-ments"}
    assert catalog.calls == ["create orders_raw"]  # nor a view over a table that isn't the topic's


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_table_that_another_put_in_place_of_a_views_own_stays(cluster, is_deleted):
    """A view names its table: dropping one that is the catalog's own would delete its files."""
    catalog = MemoryCatalog()
    sync_catalog(catalog, cluster)
    another = Found(name="orders_raw", kind=Kind.TABLE, location="s3://elsewhere/orders_raw")
    catalog.there["orders_raw"] = another
    if is_deleted:
        Admin(cluster).delete_topics(["orders"])
    plan = sync_catalog(catalog, cluster, drop=True)
    assert catalog.there["orders_raw"] == another
    assert ("the table of topic orders" in plan.taken) is not is_deleted


def test_a_deleted_topic_is_dropped_only_on_demand_the_table_before_its_view(cluster):
    catalog = MemoryCatalog()
    sync_catalog(catalog, cluster)
    Admin(cluster).delete_topics(["orders"])
    plan = sync_catalog(catalog, cluster)
    assert [found.name for found in plan.drops] == ["orders_raw", "orders"]
    assert sorted(catalog.there) == NAMES
    assert sync_catalog(catalog, cluster, topics=["Pay-ments"], drop=True).drops == ()
    sync_catalog(catalog, cluster, drop=True)
    assert catalog.calls[-2:] == ["drop orders_raw", "drop orders"]


def test_a_deleted_groups_table_stays_ours_until_it_is_dropped(cluster):
    catalog, admin = MemoryCatalog(), Admin(cluster)
    for group in ("a", "b"):
        admin.alter_group_offsets(group, {TopicPartition("orders", 0): OffsetAndMetadata(1)})
    sync_catalog(catalog, cluster)
    admin.delete_groups(["a"])
    sync_catalog(catalog, cluster)
    assert catalog.calls[-1] == "replace sparklog_lag"
    sync_catalog(catalog, cluster, drop=True)
    assert catalog.calls[-1] == "drop sparklog_group_a"


def test_a_run_that_ended_before_it_made_the_view_is_taken_up(cluster):
    catalog = MemoryCatalog()
    location = f"{ROOT}/topics/orders"
    catalog.there["orders_raw"] = Found(name="orders_raw", kind=Kind.TABLE, location=location)
    sync_catalog(catalog, cluster)
    assert sorted(catalog.there) == NAMES
    assert "create orders_raw" not in catalog.calls


def test_of_topics_that_would_have_one_name_one_is_made_and_the_other_named(cluster):
    Admin(cluster).create_topics(["pay.ments"])
    plan = sync_catalog(MemoryCatalog(dialect=None), cluster)
    assert plan.taken == {"topic pay.ments": "topic Pay-ments has the name pay_ments"}


def test_a_dry_run_changes_nothing(cluster):
    catalog = MemoryCatalog()
    assert len(sync_catalog(catalog, cluster, dry_run=True).creates) == 4
    assert catalog.calls == []
