"""Real processes under kill -9 and SIGSTOP, round after round: ``python -m tests.torture --rounds 100``."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.torture.conclusion import judge
from tests.torture.rounds import STORES, Outcome, place_of, play
from tests.torture.servers import NO_VERSITYGW, find_versitygw

__all__ = ["main"]

_SHOWN = 10


def main(arguments: list[str]) -> int:
    """Returns 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the next ones count on")
    parser.add_argument("--store", choices=STORES, default="folder", help="s3 is versitygw (%(default)s)")
    parser.add_argument("--span", type=float, default=12.0, help="seconds of work in a round, at least (%(default)s)")
    parser.add_argument("--folder", type=Path, default=None, help="where failing rounds are kept")
    parser.add_argument("--check", type=Path, default=None, metavar="FOLDER", help="check a round's history again")
    options = parser.parse_args(arguments)
    if options.check is not None:
        return _check_again(options.check)
    if options.store == "s3" and find_versitygw() is None:
        parser.error(NO_VERSITYGW)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="sparklog-torture-"))
    first = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    began, outcomes = time.monotonic(), []
    for number in range(options.rounds):
        seed = first + number
        place = folder / f"{options.store}-{seed}"
        outcome = play(seed, place, options.store, span_s=options.span)
        print(outcome, flush=True)
        if outcome.faults:
            _tell_faults(outcome, place, options.store)
        else:
            shutil.rmtree(place)
        outcomes.append(outcome)
    return _sum_up(outcomes, time.monotonic() - began)


def _tell_faults(outcome: Outcome, place: Path, store: str) -> None:
    for fault in outcome.faults[:_SHOWN]:
        print(f"  {fault}")
    if len(outcome.faults) > _SHOWN:
        print(f"  … and {len(outcome.faults) - _SHOWN} more")
    (place / "outcome.txt").write_text("\n".join([str(outcome), *outcome.faults, ""]))
    print(f"  kept in {place}; check it again: python -m tests.torture --check {place}")
    print(f"  a round like it: make torture ROUNDS=1 SEED={outcome.seed} STORE={store}", flush=True)


def _sum_up(outcomes: list[Outcome], took_s: float) -> int:
    torments = sum((one.torments for one in outcomes), Counter[str]())
    checked = [one.judged.verdict.counts for one in outcomes if one.judged is not None]
    failed = [one.seed for one in outcomes if one.faults]
    print(
        f"{len(outcomes)} rounds in {took_s:,.0f} s, {len(failed)} failed{f' ({failed})' if failed else ''}; "
        f"{torments['kills']:,} kills, {torments['stops']:,} stops, {torments['server kills']:,} of the server; "
        f"{sum(one.acknowledged for one in checked):,} acknowledged records, "
        f"{sum(one.polled for one in checked):,} polled, "
        f"{sum(one.transactions for one in checked):,} transactions of which {sum(one.committed for one in checked):,} "
        f"certainly committed, {sum(one.inputs for one in checked):,} inputs"
    )
    return 1 if failed or not outcomes else 0


def _check_again(folder: Path) -> int:
    judged = judge(place_of(folder, "folder"))
    print(judged.verdict)
    for fault in judged.faults:
        print(fault)
    return 1 if judged.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
