"""Topics in Unity Catalog: a stand-in server that checks each request against what the API's description allows."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from sparklog.admin import Admin, NewTopic
from sparklog.catalogs import sync_catalog
from sparklog.catalogs.unity import UnityCatalog
from sparklog.errors import InvalidArgumentError, StoreError
from sparklog.log.cluster import open_cluster
from sparklog.storage import MemoryStore
from tests.catalogs.support import ROOT

API = "/api/2.1/unity-catalog/tables"
# Source: Unity Catalog's OpenAPI description, CreateTable, ColumnInfo, TableType, DataSourceFormat, ColumnTypeName.
CREATE_TABLE = {
    "name": str,
    "catalog_name": str,
    "schema_name": str,
    "table_type": str,
    "data_source_format": str,
    "columns": list,
    "storage_location": str,
    "comment": str,
    "properties": dict,
}
REQUIRED = {"name", "catalog_name", "schema_name", "table_type", "data_source_format", "columns", "storage_location"}
COLUMN = {
    "name": str,
    "type_text": str,
    "type_json": str,
    "type_name": str,
    "type_precision": int,
    "type_scale": int,
    "type_interval_type": str,
    "position": int,
    "comment": str,
    "nullable": bool,
    "partition_index": int,
}
TYPE_NAMES = {"BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"} | {
    "STRING",
    "BINARY",
    "DECIMAL",
    "INTERVAL",
    "ARRAY",
    "STRUCT",
    "MAP",
    "CHAR",
    "NULL",
    "USER_DEFINED_TYPE",
    "VARIANT",
}
PAGE = 2


class Server(ThreadingHTTPServer):
    """The tables of one schema."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.tables: dict[str, dict[str, Any]] = {}


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        allowed = {"catalog_name", "schema_name", "max_results", "page_token"}
        if urlsplit(self.path).path != API or not {"catalog_name", "schema_name"} <= query.keys() <= allowed:
            return self.answer(400, {"error_code": "INVALID_ARGUMENT", "message": self.path})
        start = int(query.get("page_token", "0"))
        tables = sorted(self.server.tables.values(), key=lambda table: str(table["name"]))
        page: dict[str, Any] = {"tables": tables[start : start + PAGE]}
        self.answer(200, {**page, "next_page_token": str(start + PAGE)} if start + PAGE < len(tables) else page)

    def do_POST(self) -> None:
        table = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = table.get("name")
        problems = [*faults(table)]
        if problems or name in self.server.tables:
            return self.answer(
                400, {"error_code": "INVALID_ARGUMENT", "message": "; ".join(problems) or "ALREADY_EXISTS"}
            )
        self.server.tables[name] = table
        self.answer(200, table)

    def do_DELETE(self) -> None:
        name = unquote(self.path.removeprefix(f"{API}/")).split(".")
        gone = self.server.tables.pop(name[-1], None) if name[:-1] == ["main", "lake"] else None
        self.answer(404 if gone is None else 200, {})

    def answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def faults(table: dict[str, Any]) -> list[str]:
    """What the description doesn't allow in the request for a new table."""
    found = [f"lacks {name}" for name in REQUIRED - table.keys()]
    found += wrong(table, CREATE_TABLE)
    if table.get("table_type") != "EXTERNAL" or table.get("data_source_format") != "DELTA":
        found.append("expected an external Delta table")
    for position, column in enumerate(table.get("columns", ())):
        found += wrong(column, COLUMN)
        if column["type_name"] not in TYPE_NAMES or column["position"] != position:
            found.append(f"column {column}")
        written = json.loads(column["type_json"])
        if written["name"] != column["name"] or not {"type", "nullable", "metadata"} < written.keys():
            found.append(f"type_json {written}")
    if not all(isinstance(value, str) for value in table.get("properties", {}).values()):
        found.append("properties are texts")
    return found


def wrong(given: dict[str, Any], allowed: Mapping[str, type]) -> list[str]:
    return [f"{name}: {value!r}" for name, value in given.items() if type(value) is not allowed.get(name)]


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_topics_are_external_tables_by_requests_that_the_api_allows(server):
    cluster = open_cluster(MemoryStore())
    Admin(cluster).create_topics([NewTopic(f"t-{number}", 1) for number in range(5)])
    catalog = UnityCatalog(f"http://127.0.0.1:{server.server_port}", "main", "lake", location=ROOT)
    server.tables["others"] = {"name": "others", "table_type": "MANAGED", "storage_location": "s3://managed/1"}
    assert sync_catalog(catalog, cluster).taken == {}
    assert sorted(server.tables) == ["others", *(f"t_{number}" for number in range(5))]
    table = server.tables["t_3"]
    assert table["storage_location"] == f"{ROOT}/topics/t-3"
    indexes = {column["name"]: column.get("partition_index") for column in table["columns"]}
    assert (indexes["partition"], indexes["base_offset"], indexes["value"]) == (0, 1, None)
    assert sync_catalog(catalog, cluster).unchanged == 5  # of three pages
    moved = UnityCatalog(f"http://127.0.0.1:{server.server_port}/", "main", "lake", location="s3://moved")
    Admin(cluster).delete_topics(["t-0"])
    plan = sync_catalog(moved, cluster, drop=True)
    assert (len(plan.replacements), [found.name for found in plan.drops]) == (4, ["t_0"])
    assert server.tables["t_3"]["storage_location"] == "s3://moved/topics/t-3"
    assert "others" in server.tables


def test_a_refusal_and_a_server_that_isnt_there_are_told(server):
    catalog = UnityCatalog(f"http://127.0.0.1:{server.server_port}", "main", "other", location=ROOT)
    server.tables["t"] = {"name": "t", "table_type": "EXTERNAL"}
    [there] = catalog.found().values()
    with pytest.raises(StoreError, match=r"answered 404 to DELETE /tables/main\.other\.t"):
        catalog.drop(there)
    with pytest.raises(StoreError, match="can't be reached"):
        UnityCatalog("http://127.0.0.1:9", "main", "lake").found()
    with pytest.raises(InvalidArgumentError, match=r"server 'file:///etc': expected http"):
        UnityCatalog("file:///etc", "main", "lake")
