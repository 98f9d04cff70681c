"""A round in which what lies under the cluster is exchanged: ``python -m proof.torture --exchanged``.

Two clusters take turns in one place. Each life of a process is recorded with the cluster that it has found there, and
both clusters are checked afterwards as any other round's: each record that a life was told to be stored is in the
cluster that this life had opened, once and at its offset, and in no other. On a folder that holds without exception. On
an object store clients have a time to notice; what they stored in it, after their cluster was taken away, may be lost.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from proof.torture.conclusion import Judged, judge
from proof.torture.crew import Crew
from proof.torture.exchanging import NAMES, Absence, Exchanger, FolderGround, Ground, StoreGround
from proof.torture.life import Place, read_notes
from proof.torture.plan import Plan, draw_plan
from proof.torture.proxy import LATEST_S, FaultyProxy
from proof.torture.rounds import Outcome, concluded, create_topics, folder_place
from proof.torture.servers import (
    BUCKET,
    NO_AZURITE,
    NO_VERSITYGW,
    azurite,
    azurite_options,
    find_azurite,
    find_versitygw,
    versitygw,
)
from sparklog.model import TopicPartition
from sparklog.testing import history as told
from sparklog.testing.history import (
    Acknowledged,
    CaughtUp,
    Event,
    FinalRead,
    History,
    OffsetsSettled,
    Polled,
    Send,
    TransactionEnded,
    Unknown,
    load,
)

__all__ = ["EXCHANGED_STORES", "excuse", "play_exchanged"]

EXCHANGED_STORES = ("folder", "s3", "azurite")
ENOUGH = {"acknowledged": 10, "final_records": 10}
"""What must have been checked of each cluster, at least."""
_REQUEST_S = 3.0
"""What a request may take, on a busy machine."""
_TOLD_LATE_S = 3.0
"""So long after its entry was stored a record may be acknowledged, by a process that is busy or was stopped."""
_TRUST_MS = {"folder": 200, "s3": 400, "azurite": 1_000}
_LONGER_S = 60.0
"""How long a slow machine may take longer than planned until there is enough to check."""
_MUST_NOTICE = ("produce", "transact", "loop", "read")


def play_exchanged(seed: int, folder: Path, store: str, *, span_s: float = 20.0) -> Outcome:
    """Play a round in a folder that isn't there yet, and which it leaves.

    Args:
        store: one of ``EXCHANGED_STORES``.
        span_s: how long the processes are at work, at least.
    """
    began = time.monotonic()
    (folder / "history").mkdir(parents=True)
    plan = draw_plan(seed, span_ms=span_s * 1_000, is_small=True, has_server=False)
    with _prepared(seed, folder, store, plan) as (ground, place, ids):
        crew = Crew(plan, place, None)
        exchanger = Exchanger(ground, seed, lambda: _count(place, "opened") >= len(plan.jobs))
        try:
            exchanger.start()
            crew.work(
                lambda: exchanger.count >= len(ground.acts()) and _has_enough(place, ids.values()),
                at_most_s=3 * span_s + _LONGER_S,
            )
            worked_s = time.monotonic() - began
            exchanger.end()
            crew.end()
            ended_s = time.monotonic() - began
        finally:
            crew.kill_all()
        faults = [*crew.defects, *ground.faults]
        if exchanger.error is not None:
            faults.append(f"the exchange ended by {exchanger.error!r}")
        judged = []
        for name, cluster_id in ids.items():
            own = replace(place, folder=folder / cluster_id, root=ground.root_of(name), is_exchanged=False)
            if isinstance(ground, StoreGround):
                own = replace(own, storage_options=ground.options)  # past the proxy
            own.histories.mkdir(parents=True, exist_ok=True)
            parts = (
                {one.topic for one in ground.absences if one.name == name} if isinstance(ground, StoreGround) else ()
            )
            faults += [f"{name}: {fault}" for fault in concluded(plan, own) if not _is_of_a_part(fault, parts)]
            if (own.histories / "final.jsonl").exists():
                away = [absence for absence in ground.absences if absence.name == name]
                judged.append(_judge(own, away, bound_s=_bound_s(ground)))
                faults += [f"{name}: {fault}" for fault in judged[-1].faults]
    noted, defects = read_notes(place)
    crew.counts.update({f"exchange: {name}": count for name, count in ground.counts.items()})
    return Outcome(
        seed=seed,
        faults=(*faults, *defects, *_unnoticed(place, ground)),
        judged=_both(judged, noted),
        torments=crew.counts,
        took_s=time.monotonic() - began,
        worked_s=worked_s,
        ended_s=ended_s,
    )


@contextmanager
def _prepared(seed: int, folder: Path, store: str, plan: Plan) -> Iterator[tuple[Ground, Place, dict[str, str]]]:
    """The ground with the first cluster in its place, where the processes find it, and the ids of both."""
    if store == "folder":
        ground = FolderGround(folder, is_linked=seed % 2 == 1)
        ids = {name: create_topics(plan, folder_place(folder, ground.root_of(name))) for name in NAMES[1:]}
        ids |= {name: create_topics(plan, folder_place(folder, str(folder / "folders" / name))) for name in NAMES[:1]}
        ground.settle()
        yield ground, replace(folder_place(folder, str(ground.place)), is_exchanged=True), ids
        return
    program = find_versitygw() if store == "s3" else find_azurite()
    if program is None:
        raise FileNotFoundError(NO_VERSITYGW if store == "s3" else NO_AZURITE)
    server = versitygw(program, folder / "s3") if store == "s3" else azurite(program, folder / "azurite")
    proxy = FaultyProxy(server.endpoint, seed)
    try:
        if store == "s3":
            uri, own = f"s3://{BUCKET}/place", server.storage_options
            by_proxy = {**own, "endpoint_url": proxy.url}
        else:
            uri, own, by_proxy = f"az://{BUCKET}/place", azurite_options(server.endpoint), azurite_options(proxy.url)
        trust_ms = _TRUST_MS[store]
        notice_s = trust_ms / 1_000 + LATEST_S + 2 * _REQUEST_S
        stored = StoreGround(uri, own, proxy, notice_s=notice_s)
        place = Place(folder=folder, root=uri, storage_options=own, trust_ms=trust_ms, pace=2.0)
        ids = {}
        for name in NAMES:
            ids[name] = create_topics(plan, place)
            stored.save(name)
        stored.settle()
        yield stored, replace(place, storage_options=by_proxy, is_exchanged=True, is_found_late=True), ids
    finally:
        proxy.close()
        server.kill()


def _count(place: Place, what: str) -> int:
    """How often it was noted."""
    lines = place.notes.read_text().splitlines() if place.notes.exists() else []
    return sum(line.startswith(f"{what}\t") for line in lines)


def _has_enough(place: Place, ids: Iterable[str]) -> bool:
    """A guess, which costs little: is there about as much of each cluster as has to be checked?"""
    return all(
        sum(path.read_bytes().count(b'["Acknowledged"') for path in (place.folder / one / "history").glob("*.jsonl"))
        >= 2 * ENOUGH["acknowledged"]
        for one in ids
    )


def _bound_s(ground: Ground) -> float:
    """How long after its cluster was taken away a record may be acknowledged."""
    return ground.notice_s if isinstance(ground, StoreGround) else 0.0


def _judge(place: Place, absences: Sequence[Absence], *, bound_s: float) -> Judged:
    judged = judge(
        place,
        enough=ENOUGH,
        excused=(lambda found: excuse(found, absences, bound_s)) if bound_s else lambda found: found,
    )
    late = _late(load(*sorted(place.histories.glob("*.jsonl"))), absences, bound_s + _TOLD_LATE_S)
    return replace(judged, faults=(*judged.faults, *late))


def _late(history: History, absences: Sequence[Absence], bound_s: float) -> list[str]:
    """Acknowledgements of records while their cluster, or topic, had been away for longer than the bound."""
    faults = []
    for event in history:
        if not isinstance(event, Acknowledged):
            continue
        for away in absences:
            is_its = away.is_noticed and away.topic in (None, event.partition.topic)
            if is_its and away.began_ms + 1_000 * bound_s < event.wall_ms < away.ended_ms:
                after_s = (event.wall_ms - away.began_ms) / 1_000
                faults.append(f"acknowledged {after_s:.1f} s after its storage was taken away: {event}")
                break
    return faults


def excuse(history: History, absences: Sequence[Absence], bound_s: float) -> History:
    """What clients have stored before they could notice that their storage was taken away, it took with it.

    So whatever they were told of it in that time isn't certain; and what they have read there need not be there. Where
    one topic was away, its part of a transaction went with it, and who has read that part has gone on behind what
    others store under these offsets later.
    """
    final = {
        (event.partition, offset): value
        for event in history
        if isinstance(event, FinalRead)
        for offset, value in zip(event.offsets, event.values, strict=True)
    }

    def is_in_doubt(event: Event) -> bool:
        return any(
            away.began_ms <= event.wall_ms <= min(away.ended_ms, away.began_ms + 1_000 * (bound_s + _TOLD_LATE_S))
            for away in absences
        )

    there = {*final.values()}
    parts = {away.topic for away in absences}
    gone: set[str] = set()
    misled: set[TopicPartition] = set()
    kept: list[Event] = []
    for event in history:
        if isinstance(event, CaughtUp) and event.partition in misled:
            continue
        if isinstance(event, Acknowledged) and event.value in gone:
            continue
        if not is_in_doubt(event):
            kept.append(event)
        elif isinstance(event, Send):
            if event.transaction is None or event.topic not in parts or event.value in there:
                kept.append(event)
            else:
                gone.add(event.value)
        elif isinstance(event, Acknowledged):
            kept.append(Unknown(event.order, event.wall_ms, event.client, event.value, "taken away"))
        elif isinstance(event, TransactionEnded | OffsetsSettled) and event.outcome is told.Outcome.COMMITTED:
            kept.append(event._replace(outcome=told.Outcome.UNKNOWN))
        elif isinstance(event, Polled):
            pairs = zip(event.offsets, event.values, strict=True)
            if all(final.get((event.partition, offset), value) == value for offset, value in pairs):
                kept.append(event)
            elif event.partition.topic in parts:
                misled.add(event.partition)
        elif not isinstance(event, CaughtUp):
            kept.append(event)
    return History(kept)


def _is_of_a_part(fault: str, topics: Collection[str | None]) -> bool:
    """Does the check tell that a transaction's records in one of these topics went with the topic's log?"""
    return '"transaction-not-visible"' in fault and any(f'"topic": "{topic}"' in fault for topic in topics)


def _unnoticed(place: Place, ground: Ground) -> list[str]:
    """Roles of which nobody was told, though their storage was away again and again."""
    if sum(away.is_noticed and away.topic is None for away in ground.absences) < 2:
        return []
    notified: Counter[str] = Counter()
    for line in place.notes.read_text().splitlines():
        what, _, text = line.split("\t")
        if what == "replaced":
            notified[text.split()[0].rstrip(":")] += 1
    silent = [role for role in _MUST_NOTICE if not notified[role]]
    return [f"silent: no {role} was told that its storage was exchanged" for role in silent]


def _both(judged: Sequence[Judged], noted: Counter[str]) -> Judged | None:
    if not judged:
        return None
    first = judged[0]
    names = first.verdict.counts.__dataclass_fields__
    counts = {name: sum(getattr(one.verdict.counts, name) for one in judged) for name in names}
    anomalies = tuple(anomaly for one in judged for anomaly in one.verdict.anomalies)
    verdict = replace(first.verdict, anomalies=anomalies, counts=replace(first.verdict.counts, **counts))
    return Judged(faults=(), verdict=verdict, counts=noted)
