"""A topic, group, transactional id, entry or file that can't be read is reported by its name, and all else is done."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from sparklog import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from sparklog.errors import StorePermissionError, StoreUnavailableError
from sparklog.log import open_cluster
from sparklog.storage import LocalStore, MemoryStore, ObjectInfo, ObjectStore
from sparklog.testing import WrappedStore
from tests.cli.support import run

T = TypeVar("T")

VICTIMS = {
    "topic": "topics/bad/_delta_log",
    "entry": "topics/bad/_delta_log/00000000000000000001.json",
    "file": "topics/bad/partition=0/*.parquet",
    "group": "groups/bad",
    "transactional id": "transactions/bad",
    "share group": "share-groups/bad",
}
CHECKED = [victim for victim in VICTIMS if victim != "share group"]
"""The check doesn't look at share groups."""
PARTLY = 3

Plant = Callable[[str], tuple[str, str]]
"""Makes something unreadable; the cluster's URI, and the path."""


class RemoteStore(WrappedStore):
    """An object store that refuses what lies under a prefix, as a bucket's policy does; or is away altogether."""

    def __init__(self, store: ObjectStore, refused: str = "\0") -> None:
        super().__init__(store)
        self.refused = refused
        self.is_away = False
        self.asked: set[str] = set()
        """What was asked for while it was away."""

    @property
    def uri(self) -> str:
        return "s3://bucket/root"

    @property
    def is_remote(self) -> bool:
        return True

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if self.is_away:
            self.asked.add(path)
            raise StoreUnavailableError(f"{op} {path}: 503 ServiceUnavailable")
        if path.startswith(self.refused):
            raise StorePermissionError(f"{op} {path}: 403 AccessDenied")
        return call()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster in a folder: topics, groups and transactional ids called good and bad."""
    root = tmp_path_factory.mktemp("made") / "cluster"
    admin = Admin(root)
    admin.create_topics([NewTopic(name) for name in ("bad", "good", "other")])
    for name in ("bad", "good"):
        with Producer(root, transactional_id=name) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(name, b"x")
            producer.commit_transaction()
        admin.alter_group_offsets(name, {TopicPartition("good", 0): OffsetAndMetadata(1)})
        admin.alter_share_group_offsets(name, {TopicPartition("good", 0): 1})
    admin.close()
    return root


@pytest.fixture(params=["folder", "bucket"])
def plant(request: pytest.FixtureRequest, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Gives a cluster in which something can't be read: a link that leads round in a circle, or a policy's refusal."""

    def plant(victim: str) -> tuple[str, str]:
        root = tmp_path / "cluster"
        shutil.copytree(made, root)
        path = str(next(root.glob(VICTIMS[victim])).relative_to(root))
        if request.param == "folder":
            target = root / path
            shutil.rmtree(target) if target.is_dir() else target.unlink()
            target.symlink_to(target)
            return str(root), path
        store = RemoteStore(in_memory(root), path)
        for module in ("sparklog.log.cluster", "sparklog.admin.connection", "sparklog.storage"):
            monkeypatch.setattr(f"{module}.open_store", lambda *_: store)
        return store.uri, path

    return plant


def in_memory(root: Path) -> MemoryStore:
    memory, folder = MemoryStore(), LocalStore(root)
    found: list[ObjectInfo] = [*folder.list("")]
    for one in found:
        memory.put(one.path, folder.read(one.path))
    return memory


@pytest.mark.parametrize("victim", CHECKED)
def test_check_names_it_and_checks_the_rest(plant: Plant, victim: str) -> None:
    cluster, path = plant(victim)
    result = run("check", "--deep", cluster=cluster)
    assert result.exit_code == PARTLY, result.output
    rows = [line.split()[1] for line in result.stdout.splitlines() if line.startswith("error")]
    whole = {"topic": "topic-unreadable", "group": "group-unreadable", "transactional id": "transaction-unreadable"}
    assert set(rows) == {whole.get(victim, "object-unreadable")}
    assert path.removesuffix("_delta_log") in result.stdout
    assert "checked 3 topics" in result.stdout
    assert "2 groups" in result.stdout
    assert "2 transactional ids" in result.stdout


@pytest.mark.parametrize("victim", VICTIMS)
def test_maintain_names_it_and_maintains_the_rest(plant: Plant, victim: str) -> None:
    cluster, path = plant(victim)
    result = run("maintain", "--full", cluster=cluster)
    assert result.exit_code == (0 if victim == "file" else 1), result.output  # one file isn't worth merging
    for line in result.stderr.splitlines():
        assert path.removesuffix("_delta_log") in line
    assert run("check", "--deep", cluster=cluster).exit_code == (PARTLY if victim in CHECKED else 0)


