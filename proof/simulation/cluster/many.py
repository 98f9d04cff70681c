"""Many seeds on all cores, and what they exercised."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from proof.simulation.cluster.group_worlds import GROUP_SEEDS
from proof.simulation.cluster.play import Played, play

__all__ = ["BOUNDED", "COVERED", "ENOUGH", "play_many", "replays", "seeds_of", "tell", "uncovered"]

_CHUNK = 10
_FAST_FOLDER = "/dev/shm"
"""Checkpoints pass through files."""
_TELL_EVERY = 1_000
ENOUGH = 2_000
"""Seeds that meet everything."""
COVERED: Mapping[str, int] = {
    "aborted": 210,
    "aged": 4,
    "checked acknowledged": 4_900,
    "checked inputs": 1_000,
    "checked transactional reads": 870,
    "checked starts": 310,
    "cleanups": 26,
    "committed": 570,
    "compactions": 36,
    "crashes": 1_100,
    "data files deleted": 2,
    "fair worlds": 15,
    "fenced": 20,
    "forced aborts": 17,
    "foreign commits": 270,
    "groups read to the end": 90,
    "kills": 770,
    "lates": 660,
    "lost answers": 1_200,
    "lost requests": 890,
    "naps": 1_600,
    "nights": 32,
    "optimized": 62,
    "own successes": 140,
    "polled": 2_600,
    "rebalances": 390,
    "power losses": 45,
    "power: back": 4,
    "power: lost": 17,
    "power: taken away": 9,
    "power: torn": 6,
    "recovered: aborted": 1,
    "recovered: committed": 11,
    "recovered: timed out": 16,
    "refused calls": 1_400,
    "restarts": 1_500,
    "retentions": 10,
    "sequenced": 15,
    "slow calls": 620,
    "steady commits": 90,
    "strays": 4,
    "topics deleted": 12,
    "topics grown": 100,
    "totals carried": 5_400,
    "unsynced transactions": 90,
    "versions of offset tables": 1_900,
    "worlds of hand-overs": 10,
}
"""What ``ENOUGH`` seeds are to meet, and how often at least: about a fifth of what they meet today."""
BOUNDED: Mapping[str, int] = {"empty worlds": 160}
"""What they may meet, and how often at most: three times what they meet today."""


def replays() -> bool:
    """Does this process give sets the same order as any other that replays a seed?"""
    return os.environ.get("PYTHONHASHSEED") == "0"


def seeds_of(text: str, *, is_count: bool = False) -> Sequence[int]:
    """``17`` is one seed, or with ``is_count`` the first 17; ``17..40`` are those of both ends and between."""
    first, dots, last = text.partition("..")
    if dots:
        return range(int(first), int(last) + 1)
    return range(int(text)) if is_count else [int(text)]


def play_many(
    seeds: Iterable[int], *, processes: int | None = None, is_traced: bool = False, planted: str | None = None
) -> Iterator[Played]:
    """Seeds in their order, on all cores. What is left when the caller has seen enough isn't played."""
    with players(processes) as pool:
        yield from pool.map(partial(play, is_traced=is_traced, planted=planted), seeds, chunksize=_CHUNK)


@contextmanager
def players(processes: int | None = None) -> Iterator[Executor]:
    """Processes, as many as there are cores, in which a seed plays as it does in any other."""
    with _same_order():
        context = multiprocessing.get_context("spawn")  # the caller may have threads
        pool = ProcessPoolExecutor(processes, context, _prepare)
        try:
            yield pool
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _prepare() -> None:
    logging.disable(logging.CRITICAL)
    pa.set_cpu_count(1)  # every core plays a world of its own
    if os.path.isdir(_FAST_FOLDER):
        tempfile.tempdir = _FAST_FOLDER


@contextmanager
def _same_order() -> Iterator[None]:
    """Children hash strings as every replay does."""
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before


def uncovered(counts: Counter[str], *, seeds: int = ENOUGH) -> list[str]:
    """What so many seeds met too seldom, or too often."""
    least = {name: number * seeds // ENOUGH for name, number in COVERED.items()}
    most = {name: number * seeds // ENOUGH for name, number in BOUNDED.items()}
    few = [f"{name} ({counts[name]} of {number})" for name, number in least.items() if counts[name] < number]
    many = [f"{name} ({counts[name]}, at most {number})" for name, number in most.items() if counts[name] > number]
    return few + many


def tell(seeds: Sequence[int], *, is_traced: bool = False, planted: str | None = None) -> int:
    """Play seeds and print what came of it; 1 if anything is wrong, or there are none."""
    if not seeds:
        print("no seeds: nothing was played", file=sys.stderr)
        return 1
    if len(seeds) == 1:
        _prepare()
        played = play(seeds[0], is_traced=is_traced, planted=planted)
        for line in played.trace:
            print(line)
        _print(played.counts)
        for text in played.violations:
            print(f"VIOLATION {text}")
        return 1 if played.violations else 0
    counts: Counter[str] = Counter()
    broken: list[int] = []
    cpu_s, began = 0.0, time.monotonic()
    for number, played in enumerate(play_many(seeds, processes=os.cpu_count(), planted=planted), start=1):
        counts.update(played.counts)
        cpu_s += played.cpu_s
        if played.violations:
            broken.append(played.seed)
            print(f"seed {played.seed}: {played.violations[0]}")
            print(f"  python -m proof.simulation.cluster {played.seed} --trace", flush=True)
        if number % _TELL_EVERY == 0 or number == len(seeds):
            rate = number / (time.monotonic() - began)
            print(f"{number} seeds, {rate:.0f}/s, {cpu_s:.0f} s of CPU, {len(broken)} with violations", flush=True)
    _print(counts)
    lacking = uncovered(counts) if len(seeds) >= ENOUGH and seeds[0] < GROUP_SEEDS else []
    if lacking:
        print(f"met too seldom, or too often: {', '.join(lacking)}", file=sys.stderr)
    print(f"failing seeds: {broken or 'none'}", file=sys.stderr if broken else sys.stdout)
    return 1 if broken or lacking else 0


def _print(counts: Counter[str]) -> None:
    for name, number in sorted(counts.items()):
        print(f"  {name:<40} {number:>12,}")
