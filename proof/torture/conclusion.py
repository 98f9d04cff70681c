"""What follows when everybody was stopped: recover, read to the end, note what is there, and check it all."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import sparklog.gateway
from proof.torture.life import Life, Place, Told, identify, read_notes
from proof.torture.plan import APP_TOPICS, COMPACTED, LOOP_INPUT, TOPICS, TRANSACTION_TIMEOUT_MS, Plan, Role
from proof.torture.roles import keep_in_shape, loop, read
from sparklog.integrity import Code, check_cluster
from sparklog.testing.history import CaughtUp, FinalRead, History, Recorder, Verdict, check, load, record_final
from sparklog.txn.recovery import RecoveryAction, recover_transactions

__all__ = ["ENOUGH", "Judged", "conclude", "judge"]

_AT_MOST_S = 90.0
_UNFINISHED = (Code.TRANSACTION_UNFINISHED, Code.PENDING_ABORTED)
"""Warnings of what a recovery should have left nothing of."""
_BY_WIRE = {"wire acknowledged": 40, "wire polled": 40, "wire committed": 1}
"""What Kafka's clients must have done at least, where there are any."""
ENOUGH = {"acknowledged": 80, "committed": 4, "polled": 80, "inputs": 15, "final_records": 60}
"""What must have been checked at least, by the names of the verdict's counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a round showed."""

    faults: tuple[str, ...]
    """What is wrong; empty: nothing is."""
    verdict: Verdict
    counts: Counter[str]
    """What the processes noted."""


def conclude(plan: Plan, place: Place) -> None:
    """Recover, read to the end, and write down what is there and what the check of integrity finds.

    Raises:
        TimeoutError: the end isn't reached within a minute and a half.
    """
    place.redirect_errors()
    if plan.has_apps:
        from proof.torture.app_conclusion import conclude_apps  # needs SQLAlchemy

        conclude_apps(plan, place)
    lives = {role: _life(plan, place, role) for role in (Role.LOOP, Role.READ, Role.MAINTAIN)}
    _recover(lives[Role.MAINTAIN])
    _to_the_end(lives[Role.LOOP], loop)
    keep_in_shape(lives[Role.MAINTAIN])
    _to_the_end(lives[Role.READ], read)
    cluster = place.cluster()
    if plan.gateways:
        _to_the_end_by_the_wire(plan, place)
    with Recorder("final", path=place.histories / "final.jsonl") as recorder:
        names = [topic.name for topic in TOPICS]
        record_final(recorder, cluster, topics=names, groups=plan.groups, identify=identify)
    _integrity(place).write_text(json.dumps(check_cluster(cluster, deep=True).to_json(), indent=1))


def _life(plan: Plan, place: Place, role: Role) -> Life:
    # A number that no other life of the job has; the seed is what settings and sizes are drawn by.
    return Life(Told(place=place, seed=plan.seed, job=f"{role.value}-at-last", number=0, role=role), is_final=True)


def _recover(life: Life) -> None:
    """Until nothing is unfinished: sessions that died are past their time-out after a moment."""
    time.sleep(TRANSACTION_TIMEOUT_MS / 1_000)
    deadline = time.monotonic() + _AT_MOST_S
    while True:
        found = recover_transactions(life.cluster)
        for one in found:
            life.note(f"recovered at last: {one.action.value}")
        if all(one.action is RecoveryAction.NOTHING and one.error is None for one in found):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"transactions can't be finished within {_AT_MOST_S:.0f} s: {found}")
        time.sleep(0.2)


def _to_the_end_by_the_wire(plan: Plan, place: Place) -> None:
    """Through a gateway that nobody has been at before."""
    from proof.torture.wire_roles import GATEWAY_SETTINGS, wire_read  # needs confluent-kafka

    with sparklog.gateway.serve(place.cluster(), **GATEWAY_SETTINGS) as address:
        _to_the_end(_life(plan, replace(place, gateways=(address,)), Role.WIRE_READ), wire_read)


def _to_the_end(life: Life, role: Callable[[Life], None]) -> None:
    """Lives of the role, one after the other as with any job, until one has read everything."""
    timer = threading.Timer(_AT_MOST_S, life.is_over.set)
    timer.start()
    try:
        while not life.has_ended:
            if life.is_over.is_set():
                raise TimeoutError(f"{life.name} didn't read everything within {_AT_MOST_S:.0f} s")
            role(life)
    finally:
        timer.cancel()


def judge(
    place: Place, *, enough: Mapping[str, int] = ENOUGH, excused: Callable[[History], History] = lambda all_: all_
) -> Judged:
    """Check what a round has written down. Reads nothing but its folder, so that it may be done again.

    Args:
        enough: what must have been checked at least.
        excused: leaves out what was lost by the round's own acts.
    """
    history = excused(load(*sorted(place.histories.glob("*.jsonl"))))
    verdict = check(history, compacted=COMPACTED, contiguous_transactions=True)
    counts, faults = read_notes(place)
    is_by_wire = any(place.histories.glob("wire*"))
    faults += _not_read_to_the_end(history, is_by_wire=is_by_wire)
    has_apps = place.app_histories.exists()
    if has_apps:
        from proof.torture.app_conclusion import judge_apps

        judged, app_faults = judge_apps(place)
        counts.update(judged)
        faults += app_faults
    faults += [f"history: {anomaly}" for anomaly in verdict.anomalies]
    faults += [f"integrity: {line}" for line in _findings(_integrity(place), has_apps=has_apps)]
    few = [
        f"{name}={getattr(verdict.counts, name)} of {least}"
        for name, least in enough.items()
        if getattr(verdict.counts, name) < least
    ]
    few += [
        f"{name}={counts[name]} of {least}" for name, least in _BY_WIRE.items() if is_by_wire and counts[name] < least
    ]
    if few or verdict.counts.unverified:
        faults.append(f"too little was checked: {', '.join(few)}, unverified={verdict.counts.unverified}")
    return Judged(faults=tuple(faults), verdict=verdict, counts=counts)


def _not_read_to_the_end(history: History, *, is_by_wire: bool) -> list[str]:
    """The partitions of which nobody told, at last, that its group has seen all."""
    there = {event.partition for event in history if isinstance(event, FinalRead)}
    faults = []
    everything = {topic.name for topic in TOPICS}
    wanted = [(Role.LOOP, {LOOP_INPUT}), (Role.READ, everything)]
    if is_by_wire:
        wanted.append((Role.WIRE_READ, everything))
    for role, topics in wanted:
        reached = {
            event.partition
            for event in history
            if isinstance(event, CaughtUp) and event.client.startswith(f"{role.value}-at-last")
        }
        missing = sorted({partition for partition in there if partition.topic in topics} - reached)
        if missing or not reached:
            faults.append(f"{role.value}: not read to the end: {missing}")
    return faults


def _integrity(place: Place) -> Path:
    return place.folder / "integrity.json"


def _findings(path: Path, *, has_apps: bool) -> list[str]:
    if not path.exists():
        return [f"there is no {path}"]
    report = json.loads(path.read_text())
    count, known = report["counts"]["topics"], len(TOPICS) + (len(APP_TOPICS) if has_apps else 0)
    if not ((count > known if has_apps else count == known) and report["counts"]["records"]):  # apps make some
        return [f"it looked at {report['counts']}"]
    unfinished = {code.value for code in _UNFINISHED}
    return [
        json.dumps(found) for found in report["findings"] if found["severity"] == "error" or found["code"] in unfinished
    ]
