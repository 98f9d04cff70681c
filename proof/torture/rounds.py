"""A round: a cluster is made, worked with and tormented, and what it showed is judged."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from proof.torture.conclusion import Judged, conclude, judge
from proof.torture.crew import OTHER_VERSION, THIS_VERSION, Crew
from proof.torture.life import Place, read_notes
from proof.torture.plan import APP_TOPICS, Plan, Planted, draw_plan
from proof.torture.proxy import FaultyProxy
from proof.torture.servers import (
    BUCKET,
    NO_AZURITE,
    NO_VERSITYGW,
    Server,
    azurite,
    azurite_options,
    find_azurite,
    find_versitygw,
    moto,
    versitygw,
)
from proof.torture.versions import OtherVersion
from sparklog.admin import Admin, NewTopic

__all__ = ["STORES", "Outcome", "concluded", "create_topics", "folder_place", "opened_server", "place_of", "play"]

STORES = ("folder", "s3", "moto", "azurite")
_LONGER_S = 45.0
"""How long a slow machine may take longer than planned until there is enough to check."""
_LONGER_WITH_APPS_S = 90.0
_CONCLUDE_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a round."""

    seed: int
    faults: tuple[str, ...]
    judged: Judged | None
    """None where it didn't come so far."""
    torments: Counter[str]
    took_s: float
    worked_s: float
    """Of these, until the processes were told to end."""
    ended_s: float
    """Of these, until none was left."""

    def __str__(self) -> str:
        said = f"seed {self.seed}: {'ok' if not self.faults else f'{len(self.faults)} FAULTS'}, "
        said += f"{self.worked_s:.0f} + {self.ended_s - self.worked_s:.0f} + {self.took_s - self.ended_s:.0f} s, "
        said += f"{self.torments['kills']} kills, {self.torments['stops']} stops"
        exchanges = {name: count for name, count in self.torments.items() if name.startswith("exchange: ")}
        if exchanges:
            said += f", {sum(exchanges.values())} exchanges"
        troubles = sum(count for name, count in self.torments.items() if name.startswith("fault: "))
        if troubles:
            said += f", {troubles} faults of the store"
        if self.torments["server kills"]:
            said += f", {self.torments['server kills']} kills of the server"
        if self.torments[OTHER_VERSION]:
            said += f", {self.torments[THIS_VERSION]} + {self.torments[OTHER_VERSION]} processes of two versions"
        if self.judged is not None:
            counts, noted = self.judged.verdict.counts, self.judged.counts
            said += (
                f"; {counts.acknowledged} acknowledged, {counts.polled} polled, {counts.final_records} there, "
                f"{counts.committed} + {counts.aborted} + {counts.undecided} transactions, {counts.inputs} inputs; "
                f"{noted['maintenance']} maintenances, {noted['compaction']} compactions, {noted['merge']} merges, "
                f"{noted['retention']} retentions, {noted['log cleaning']} log cleanings, {noted['fenced']} fenced"
            )
            if noted["wire acknowledged"]:
                said += f"; by the wire {noted['wire acknowledged']} acknowledged, {noted['wire polled']} polled, "
                said += f"{noted['wire committed']} transactions, {noted['wire fenced']} fenced"
            if noted["app inputs"]:
                said += f"; of apps {noted['app inputs']} inputs, {noted['app letters']} letters, "
                said += f"{noted['app rows']} rows, {noted['app delayed']} delayed, {noted['app shared']} shared, "
                said += f"{noted['taken over']} taken over"
            if noted["included"]:
                said += f", {noted['included']} decisions to include others"
        return said


def play(
    seed: int,
    folder: Path,
    store: str,
    *,
    span_s: float = 12.0,
    is_small: bool | None = None,
    planted: Collection[Planted] = (),
    sharing: int = 0,
    gateways: int = 0,
    mixed: Path | None = None,
    is_faulty: bool = False,
    has_apps: bool = False,
) -> Outcome:
    """Play a round in a folder that isn't there yet, and which it leaves.

    Args:
        store: one of ``STORES``; ``s3`` is versitygw, which must be there.
        span_s: how long the processes are at work, at least.
        is_small: fewer processes; by default so on S3.
        sharing: so many producers share one topic, with group commit on; 0: a few write to several.
        gateways: so many, with Kafka's clients of them.
        mixed: the tree of another version that takes part; of every second seed it makes the cluster.
        is_faulty: a proxy before the server loses, delays, refuses and repeats requests of all processes.
        has_apps: there are applications, too: a worker, a relay, a mover, a share group, and who feeds them.
    """
    began = time.monotonic()
    with (
        _opened(folder, store, seed if is_faulty else None) as (place, server, proxy),
        nullcontext() if mixed is None else OtherVersion(mixed) as other,
    ):
        small = store != "folder" if is_small is None else is_small
        plan = draw_plan(
            seed,
            span_ms=span_s * 1_000,
            is_small=small,
            has_server=server is not None and server.survives_kill,
            planted=planted,
            sharing=sharing,
            gateways=gateways,
            has_apps=has_apps,
        )
        place = replace(place, gateways=_free_addresses(gateways))
        if other is not None and seed % 2:
            other.create_topics(place)
        else:
            create_topics(plan, place)
        crew = Crew(plan, place, server, other=other)
        try:
            enough = partial(_has_enough, place, is_by_wire=gateways > 0, has_apps=has_apps)
            crew.work(enough, at_most_s=span_s + (_LONGER_WITH_APPS_S if has_apps else _LONGER_S))
            worked_s = time.monotonic() - began
            crew.end()
            ended_s = time.monotonic() - began
        finally:
            crew.kill_all()
        past_proxy = place if server is None else replace(place, storage_options=_options(store, server))
        faults = [*crew.defects, *concluded(plan, past_proxy)]
        if proxy is not None:
            crew.counts.update({f"fault: {name}": count for name, count in proxy.counts.items()})
    judged = None
    if not faults or (place.histories / "final.jsonl").exists():
        judged = judge(place)
        faults += judged.faults
    return Outcome(
        seed=seed,
        faults=tuple(faults),
        judged=judged,
        torments=crew.counts,
        took_s=time.monotonic() - began,
        worked_s=worked_s,
        ended_s=ended_s,
    )


