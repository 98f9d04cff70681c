"""Whatever only looks writes nothing: read access to the store is enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sparklog.admin import Admin
from sparklog.consumer import Consumer
from sparklog.errors import StorePermissionError
from sparklog.log import Cluster, open_cluster
from sparklog.producer import Producer
from sparklog.storage.memory import MemoryStore
from tests.cli.support import a_cluster, done
from tests.console.support import a_topic, console, produce

COMMANDS = (
    "topics list",
    "topics describe",
    "topics describe orders --json",
    "groups list --state",
    "groups describe",
    "groups describe readers --members",
    "groups describe readers --offsets --json",
    "groups reset-offsets idle --to-earliest --topic orders --dry-run",
    "share-groups list",
    "share-groups describe",
    "transactions list",
    "transactions describe",
    "delayed list",
    "dlq list",
    "schemas list",
    "consume orders --from-beginning",
    "maintain --dry-run",
    "maintain --dry-run --full",
    "check",
    "check --deep",
    "health --read-only",
    "top --once --interval 0.1",
    "exporter --once",
)
STATEMENTS = ("consumer_lag", "consumer_offsets", "transactions", "orders")
PAGES = (
    "/",
    *(f"/topics/orders{page}" for page in ("", "/records", "/files", "/compare")),
    "/group?id=readers",
    "/transaction?id=tx",
    "/sql",
    *(
        f"/api/{kind}"
        for kind in ("topics", "topics/orders", "groups", "groups/readers", "transactions", "maintenance")
    ),
)


@pytest.fixture
def uri(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A cluster with a group whose member lives, another without members, and an open transaction; all writes are
    refused from now on."""
    here = a_cluster()
    cluster = open_cluster(here)
    a_topic(cluster)
    produce(cluster, b"a", b"b")
    settings: dict[str, Any] = {"auto_offset_reset": "earliest"}
    with Consumer("orders", cluster=cluster, group_id="idle", **settings) as idle:
        while not idle.poll(1_000):
            pass
    member = Consumer("orders", cluster=cluster, group_id="readers", **settings)
    while not member.poll(1_000):
        pass
    open_transaction = Producer(cluster, transactional_id="tx")
    open_transaction.init_transactions()
    refused: list[str] = []

    def refuse(store: MemoryStore, *arguments: object, **_: object) -> None:
        refused.append(str(arguments[0]))
        raise StorePermissionError("read-only")

    with monkeypatch.context() as patched:
        for write in ("put", "create", "delete"):
            patched.setattr(MemoryStore, write, refuse)
        del refused[:]
        yield here
        tried = [path for path in refused if "/members/" not in path]  # the member goes on trying
    member.close()
    open_transaction.close()
    assert tried == []


@pytest.mark.slow
def test_commands_that_only_look_write_nothing(uri: str) -> None:
    for command in COMMANDS:
        done(*command.split(), cluster=uri)
    for name in STATEMENTS:
        assert done("sql", f"select * from {name}", cluster=uri)
    [described] = Admin(uri).describe_groups(["readers"])
    assert len(described.members) == 1


@pytest.mark.slow
def test_pages_of_a_console_write_nothing(uri: str) -> None:
    cluster: Cluster = open_cluster(uri, create=False)
    with console(cluster) as client:
        for page in PAGES:
            answer = client.get(page)
            assert answer.status_code == 200, (page, answer.text)
        answer = client.get("/api/sql", params={"q": "select * from consumer_lag"})
        assert answer.status_code == 200, answer.text