@pytest.mark.parametrize(
    ("command", "victims"),
    [
        ("topics list", {"topic"}),
        ("topics describe", {"topic"}),
        ("groups list", {"group"}),
        ("groups list --state", {"group"}),
        ("groups describe", {"group"}),
        ("share-groups list", {"share group"}),
        ("share-groups describe", {"share group"}),
        ("transactions list", {"transactional id"}),
        ("transactions describe", {"transactional id"}),
    ],
)
@pytest.mark.parametrize("victim", ["topic", "group", "share group", "transactional id"])
def test_lists_name_it_and_have_all_others(plant: Plant, command: str, victims: set[str], victim: str) -> None:
    cluster, _ = plant(victim)
    result = run(*command.split(), cluster=cluster)
    assert result.exit_code == (PARTLY if victim in victims else 0), result.output
    assert "good" in result.stdout
    named = [line for line in result.stderr.splitlines() if line.startswith(f"sparklog: error: {victim} bad: ")]
    assert len(named) == (victim in victims)


@pytest.mark.parametrize(
    ("query", "victims"),
    [
        ("select count(*) as good from good", set()),
        ("show tables", {"topic", "entry", "file", "group", "transactional id"}),
        ("select * from consumer_offsets", {"group"}),
        ("select * from consumer_lag", {"group"}),
        ("select * from transactions", {"transactional id"}),
    ],
)
@pytest.mark.parametrize("victim", VICTIMS)
def test_sql_answers_from_what_can_be_read(plant: Plant, query: str, victims: set[str], victim: str) -> None:
    cluster, _ = plant(victim)
    result = run("sql", query, cluster=cluster)
    if victim == "file" and cluster.startswith("/"):  # of a bucket's files the footers are read before
        victims = victims - {"file"}
    assert result.exit_code == (PARTLY if victim in victims else 0), result.output
    assert "good" in result.stdout
    assert (" bad: " in result.stderr) == (victim in victims)


@pytest.mark.parametrize("victim", ["topic", "entry"])
def test_sql_on_what_cannot_be_read_says_why(plant: Plant, victim: str) -> None:
    cluster, path = plant(victim)
    result = run("sql", "select count(*) from bad", cluster=cluster)
    assert result.exit_code == 1
    assert path in result.stderr


@pytest.mark.parametrize("victim", ["topic", "entry", "group", "transactional id"])
def test_displays_name_it_and_show_the_rest(plant: Plant, victim: str) -> None:
    cluster, _ = plant(victim)
    kind = {"entry": "topic", "transactional id": "transaction"}.get(victim, victim)
    top = run("top", "--once", "--interval", "0.1", cluster=cluster)
    assert top.exit_code == PARTLY, top.output
    assert f"1 unreadable: {kind} bad" in top.stdout
    assert "good" in top.stdout
    assert f"sparklog: error: {kind} bad: " in top.stderr
    exported = run("exporter", "--once", cluster=cluster)
    assert exported.exit_code == PARTLY, exported.output
    assert f"sparklog: error: {kind} bad: " in exported.stderr
    assert f'sparklog_unreadable{{kind="{kind}",name="bad"}} 1' in exported.stdout
    assert 'kafka_topic_partitions{topic="good"} 1' in exported.stdout
    assert 'kafka_topic_partitions{topic="other"} 1' in exported.stdout


@pytest.mark.parametrize("victim", VICTIMS)
def test_health_warns_and_names_it(plant: Plant, victim: str) -> None:
    cluster, _ = plant(victim)
    result = run("health", "--read-only", cluster=cluster)
    assert result.exit_code == 0, result.output
    assert (f"1 unreadable: {victim} bad: " in result.stdout) == (victim in ("topic", "group", "transactional id"))


@pytest.mark.parametrize("command", ["check", "maintain", "topics list", "groups list", "transactions list"])
def test_a_store_that_goes_away_ends_a_command_at_once(
    made: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Not after a time-out for each of 200 topics, groups and ids: no more is asked for than at the same time."""
    memory = in_memory(made)
    for kind in ("topics", "groups", "transactions"):
        for number in range(200):
            for one in [*memory.list(f"{kind}/good/")]:
                memory.put(one.path.replace("good", f"more{number}"), memory.read(one.path))
    store = RemoteStore(memory)
    for module in ("sparklog.log.cluster", "sparklog.admin.connection"):
        monkeypatch.setattr(f"{module}.open_store", lambda *_: store)
    monkeypatch.setitem(open_cluster.__kwdefaults__ or {}, "retry_ms", 0.0)
    names = store.list_names

    def away_after_listing(prefix: str) -> Sequence[str]:
        found = names(prefix)
        store.is_away = prefix == f"{command.split()[0]}/" or prefix == "topics/"
        return found

    monkeypatch.setattr(store, "list_names", away_after_listing)
    result = run(*command.split(), cluster=store.uri)
    assert result.exit_code in (1, 75), result.output
    assert "503" in result.stderr
    assert len(store.asked) < 100