def folder_place(folder: Path, root: str) -> Place:
    """Where a round in this folder is, whose cluster is another folder."""
    return Place(folder=folder, root=root)


def place_of(folder: Path, store: str, server: Server | None = None, *, endpoint: str | None = None) -> Place:
    """Where a round in this folder is, and how fast its store is taken to be.

    Args:
        endpoint: of a proxy before the server.
    """
    if server is None:
        return folder_place(folder, str(folder / "cluster"))
    trust_ms, pace = {"moto": (1_000, 4.0), "azurite": (1_000, 4.0)}.get(store, (400, 2.0))
    root = f"{'az' if store == 'azurite' else 's3'}://{BUCKET}/{folder.name}"
    options = _options(store, server, endpoint=endpoint)
    return Place(folder=folder, root=root, storage_options=options, trust_ms=trust_ms, pace=pace)


def _options(store: str, server: Server, *, endpoint: str | None = None) -> dict[str, Any]:
    at = endpoint or server.endpoint
    return azurite_options(at) if store == "azurite" else {**server.storage_options, "endpoint_url": at}


@contextmanager
def _opened(
    folder: Path, store: str, faults_seed: int | None
) -> Iterator[tuple[Place, Server | None, FaultyProxy | None]]:
    """A round's place, its server, and the proxy before that, if there are faults."""
    (folder / "history").mkdir(parents=True)
    if store == "folder":
        yield place_of(folder, store), None, None
        return
    with opened_server(folder, store) as server:
        proxy = None if faults_seed is None else FaultyProxy(server.endpoint, faults_seed)
        try:
            yield place_of(folder, store, server, endpoint=None if proxy is None else proxy.url), server, proxy
        finally:
            if proxy is not None:
                proxy.close()


@contextmanager
def opened_server(folder: Path, store: str) -> Iterator[Server]:
    """The server of a store that isn't a folder, whose files are in this one. Raises ``FileNotFoundError``."""
    server = _server(folder, store)
    try:
        yield server
    finally:
        server.kill()


def _server(folder: Path, store: str) -> Server:
    if store == "azurite":
        program = find_azurite()
        if program is None:
            raise FileNotFoundError(NO_AZURITE)
        return azurite(program, folder / "azurite")
    return moto() if store == "moto" else versitygw(_program(), folder / "s3")


def _program() -> str:
    program = find_versitygw()
    if program is None:
        raise FileNotFoundError(f"{NO_VERSITYGW}; or take STORE=moto")
    return program


def _free_addresses(count: int) -> tuple[str, ...]:
    """Addresses on which nobody listens; a gateway has one in all of its lives."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = tuple("{}:{}".format(*one.getsockname()) for one in sockets)
    for one in sockets:
        one.close()
    return addresses


def create_topics(plan: Plan, place: Place) -> str:
    """Make the cluster and its topics. Returns the cluster's id."""
    cluster = place.cluster()
    topics = (*plan.topics, *(APP_TOPICS if plan.has_apps else ()))
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic(topic.name, topic.partitions, configs=dict(topic.configs)) for topic in topics])
    if plan.has_apps:
        from proof.torture.outbox_rows import create_database  # needs SQLAlchemy

        place.app_histories.mkdir()
        create_database(place)
    return cluster.cluster_id


def _has_enough(place: Place, *, is_by_wire: bool, has_apps: bool) -> bool:
    """A guess, which costs little: is there about as much as has to be checked?"""
    lines: Counter[str] = Counter()
    for path in place.histories.glob("*.jsonl"):
        is_wire = path.name.startswith("wire")
        for line in path.read_bytes().splitlines():
            if line.startswith(b'["Acknowledged"'):
                lines["by wire" if is_wire else "acknowledged"] += 1
            elif line.startswith(b'["TransactionEnded"') and b'"committed"' in line:
                lines["loop" if path.name.startswith("loop") else "transactions by wire" if is_wire else "other"] += 1
    if has_apps and not _have_enough_to_do(place):
        return False
    if is_by_wire and not (lines["by wire"] >= 100 and lines["transactions by wire"] >= 2):
        return False
    return lines["acknowledged"] >= 150 and lines["loop"] >= 3 and lines["loop"] + lines["other"] >= 6


def _have_enough_to_do(place: Place) -> bool:
    """Likewise of the applications."""
    counts, _ = read_notes(place)
    enough = {"rows written": 20, "fed": 60, "delayed": 15, "worked": 1, "accepted": 10}
    return all(counts[name] >= least for name, least in enough.items())


def concluded(plan: Plan, place: Place) -> list[str]:
    """Conclude in a process of its own, within a bound; what went wrong."""
    process = multiprocessing.get_context("forkserver").Process(target=conclude, args=(plan, place))
    process.start()
    process.join(_CONCLUDE_S)
    if process.exitcode is None:
        process.kill()
        process.join()
        return [f"the conclusion took longer than {_CONCLUDE_S:.0f} s"]
    return [] if process.exitcode == 0 else [f"the conclusion failed, see {place.errors}"]
