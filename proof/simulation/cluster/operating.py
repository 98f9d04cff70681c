"""Worlds in which an operator's statements move or shrink what only grows, and undo it after a while.

``RESTORE`` brings back an older version of a topic's table, ``ALTER TABLE`` lowers its number of partitions, ``UPDATE``
gives records other offsets or another partition. Clients may refuse by errors that say so; once the statement is undone
nothing is lost, and nothing is there twice, of what was acknowledged before, meanwhile and afterwards.

They have seeds of their own, so all other worlds are as they would be without these.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from proof.simulation.cluster.replacing import cluster_file
from proof.simulation.cluster.shape import LOG_RETENTION_MS, JobPlan, Shape, TopicPlan, about_one_thing
from proof.simulation.cluster.weather import Forecast
from sparklog.delta.names import entry_path, log_folder, parse_name
from sparklog.errors import (
    CorruptLogError,
    InvalidPartitionsError,
    NotATopicError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.integrity import Finding
from sparklog.log import Cluster
from sparklog.paths import CLUSTER_FILE, topic_table
from sparklog.storage import CreateResult, ObjectStore
from sparklog.storage.position import DEFAULT_TAIL_TRUST_MS
from tests.support import resealed

if TYPE_CHECKING:
    from proof.simulation.cluster.life import Life
    from proof.simulation.cluster.play import Play

__all__ = ["OPERATED", "OPERATING_SEEDS", "Operating", "draw_operating", "is_operating"]

OPERATING_SEEDS = 4 * 10**12
"""The first seed of these worlds."""
_END = 5 * 10**12
OPERATED = (CorruptLogError, InvalidPartitionsError, NotATopicError, UnknownTopicOrPartitionError)
"""Errors that tell a client of it."""
_TOPIC = "a"
_KINDS = ("restore", "alter", "moved offsets", "moved partition", "another topic's id")

Json = dict[str, Any]


def is_operating(seed: int) -> bool:
    """Is this seed's world one of these?"""
    return OPERATING_SEEDS <= seed < _END


def _kind(seed: int) -> str:
    return random.Random(f"statement {seed}").choice(_KINDS)


def draw_operating(seed: int, shape: Shape, expected: Forecast) -> tuple[Shape, Forecast]:
    """Producers, transactions, and consumers unless records are taken out of what they read, as by a ``DELETE``."""
    draw, kind = random.Random(f"operating {seed}"), _kind(seed)
    configs: dict[str, object] = {"retention.ms": -1, "log.retention.ms": LOG_RETENTION_MS}
    topics = [TopicPlan(name=_TOPIC, partitions=2, configs=configs)]
    roles = ["produce", draw.choice(["produce", "transact"])]
    if kind != "restore":
        roles += ["consume", draw.choice(["consume", "follow"])]
    if draw.random() < 0.3:
        roles.append("maintain")
    settings: Mapping[str, dict[str, object]] = {"transact": {"id": "x"}, "consume": {"auto": False}}
    jobs = [
        JobPlan(name=f"{role}{number}", role=role, steps=10_000, settings=settings.get(role, {}))
        for number, role in enumerate(roles)
    ]
    rare = replace(expected.calmed(), latency_ms=draw.choice([3.0, 10.0]), crash=0.0005, skews=False, drifts=False)
    return about_one_thing(shape, topics, jobs, kills=0.0), rare


@dataclass(frozen=True, slots=True)
class _Table:
    """A table at one version, as any engine reads it."""

    version: int
    metadata: Json
    files: Mapping[str, Json]


