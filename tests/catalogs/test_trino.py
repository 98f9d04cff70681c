"""Topics in Trino: a stand-in for its client that knows the few statements that sync needs."""

from __future__ import annotations

import re
from typing import Any

from sparklog.admin import Admin, NewTopic
from sparklog.catalogs import sync_catalog
from sparklog.catalogs.trino import TrinoCatalog
from sparklog.log.cluster import open_cluster
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.storage import MemoryStore
from tests.catalogs.support import ROOT


class Connection:
    """Keeps what is in the schema ``delta.lake``."""

    def __init__(self) -> None:
        self.tables: dict[str, str] = {}
        self.views: dict[str, tuple[str | None, str]] = {}
        self.rows: list[list[Any]] = []

    def cursor(self) -> Connection:
        return self

    def fetchall(self) -> list[list[Any]]:
        return self.rows

    def execute(self, statement: str) -> None:
        self.rows = []
        if statement.startswith("SELECT table_name, table_type FROM"):
            assert "information_schema.tables WHERE table_schema = 'lake'" in statement
            self.rows = [*([name, "BASE TABLE"] for name in self.tables), *([name, "VIEW"] for name in self.views)]
        elif statement.startswith("SELECT table_name, comment FROM system.metadata.table_comments"):
            self.rows = [[name, comment] for name, (comment, _) in self.views.items()]
        elif found := re.fullmatch(r'SHOW CREATE TABLE "delta"\."lake"\."(\w+)"', statement):
            location = self.tables[found[1]]
            self.rows = [[f"CREATE TABLE delta.lake.{found[1]} (\n)\nWITH (\n   location = '{location}',\n   x = 1\n)"]]
        elif found := re.fullmatch(
            r"CALL \"delta\"\.system\.register_table\(schema_name => 'lake', table_name => '(\w+)', "
            r"table_location => '([^']+)'\)",
            statement,
        ):
            self.tables[found[1]] = found[2]
        elif found := re.fullmatch(
            r"CALL \"delta\"\.system\.unregister_table\(schema_name => 'lake', table_name => '(\w+)'\)", statement
        ):
            del self.tables[found[1]]
        elif found := re.fullmatch(
            r'CREATE VIEW "delta"\."lake"\."(\w+)" COMMENT \'((?:[^\']|\'\')*)\' AS (.*)', statement
        ):
            assert found[1] not in self.views
            self.views[found[1]] = (found[2].replace("''", "'"), found[3])
        elif found := re.fullmatch(r'DROP VIEW "delta"\."lake"\."(\w+)"', statement):
            del self.views[found[1]]
        else:
            raise AssertionError(statement)


def test_tables_are_registered_and_views_say_whose_they_are():
    connection, cluster = Connection(), open_cluster(MemoryStore())
    admin = Admin(cluster)
    admin.create_topics([NewTopic("orders", 2), NewTopic("old", 1)])
    admin.alter_group_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(3)})
    connection.tables["theirs_raw"] = "s3://elsewhere"
    connection.views["theirs"] = ("not JSON", "SELECT 1")
    catalog = TrinoCatalog(connection, "delta", "lake", location=ROOT)
    sync_catalog(catalog, cluster)
    assert connection.tables["orders_raw"] == f"{ROOT}/topics/orders"
    assert connection.tables["sparklog_group_billing"].startswith(f"{ROOT}/groups/")
    assert 'FROM "delta"."lake"."orders_raw"' in connection.views["orders"][1]
    assert sync_catalog(catalog, cluster).unchanged == 6
    admin.delete_topics(["old"])
    plan = sync_catalog(catalog, cluster, drop=True)
    assert [found.name for found in plan.drops] == ["old_raw", "old"]
    assert sorted(connection.views) == ["orders", "sparklog_lag", "theirs"]
    assert "theirs_raw" in connection.tables
