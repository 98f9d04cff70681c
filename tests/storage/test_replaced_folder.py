"""Rule L17, ground: a log's folder is unmounted, moved, deleted, exchanged or put back under a client that has it open.

Every kind of log, by its own class, on a folder of this machine.
"""

from __future__ import annotations

import gc
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparklog._native import CORE
from sparklog.clock import SystemClock
from sparklog.delta.actions import encode_entry
from sparklog.delta.log import DeltaLog
from sparklog.errors import CommitStateUnknownError, StoreFullError, StoreReplacedError, StoreUnavailableError
from sparklog.gateway.user_log import encode_users, open_user_log
from sparklog.groups.membership.generations import encode_generation, generation_log
from sparklog.groups.membership.proposals import empty_plan
from sparklog.groups.sharing.entries import encode_entry as encode_share_entry
from sparklog.groups.sharing.entries import open_share_log
from sparklog.groups.sharing.states import empty_partition
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.model import TopicPartition
from sparklog.paths import group_offsets_table, topic_table
from sparklog.storage import LocalStore, local
from sparklog.storage.entry_log import Created, EntryLog, PositionLost
from sparklog.storage.foothold import MOST_HELD, Foothold
from sparklog.storage.position import Position
from sparklog.testing import Fault, FaultKind, FaultyStore
from sparklog.testing.faulty_store import Call
from sparklog.txn.entries import Header, encode_transaction, first_entry, open_transaction_log

CLOCK = SystemClock()


def delta_log(cluster: Cluster, table: str) -> DeltaLog:
    return DeltaLog(store=cluster.store, table=table, clock=cluster.clock, tail_trust_ms=cluster.tail_trust_ms)


def encode_delta(token: str) -> bytes:
    return encode_entry(
        actions=(), token=token, info={}, operation="WRITE", blind_append=True, timestamp_ms=0, version="1"
    )


def encode_of_transaction(token: str) -> bytes:
    return encode_transaction(first_entry(Header(producer_id=1, producer_epoch=0, timeout_ms=60_000), now_ms=0), token)


@dataclass(frozen=True)
class Kind:
    """One kind of log: where it lies, and the bytes of its entries."""

    folder: str
    home: str
    open: Callable[[Cluster], EntryLog[Any]]
    encode: Callable[[str], bytes]


def transaction_log_of(transactional_id: str) -> Callable[[Cluster], EntryLog[Any]]:
    return lambda cluster: open_transaction_log(cluster, transactional_id)


KINDS = {
    "topic": Kind("topics/t/_delta_log", "topics/t", lambda c: delta_log(c, topic_table("t")), encode_delta),
    "offsets": Kind(
        "groups/g/offsets/_delta_log", "groups/g", lambda c: delta_log(c, group_offsets_table("g")), encode_delta
    ),
    "generations": Kind(
        "groups/g/generations",
        "groups/g",
        lambda c: generation_log(c, "g"),
        lambda token: encode_generation(empty_plan(now_ms=0), token),
    ),
    "transactions": Kind("transactions/x", "transactions/x", transaction_log_of("x"), encode_of_transaction),
    "share group": Kind(
        "share-groups/s/partitions/t/0",
        "share-groups/s",
        lambda c: open_share_log(c, "s", TopicPartition("t", 0)),
        lambda token: encode_share_entry(empty_partition("id", 0), token),
    ),
    "users": Kind("gateway-users", "gateway-users", open_user_log, lambda token: encode_users(token, bytes(32), {})),
}


@dataclass
class Client:
    """A client of one log, with what it knows of it."""

    kind: Kind
    cluster: Cluster
    sync: bool = False
    log: EntryLog[Any] = field(init=False)
    position: Position = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.kind.open(self.cluster)
        self.position = Position(version=self.log.first_version - 1, token="", anchor_ticks_ms=CLOCK.ticks_ms())

    def create(self, count: int = 1, *, timeout_ms: float = 2_000) -> int:
        for _ in range(count):
            done = self.log.create_next(
                self.position,
                self.kind.encode,
                tokens=set(),
                deadline=CLOCK.deadline_in(timeout_ms),
                sync=self.sync,
            )
            assert isinstance(done, Created)
            self.position = done.position
        return self.position.version

    def follow(self) -> None:
        """Read what others created."""
        while (look := self.log.look(self.position)).entries:
            self.position = look.position
        self.position = look.position


def tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*")) if root.exists() else []


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.json"))


