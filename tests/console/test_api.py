"""The JSON API answers what its description promises."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.routing import Route

from sparklog.compaction import maintain
from sparklog.console import create_app
from sparklog.console.openapi import DESCRIPTION
from sparklog.delta.names import entry_path
from sparklog.log import Cluster
from sparklog.producer import Producer
from tests.console.support import TestClient, a_cluster, a_topic, backend_of, console, consume, produce

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Cluster:
    cluster = a_cluster()
    a_topic(cluster)
    produce(cluster, b'{"total": 1}', b"\xff\x00", key=b"user-1", headers=[("h", None)])
    consume(cluster, "a/b", 1)
    return cluster


def lines(client: TestClient, path: str) -> list[dict[str, Any]]:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_the_description_names_every_path_and_no_other(cluster: Cluster) -> None:
    with console(cluster) as client:
        assert client.get("/api/openapi.json").json() == json.loads(json.dumps(DESCRIPTION))
        app = create_app(backend_of(client))
    paths = {route.path.replace(":path", "") for route in app.routes if isinstance(route, Route)}
    assert {*DESCRIPTION["paths"], "/api/openapi.json"} == {path for path in paths if path.startswith("/api/")}


def assert_as_described(answer: Any, path: str) -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    [schema] = DESCRIPTION["paths"][path]["get"]["responses"]["200"]["content"].values()
    validator.check_schema(schema["schema"])
    assert [f"{one.json_path}: {one.message}" for one in validator(schema["schema"]).iter_errors(answer)] == []


def test_answers_have_the_fields_that_the_description_names(cluster: Cluster) -> None:
    a_topic(cluster, "typed", value_schema=pa.schema([("a", pa.struct([("b", pa.int64())]))]))
    produce(cluster, {"a": {"b": 1}}, topic="typed")
    with Producer(cluster=cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"in a transaction")
        producer.commit_transaction()
    maintain(cluster)
    named = {"topic": "typed", "group": "a/b"}
    with console(cluster) as client:
        for path in DESCRIPTION["paths"]:
            if path == "/api/sql":
                continue
            for name in ("typed", "orders") if "{topic}" in path else ("",):
                asked = path.replace("{topic}", name).replace("{group}", quote(named["group"], safe=""))
                for answer in lines(client, asked):
                    assert_as_described(answer, path)


def test_files_and_commits_are_listed_in_pieces(cluster: Cluster) -> None:
    with console(cluster) as client:
        first, second = (client.get(f"/api/topics/orders/files?limit=1&skip={skip}").json() for skip in range(2))
        assert (first["version"], first["file_count"]) == (2, 2)
        [newer], [older] = first["files"], second["files"]
        assert (newer["path"] != older["path"], newer["partition"], newer["records"]) == (True, 0, 1)
        assert {newer["first_offset"], older["last_offset"]} == {0, 1}
        assert client.get("/api/topics/orders/files?partition=0").json()["file_count"] == 2
        assert client.get("/api/topics/orders/files?partition=9").status_code == 404
        assert client.get("/api/topics/orders/files?limit=501").status_code == 400
        commits = client.get("/api/topics/orders/commits?limit=2").json()
        assert ([one["version"] for one in commits["commits"]], commits["older"]) == ([2, 1], 0)
        commits = client.get(f"/api/topics/orders/commits?limit=2&upto={commits['older']}").json()
        assert ([one["version"] for one in commits["commits"]], commits["older"]) == ([0], None)


def test_topics_groups_and_transactions(cluster: Cluster) -> None:
    with console(cluster) as client:
        [topic] = client.get("/api/topics").json()["topics"]
        assert (topic["name"], topic["records"], topic["partitions"][0]["log_end_offset"]) == ("orders", 2, 2)
        assert client.get("/api/topics/orders").json()["settings"]["cleanup.policy"]["is_default"] is True
        assert client.get("/api/topics/orders/commits?limit=1").json()["commits"][0]["operation"] == "WRITE"
        [group] = client.get("/api/groups").json()["groups"]
        assert (group["group"], group["lag"]) == ("a/b", 1)
        assert client.get("/api/groups/a%2Fb").json()["partitions"][0]["committed_offset"] == 1
        assert client.get("/api/transactions").json()["transactions"] == []


def test_maintenance_tells_what_is_due_and_what_runs_did(cluster: Cluster) -> None:
    with console(cluster) as client:
        before = client.get("/api/maintenance").json()
        assert (before["noted_ms"], before["runs"], before["runs_error"]) == (None, [], "")
    produce(cluster, *[b"x"] * 10)
    with console(cluster) as client:
        [due] = client.get("/api/maintenance").json()["due"]
        assert (due["topic"], due["steps"], due["merge_files"]) == ("orders", ["optimize"], 11)
    maintain(cluster)
    with console(cluster) as client:
        after = client.get("/api/maintenance").json()
    assert after["due"] == []
    [run] = after["runs"]
    assert (run["topic_count"], run["failed_count"], run["words"]) == (1, 0, "merged 11 files into 1")
    assert [(one["topic"], one["work"]["merged_files"]) for one in run["topics"]] == [("orders", 11)]
    assert after["unreadable"] == []
    cluster.store.put(entry_path("topics/orders", 99), b"{")
    with console(cluster) as client:  # nothing is due in it as far as is known, and that isn't all
        broken = client.get("/api/maintenance").json()
    assert (broken["due"], [one["name"] for one in broken["unreadable"]]) == ([], ["orders"])


def test_records_are_lines_and_the_last_one_tells_how_far_it_came(cluster: Cluster) -> None:
    with console(cluster) as client:
        second, first, end = lines(client, "/api/topics/orders/records?mode=key&key=user-1")
    assert (first["key"], first["value"], first["headers"]) == ("user-1", '{"total": 1}', [{"key": "h", "value": None}])
    assert second["value_base64"] == "/wA="
    assert (end["search"]["found_count"], end["search"]["is_done"]) == (2, True)
    assert "key = 'user-1'::blob" in end["search"]["statement"]


def test_the_statement_that_is_shown_finds_the_same(cluster: Cluster) -> None:
    searches = ["mode=newest", "mode=offset&offset=1", "mode=key&key=user-1", "mode=header&header=h"]
    searches += ["mode=oldest&until=2999-01-01", "mode=time&since=2020-01-01"]
    searches += ["mode=field&field=total&value=1", "mode=text&text=%27total"]
    with console(cluster) as client:
        for search in searches:
            *found, end = lines(client, f"/api/topics/orders/records?{search}")
            rows = client.get("/api/sql", params={"q": end["search"]["statement"]})
            offsets = [json.loads(line)["offset"] for line in rows.text.splitlines()]
            assert offsets == [one["offset"] for one in found], search


def test_rows_of_a_statement_leave_in_three_forms(cluster: Cluster) -> None:
    query = {"q": 'select "offset" as o, value, decode(\'a,"b\'::blob) as t from orders order by 1'}
    with console(cluster) as client:
        rows = [json.loads(line) for line in client.get("/api/sql", params=query).text.splitlines()]
        assert rows == [
            {"o": 0, "value": '{"total": 1}', "t": 'a,"b'},
            {"o": 1, "value_base64": "/wA=", "t": 'a,"b'},
        ]
        csv = client.get("/api/sql", params={**query, "format": "csv"})
        assert csv.text == 'o,value,t\r\n0,"{""total"": 1}","a,""b"\r\n1,0xff00,"a,""b"\r\n'
        parquet = client.get("/sql", params={**query, "format": "parquet"})
        assert parquet.headers["content-disposition"] == 'attachment; filename="query.parquet"'
        table = pq.read_table(io.BytesIO(parquet.content))
        assert table.column("value").to_pylist() == [b'{"total": 1}', b"\xff\x00"]


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/api/topics/nope", 404, "UnknownTopicOrPartitionError"),
        ("/api/topics/..%2Fx", 404, "HTTP"),
        ("/api/topics/orders/records?limit=501", 400, "InvalidArgumentError"),
        ("/api/topics/orders/commits?limit=x", 400, "InvalidArgumentError"),
        ("/api/groups/nope", 404, "GroupIdNotFoundError"),
        ("/api/sql?q=", 400, "InvalidArgumentError"),
        ("/api/sql?q=select%201;select%202", 400, "InvalidArgumentError"),
        ("/api/sql?q=select%201&format=xml", 400, "InvalidArgumentError"),
        ("/api/nope", 404, "HTTP"),
    ],
)
def test_errors_are_json(cluster: Cluster, path: str, status: int, kind: str) -> None:
    with console(cluster) as client:
        answer = client.get(path)
        assert (answer.status_code, answer.json()["error"]) == (status, kind)


def test_too_many_queries_are_refused_and_places_are_given_back(cluster: Cluster) -> None:
    with console(cluster, most_queries=1) as client:
        for _ in range(3):
            assert client.get("/api/sql?q=select 1").status_code == 200
            assert client.get("/api/sql?q=select nonsense").status_code == 400
            assert client.get("/topics/orders/records?mode=x").status_code == 400
            assert client.get("/topics/orders/records").status_code == 200
        give_back = backend_of(client).query_slot()
        assert client.get("/api/sql?q=select 1").status_code == 429
        assert client.get("/topics/orders/records").status_code == 429
        give_back()
        assert client.get("/api/sql?q=select 1").status_code == 200


def test_a_statement_that_takes_too_long_is_ended(cluster: Cluster) -> None:
    query = "select max(hash(range)) from range(100000000000)"
    with console(cluster, query_timeout_ms=100) as client:
        answer = client.get("/api/sql", params={"q": query})
        assert (answer.status_code, answer.json()["message"]) == (400, "the query was cancelled")
        assert "the query was cancelled" in client.get("/sql", params={"q": query}).text


def test_the_exporters_answers_are_there(cluster: Cluster) -> None:
    with console(cluster) as client:
        assert 'kafka_topic_partitions{topic="orders"} 1' in client.get("/metrics").text
        assert client.get("/healthz").json()["status"] == "ok"
        assert client.get("/readyz").status_code == 200
    with console(cluster, looks=False) as client:
        assert client.get("/readyz").status_code == 503
        assert client.get("/api/topics").status_code == 503
