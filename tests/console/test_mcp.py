"""The endpoint of the Model Context Protocol lists its tools, calls them, and tells errors as the protocol says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparklog.log import Cluster
from tests.console.support import TestClient, a_cluster, a_topic, console, consume, produce


@pytest.fixture
def cluster() -> Cluster:
    cluster = a_cluster()
    a_topic(cluster)
    produce(cluster, b"a", b"b")
    consume(cluster, "g", 1)
    return cluster


def call(client: TestClient, method: str, **params: Any) -> dict[str, Any]:
    answer = client.post("/mcp", json={"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    assert (found["jsonrpc"], found["id"]) == ("2.0", 7)
    return found


def tool(client: TestClient, name: str, **arguments: Any) -> tuple[str, bool]:
    result = call(client, "tools/call", name=name, arguments=arguments)["result"]
    return result["content"][0]["text"], result["isError"]


def test_a_client_is_greeted_and_shown_the_tools(cluster: Cluster) -> None:
    with console(cluster) as client:
        result = call(client, "initialize", protocolVersion="2025-03-26", capabilities={}, clientInfo={})["result"]
        assert (result["protocolVersion"], result["serverInfo"]["name"]) == ("2025-03-26", "sparklog")
        assert call(client, "initialize", protocolVersion="1999-01-01")["result"]["protocolVersion"] == "2025-06-18"
        answer = client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (answer.status_code, answer.content) == (202, b"")
        assert call(client, "ping")["result"] == {}
        tools = call(client, "tools/list")["result"]["tools"]
        assert [one["name"] for one in tools] == ["list_topics", "describe_topic", "group_lag", "sql"]
        assert all(one["annotations"] == {"readOnlyHint": True} for one in tools)


def test_tools_answer(cluster: Cluster) -> None:
    with console(cluster) as client:
        text, is_error = tool(client, "list_topics")
        assert (json.loads(text)["topics"][0]["records"], is_error) == (2, False)
        assert json.loads(tool(client, "describe_topic", topic="orders")[0])["settings"]["cleanup.policy"] == "delete"
        assert json.loads(tool(client, "group_lag")[0])["groups"][0]["lag"] == 1
        assert tool(client, "sql", query="select count(*) as n from orders") == ('{"n": 2}\n', False)
        text, _ = tool(client, "sql", query="select range, repeat('x', 1000) from range(10000)")
        assert ("cut after" in text, len(text) < 250_000) == (True, True)


def test_what_fails_is_an_error_of_the_tool(cluster: Cluster) -> None:
    with console(cluster) as client:
        assert tool(client, "sql", query="create table x as select 1")[1]
        assert tool(client, "sql", query="select * from read_text('/etc/passwd')")[1]
        text, is_error = tool(client, "describe_topic", topic="nope")
        assert ("unknown topic" in text, is_error) == (True, True)


def test_what_makes_no_sense_is_an_error_of_the_protocol(cluster: Cluster) -> None:
    with console(cluster) as client:
        assert call(client, "nope")["error"]["code"] == -32601
        for params in ({"name": "nope"}, {"name": 1}, {"name": "sql"}, {"name": "sql", "arguments": {"query": 1}}):
            assert call(client, "tools/call", **params)["error"]["code"] == -32602
        for body, status in (
            (b"{", 400),
            (b"[]", 400),
            (b'{"id": 1}', 400),
            (b"[" * 100_000, 400),
            (b"x" * 2**21, 413),
        ):
            answer = client.post("/mcp", content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code == status
        assert client.post("/mcp", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
        assert client.get("/mcp").status_code == 405