WAYS = ["core", "core, fsynced", "python", "temporary", "temporary, fsynced"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """How files are created: by the core, by Python's calls, and where the system has no files without a name."""
    if not request.param.startswith("core"):
        monkeypatch.setattr(local, "CORE", None)
    elif CORE is None:
        pytest.skip("there is no core")
    return request.param


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def a_cluster(root: Path | str, way: str = "core", **settings: Any) -> Cluster:
    store = LocalStore(root)
    store._nameless.is_supported = store._nameless.is_supported and not way.startswith("temporary")
    return open_cluster(store, clock=CLOCK, retry_ms=200, **settings)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def client(root, kind, way):
    client = Client(kind, a_cluster(root, way), way.endswith("fsynced"))
    client.create(3)
    return client


@pytest.fixture
def quick(root, kind):
    """A client that creates files in the quickest way that there is."""
    client = Client(kind, a_cluster(root))
    client.create(3)
    return client


def refuses(client: Client, *, says: str = "") -> None:
    """Each further create fails for the same reason, at once, and writes nothing."""
    for _ in range(3):
        with pytest.raises(StoreReplacedError, match=says or None):
            client.create()


@pytest.mark.parametrize("what", ["log", "home", "root"])
@pytest.mark.parametrize("how", ["moved", "deleted"])
def test_a_folder_that_is_gone_is_named_and_never_made_again(client, root, kind, what, how):
    folder = {"log": root / kind.folder, "home": root / kind.home, "root": root}[what]
    away = root.parent / "away"
    os.rename(folder, away)
    before = tree(root)
    if how == "deleted":
        shutil.rmtree(away)
    refuses(client, says=f"{folder} is gone")
    assert not folder.exists()
    assert tree(root) == before


@pytest.mark.parametrize("what", ["log", "home", "root"])
def test_once_the_same_folder_is_back_the_client_goes_on(client, root, kind, what):
    folder = {"log": root / kind.folder, "home": root / kind.home, "root": root}[what]
    away, number = root.parent / "away", client.position.version
    os.rename(folder, away)
    refuses(client)
    os.rename(away, folder)
    assert client.create() == number + 1
    assert Client(kind, a_cluster(root)).log.read_entry(number + 1) is not None


@pytest.mark.parametrize("is_held", [True, False], ids=["held", "not held"])
def test_a_copy_that_has_all_entries_is_as_good(quick, root, kind, is_held):
    """As a network file system that was mounted again, whose folders have other numbers."""
    if not is_held:
        quick.log.foothold.held = None
    number = quick.position.version
    os.rename(root / kind.folder, root.parent / "away")
    shutil.copytree(root.parent / "away", root / kind.folder)
    assert quick.create(2) == number + 2
    assert len(entries(root / kind.folder)) == len(entries(root.parent / "away")) + 2


@pytest.mark.parametrize("is_held", [True, False], ids=["held", "not held"])
def test_a_copy_that_lacks_the_newest_entry_is_another_log(quick, root, kind, is_held):
    """As a volume that is set back to a snapshot."""
    if not is_held:
        quick.log.foothold.held = None
    shutil.copytree(root / kind.folder, root.parent / "snapshot")
    number = quick.create()
    os.rename(root / kind.folder, root.parent / "away")
    os.rename(root.parent / "snapshot", root / kind.folder)
    before = tree(root)
    refuses(quick, says=f"expected the entry {number} that this client knows, there is none")
    assert tree(root) == before


@pytest.mark.parametrize("count", [1, 3, 7], ids=["shorter", "equally long", "longer"])
@pytest.mark.parametrize("is_held", [True, False], ids=["held", "not held"])
def test_another_log_of_the_same_cluster_gets_no_entry(quick, root, kind, count, is_held):
    """That there is an entry of the same number proves nothing."""
    if not is_held:
        quick.log.foothold.held = None
    os.rename(root / kind.folder, root.parent / "away")
    Client(kind, a_cluster(root)).create(count)
    before = tree(root)
    refuses(quick, says="another log is at")
    assert tree(root) == before
    shutil.rmtree(root / kind.folder)
    os.rename(root.parent / "away", root / kind.folder)
    quick.create()


@pytest.mark.parametrize("count", [0, 1, 3, 7])
@pytest.mark.parametrize("is_held", [True, False], ids=["held", "not held"])
def test_another_cluster_in_the_same_place_gets_no_entry(quick, root, kind, count, is_held):
    if not is_held:
        quick.log.foothold.held = None
    shutil.rmtree(root)
    other = Client(kind, a_cluster(root))
    other.create(count)
    before = tree(root)
    refuses(quick, says="is gone" if count == 0 else "another cluster is at")
    assert tree(root) == before
    other.create(3)


def test_a_place_without_a_cluster_gets_no_entry(quick, root, kind):
    """As the folder that a volume is mounted on, with what was in it before."""
    shutil.copytree(root, root.parent / "copy")
    os.rename(root, root.parent / "away")
    os.rename(root.parent / "copy", root)
    os.unlink(root / "cluster.json")
    refuses(quick, says="the cluster at .* is gone")


def test_a_client_whose_root_is_a_link_goes_on_with_what_it_has_opened(tmp_path, kind, way):
    blue, green = (Client(kind, a_cluster(tmp_path / name)) for name in ("blue", "green"))
    blue.create(3)
    green.create(2)
    os.symlink("blue", tmp_path / "current")
    client = Client(kind, a_cluster(tmp_path / "current", way), way.endswith("fsynced"))
    client.follow()
    client.create()
    os.symlink("green", tmp_path / "new")
    os.rename(tmp_path / "new", tmp_path / "current")
    before = tree(tmp_path / "green")
    client.create()
    assert tree(tmp_path / "green") == before
    assert len(entries(tmp_path / "blue" / kind.folder)) == 5
    assert client.cluster.store.uri == (tmp_path / "current").as_uri()


@pytest.mark.parametrize("count", [2, 3, 9])
def test_a_link_within_the_root_that_is_switched_is_noticed(root, kind, count):
    client = Client(kind, a_cluster(root))
    client.create(3)
    os.rename(root / kind.folder, root.parent / "blue")
    os.symlink(root.parent / "blue", root / kind.folder)
    client.create()
    Client(kind, a_cluster(root.parent / "other")).create(count)
    os.symlink(root.parent / "other" / kind.folder, root.parent / "link")
    os.rename(root.parent / "link", root / kind.folder)
    before = tree(root.parent / "other")
    refuses(client, says="another log is at")
    assert tree(root.parent / "other") == before


def test_a_follower_that_read_on_in_another_log_is_stopped_by_what_it_created_before(root, kind):
    """It has read the other log's newest entry, and finds it there: only its own entry shows the exchange."""
    client = Client(kind, a_cluster(root))
    client.create(3)
    os.rename(root / kind.folder, root.parent / "away")
    Client(kind, a_cluster(root)).create(6)
    client.follow()
    refuses(client, says="another log is at")


def test_a_create_in_doubt_is_unknown_and_later_ones_fail(root, kind):
    """Its answer is lost, and before it can be read back the folder is gone."""
    moved: list[Call] = []

    def vanish(call: Call) -> bool:
        is_entry = call.path.startswith(kind.folder) and call.path.endswith(
            "3.json" if kind.folder[-3:] == "log" else "4.json"
        )
        if is_entry and not moved:
            moved.append(call)
            os.rename(root, root.parent / "away")
        return is_entry

    faulty = FaultyStore(LocalStore(root), Fault(kind=FaultKind.LOST_REQUEST, ops=["create"], when=vanish))
    client = Client(kind, open_cluster(faulty, clock=CLOCK))
    client.create(3)
    with pytest.raises(CommitStateUnknownError):
        client.create(timeout_ms=500)
    refuses(client)
    os.rename(root.parent / "away", root)
    client.create()


def test_a_cleanup_is_no_exchange(root):
    """A sleeper, whose entry was cleaned and whose folder is held no more, loads the log again (rule L1, trust)."""
    kind = KINDS["generations"]
    client, other = Client(kind, a_cluster(root)), Client(kind, a_cluster(root))
    client.create(2)
    other.follow()
    other.create(3)
    other.log.mark_cleaned(4)
    other.log.store.delete([other.log.path_of(number) for number in (1, 2, 3)])
    client.log.foothold.held = None
    with pytest.raises(PositionLost):
        client.create()


def test_an_entry_of_its_own_that_was_cleaned_is_no_exchange(root):
    kind = KINDS["generations"]
    client, other = Client(kind, a_cluster(root)), Client(kind, a_cluster(root))
    client.create(2)
    other.follow()
    other.create(3)
    client.follow()
    other.log.mark_cleaned(4)
    other.log.store.delete([other.log.path_of(number) for number in (1, 2, 3)])
    shutil.copytree(root / kind.folder, root.parent / "copy")
    os.rename(root / kind.folder, root.parent / "away")
    os.rename(root.parent / "copy", root / kind.folder)
    assert client.create() == 6


def descriptors_below(folder: Path) -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith(str(folder))
        except OSError:
            continue
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
class TestDescriptors:
    def test_of_very_many_logs_the_newest_are_held_and_all_are_checked(self, root):
        cluster = a_cluster(root)
        count = MOST_HELD + 40
        clients = []
        for number in range(count):
            kind = Kind(f"transactions/{number}", "", transaction_log_of(str(number)), encode_of_transaction)
            clients.append(Client(kind, cluster))
            clients[-1].create(2)
        assert descriptors_below(root) == MOST_HELD
        for client in clients:
            client.create()
        assert descriptors_below(root) == MOST_HELD
        for number in (0, count - 1):
            os.rename(root / f"transactions/{number}", root.parent / f"away-{number}")
            Client(clients[number].kind, a_cluster(root)).create(3)
            refuses(clients[number], says="another log is at")
        clients.clear()
        gc.collect()
        assert descriptors_below(root) == 0

    def test_a_store_that_is_closed_holds_nothing(self, root):
        client, other = Client(KINDS["topic"], a_cluster(root)), Client(KINDS["users"], a_cluster(root))
        client.create(2)
        other.create(2)
        client.cluster.store.close()
        assert descriptors_below(root) == 1  # the other's
        client.create()  # nothing is lost by it

    def test_readers_hold_nothing(self, root):
        Client(KINDS["topic"], a_cluster(root)).create(3)
        gc.collect()
        reader = Client(KINDS["topic"], a_cluster(root, create=False))
        reader.follow()
        assert descriptors_below(root) == 0

    def test_a_held_folder_is_closed_when_a_program_is_started(self, root):
        client = Client(KINDS["topic"], a_cluster(root))
        client.create(2)
        held = client.log.foothold.held
        assert held is not None
        assert not os.get_inheritable(held.descriptor)

    def test_a_forked_child_may_close_its_own(self, root):
        client = Client(KINDS["topic"], a_cluster(root))
        client.create(2)
        child = os.fork()
        if child == 0:
            client.cluster.store.close()
            os._exit(0 if descriptors_below(root) == 0 else 1)
        assert os.waitpid(child, 0)[1] == 0
        client.create()
        assert descriptors_below(root) == 1

    def test_a_log_that_is_sent_to_another_process_holds_nothing_there(self, root):
        client = Client(KINDS["topic"], a_cluster(root))
        client.create(2)
        assert pickle.loads(pickle.dumps(client.log.foothold)).held is None

    def test_no_descriptor_left_is_told_as_such(self, root, monkeypatch):
        client = Client(KINDS["topic"], a_cluster(root))
        client.create(2)
        client.log.foothold.held = None
        real = os.open

        def full(path: Any, flags: int, *mode: int, **keywords: Any) -> int:
            if flags & os.O_DIRECTORY and not flags & getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY:
                raise OSError(24, "Too many open files")
            return real(path, flags, *mode, **keywords)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", full)
            with pytest.raises(CommitStateUnknownError, match="EMFILE"):
                client.create(timeout_ms=0)
        client.create()


def test_a_store_tells_others_its_name_as_it_was_given(tmp_path):
    (tmp_path / "real").mkdir()
    os.symlink("real", tmp_path / "link")
    store = LocalStore(tmp_path / "link")
    assert (store.uri, store.root, repr(store)) == (
        (tmp_path / "link").as_uri(),
        tmp_path / "link",
        f"LocalStore({str(tmp_path / 'link')!r})",
    )
    os.unlink(tmp_path / "link")
    store.put("a", b"1")
    assert (tmp_path / "real" / "a").read_bytes() == b"1"
    with pytest.raises(Exception, match=str(tmp_path / "link" / "b")):
        store.read("b")


def test_a_root_that_is_a_link_to_nothing_yet_is_made(tmp_path):
    os.symlink("real", tmp_path / "link")
    LocalStore(tmp_path / "link").put("a", b"1")
    assert (tmp_path / "real" / "a").read_bytes() == b"1"


def test_a_bare_store_makes_folders_as_before(tmp_path):
    store = LocalStore(tmp_path / "data")
    store.put("topics/t/a", b"1")
    foothold = Foothold()
    store.create_next("topics/t/log/0", b"0", foothold=foothold, check=lambda: None, is_first=True)
    store.create_next("topics/t/log/1", b"1", foothold=foothold, check=lambda: None)
    with pytest.raises(StoreReplacedError, match="other is gone"):
        store.create_next("topics/t/other/1", b"1", foothold=Foothold(), check=lambda: None)
    assert StoreUnavailableError("").is_refusal is False
    assert StoreFullError("").is_refusal is True