class Operating:
    """The operator of such a world."""

    cluster_id = "c"
    tail_trust_ms = DEFAULT_TAIL_TRUST_MS

    def __init__(self, play: Play, seed: int) -> None:
        self._play = play
        self._store = play.memory
        self._store.put(CLUSTER_FILE, cluster_file(self.cluster_id))
        self._draw = random.Random(f"operates {seed}")
        self._kind = _kind(seed)
        self._table = topic_table(_TOPIC)
        self._steps: list[tuple[float, Callable[[], None]]] = []
        self._undo: Callable[[], list[Json]] | None = None
        self._versions: set[int] = set()
        """Of the operator's commits."""
        self._older: _Table | None = None
        self._stray = ""
        self.has_begun = False
        self.is_spoilt = False
        self.lasts_ms = 0.0

    def begin(self, cluster: Cluster) -> None:
        """Draw what happens, and when."""
        draw, now = self._draw, self._play.world.now
        self._play.world.counts[f"operated: {self._kind}"] += 1
        at_ms = now + draw.uniform(10_000, 25_000)
        if self._kind == "restore":
            self._steps.append((now + draw.uniform(4_000, 9_000), self._remember))
        self._steps.append((at_ms, self._act))
        at_ms += draw.uniform(5_000, 40_000)
        self._steps.append((at_ms, self._put_right))
        self.lasts_ms = at_ms - now + draw.uniform(5_000, 20_000)

    def look(self) -> None:
        """Do what is due."""
        while self._steps and self._steps[0][0] <= self._play.world.now:
            self._steps.pop(0)[1]()

    # What clients meet.

    def is_open(self) -> bool:
        """There is a cluster."""
        return True

    def store(self, store: ObjectStore, who: str) -> ObjectStore:
        """The store of a process."""
        return store

    def tell(self, life: Life, error: SparklogError) -> bool:
        """An error came; does the statement excuse it?"""
        if not (self.has_begun and isinstance(error, OPERATED)):
            return False
        self._play.world.counts["told of a statement"] += 1
        return True

    def excuses(self, finding: Finding) -> bool:
        """Does the check name a statement itself, which stays in the log?"""
        return any(f"version {version}:" in str(finding) for version in self._versions)

    def ends(self, life: Life) -> bool:
        """Clients go on, whatever they are told."""
        return False

    def idle_ms(self, draw: random.Random) -> float:
        """For how long a client rests."""
        return draw.expovariate(1 / 1_000)

    # What the operator does.

    def _remember(self) -> None:
        self._older = self._read()

    def _act(self) -> None:
        table = self._read()
        if self._kind == "restore":
            older = self._older or table
            gone = [path for path in table.files if path not in older.files]
            if not gone:
                return
            actions = [older.metadata, *(_remove(path) for path in gone)]
            self._commit("RESTORE", actions)
            self._undo = lambda: [table.metadata, *(table.files[path] for path in gone)]
        elif self._kind == "alter":
            changed = json.loads(json.dumps(table.metadata))
            changed["metaData"]["configuration"]["sparklog.partitions"] = "1"
            self._commit("SET TBLPROPERTIES", [changed])
            self._undo = lambda: [table.metadata]
        elif self._kind == "another topic's id":
            self._append_as_another_topic(table)
        else:
            self._move(table)
        self.has_begun = True

    def _move(self, table: _Table) -> None:
        """Rewrite a file's records under other offsets, or in the other partition."""
        files = [path for path, add in table.files.items() if add["add"]["partitionValues"].get("base_offset")]
        if not files:
            return
        path = self._draw.choice(sorted(files))
        before = table.files[path]
        after: Json = json.loads(json.dumps(before))
        values = after["add"]["partitionValues"]
        if self._kind == "moved offsets":
            values["base_offset"] = str(max(0, int(values["base_offset"]) + self._draw.choice([-2, -1, 1, 2, 1_000])))
        else:
            values["partition"] = str(1 - int(values["partition"]))
        if after == before:
            return
        after["add"]["path"] = f"{path.rpartition('/')[0] or 'moved'}/moved-{table.version}.parquet".lstrip("/")
        self._store.put(f"{self._table}/{after['add']['path']}", self._store.read(f"{self._table}/{path}"))
        self._commit("UPDATE", [_remove(path), after])
        self._undo = lambda: [_remove(after["add"]["path"]), before]

    def _append_as_another_topic(self, table: _Table) -> None:
        """An entry of another topic's client comes: of a cluster that was there before, say. It is the newest."""
        entries = [json.loads(line) for line in self._newest_of_ours()]
        info = next(entry["commitInfo"] for entry in entries if "commitInfo" in entry)
        told = info.get("sparklog")
        if not isinstance(told, dict) or "topic_id" not in told:
            raise RuntimeError(f"an entry of ours says {info}")
        told["topic_id"] = "0" * 32
        told["actions"] = 0
        if "cluster_id" in told:
            told["cluster_id"] = "0" * 32
        told["token"] = f"{self._draw.getrandbits(128):032x}"
        stray = entry_path(self._table, self._newest() + self._draw.choice([1, 1, 2]))
        content = "\n".join(json.dumps(entry) for entry in entries if "commitInfo" in entry)
        self._store.create(stray, resealed(content.encode()))
        self._play.world.note("stray", stray)
        self._stray = stray
        self._undo = lambda: []

    def _newest_of_ours(self) -> Sequence[bytes]:
        for version in range(self._newest(), -1, -1):
            lines = self._store.read(entry_path(self._table, version)).splitlines()
            if b'"topic_id"' in lines[0]:
                return lines
        raise RuntimeError("there is no entry of ours")

    def _put_right(self) -> None:
        if self._undo is None:
            return
        if self._kind == "another topic's id":
            self._set_aside()
            return
        actions = self._undo()
        self._commit("RESTORE", actions)
        self._play.world.counts["statements undone"] += 1

    def _set_aside(self) -> None:
        """Take the stray entry out, unless entries stand on it: then clients have gone on behind it."""
        behind = entry_path(self._table, int(self._stray[-25:-5]) + 1)
        if self._store.exists(behind):
            self._play.violate(f"went on behind another's entry: {behind} follows {self._stray}")
        self._store.delete([self._stray])
        self._play.world.counts["statements undone"] += 1

    def _newest(self) -> int:
        names = (found.path.rpartition("/")[2] for found in self._store.list(log_folder(self._table)))
        return max(name for name in map(parse_name, names) if isinstance(name, int))

    def _read(self) -> _Table:
        files: dict[str, Json] = {}
        metadata: Json = {}
        version = self._newest()
        for number in range(version + 1):
            for line in self._store.read(entry_path(self._table, number)).splitlines():
                action = json.loads(line)
                if "add" in action:
                    files[action["add"]["path"]] = action
                elif "remove" in action:
                    files.pop(action["remove"]["path"], None)
                elif "metaData" in action:
                    metadata = action
        return _Table(version, metadata, files)

    def _commit(self, operation: str, actions: Sequence[Json]) -> None:
        info = {"commitInfo": {"operation": operation, "engineInfo": "Other/1.0"}}
        content = "\n".join(json.dumps(action) for action in [info, *actions]).encode()
        version = self._newest() + 1
        while self._store.create(entry_path(self._table, version), content) is CreateResult.EXISTS:
            version += 1
        self._versions.add(version)
        self._play.world.note("operator", f"{operation}: {len(actions)} actions")


def _remove(path: str) -> Json:
    return {"remove": {"path": path, "deletionTimestamp": 0, "dataChange": True}}
