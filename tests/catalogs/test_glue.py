"""Topics in AWS Glue, as moto plays it."""

from __future__ import annotations

import pytest

from sparklog.admin import Admin, NewTopic
from sparklog.catalogs import sync_catalog
from sparklog.catalogs.entries import CLUSTER_ID
from sparklog.catalogs.glue import GlueCatalog, glue_client
from sparklog.errors import StoreError
from sparklog.log.cluster import open_cluster
from sparklog.producer import Producer
from sparklog.storage import MemoryStore
from tests.catalogs.support import ROOT

pytestmark = pytest.mark.slow  # imports boto3 and moto


@pytest.fixture
def client(monkeypatch):
    from moto import mock_aws

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        client = glue_client(region_name="us-east-1")
        client.create_database(DatabaseInput={"Name": "lake"})
        yield client


def test_a_topic_is_an_external_delta_table_that_engines_know(client):
    cluster = open_cluster(MemoryStore())
    Admin(cluster).create_topics([NewTopic("orders", 2)])
    client.create_table(DatabaseName="lake", TableInput={"Name": "others", "TableType": "EXTERNAL_TABLE"})
    catalog = GlueCatalog(client, "lake", location=ROOT)
    sync_catalog(catalog, cluster)
    table = client.get_table(DatabaseName="lake", Name="orders")["Table"]
    assert table["TableType"] == "EXTERNAL_TABLE"
    assert table["StorageDescriptor"]["Location"] == f"{ROOT}/topics/orders"
    assert table["Parameters"]["spark.sql.sources.provider"] == "delta"
    assert table["Parameters"][CLUSTER_ID] == cluster.cluster_id
    columns = {column["Name"]: column["Type"] for column in table["StorageDescriptor"]["Columns"]}
    assert columns["headers"] == "array<struct<key:string,value:binary>>"
    assert (columns["partition"], columns["base_offset"], columns["timestamp"]) == ("int", "bigint", "timestamp")
    assert sync_catalog(catalog, cluster).unchanged == 1
    moved = GlueCatalog(client, "lake", location="s3://other/root")
    assert [entry.name for entry in sync_catalog(moved, cluster).replacements] == ["orders"]
    table = client.get_table(DatabaseName="lake", Name="orders")["Table"]
    assert table["StorageDescriptor"]["Location"] == "s3://other/root/topics/orders"
    Admin(cluster).delete_topics(["orders"])
    sync_catalog(moved, cluster, drop=True)
    assert [*moved.found()] == ["others"]
    with pytest.raises(StoreError, match=r"Glue: .*nosuch"):
        sync_catalog(GlueCatalog(client, "nosuch"), cluster)


def test_what_glue_says_of_a_topic_leads_duckdb_to_its_records(client, tmp_path):
    import duckdb
    from deltalake import DeltaTable

    cluster = open_cluster(tmp_path)
    Admin(cluster).create_topics([NewTopic("orders", 2)])
    with Producer(cluster) as producer:
        for partition in (0, 1, 1):
            producer.send("orders", b"v", partition=partition)
    sync_catalog(GlueCatalog(client, "lake"), cluster)
    location = client.get_table(DatabaseName="lake", Name="orders")["Table"]["StorageDescriptor"]["Location"]
    found = DeltaTable(location).to_pyarrow_dataset()
    query = "SELECT partition, count(base_offset), max(base_offset + offset_delta) FROM found GROUP BY ALL ORDER BY ALL"
    assert duckdb.execute(query).fetchall() == [(0, 1, 0), (1, 2, 1)]
    assert found.count_rows() == 3
