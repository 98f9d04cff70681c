"""Real processes under kill -9 and SIGSTOP, round after round: ``python -m proof.torture --rounds 100``."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from proof.torture.conclusion import judge
from proof.torture.crew import OTHER_VERSION, THIS_VERSION
from proof.torture.exchanged_rounds import EXCHANGED_STORES, play_exchanged
from proof.torture.rounds import STORES, Outcome, place_of, play
from proof.torture.servers import NO_AZURITE, NO_VERSITYGW, find_azurite, find_versitygw
from proof.torture.versions import BEFORE, NoVersionError, check_out

__all__ = ["main", "sum_up"]

_SHOWN = 10
_TORMENTS: Mapping[str, int] = {"kills": 1, "stops": 1}
"""Acts of the crew, and the rounds, as long as they are by default, in which they surely happen."""
_SERVER_TORMENTS: Mapping[str, int] = {"server kills": 3}
"""Where the server keeps what it has on disk."""
_NOTED: Mapping[str, int] = dict.fromkeys(("log cleaning", "fenced", "compaction", "retention", "merge"), 10)
"""What processes note."""
_MIXED = {OTHER_VERSION: 1, THIS_VERSION: 1}
"""Where two versions take part."""
_APPS = {"taken over": 10}
"""Where there are applications."""


def main(arguments: list[str]) -> int:
    """Returns 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m proof.torture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the next ones count on")
    parser.add_argument(
        "--store", choices=sorted({*STORES, *EXCHANGED_STORES}), default="folder", help="s3 is versitygw (%(default)s)"
    )
    parser.add_argument("--span", type=float, default=12.0, help="seconds of work in a round, at least (%(default)s)")
    parser.add_argument("--sharing", type=int, default=0, help="so many producers share one topic by group commit")
    parser.add_argument("--gateways", type=int, default=0, help="so many, and Kafka's clients that go through them")
    parser.add_argument("--exchanged", action="store_true", help="what lies under the cluster is exchanged meanwhile")
    parser.add_argument("--faulty", action="store_true", help="the store loses, delays, refuses and repeats requests")
    parser.add_argument("--apps", action="store_true", help="a worker, a relay, a mover and a share group, too")
    parser.add_argument("--if-there", action="store_true", help="nothing is wrong if there is no server of the store")
    parser.add_argument("--folder", type=Path, default=None, help="where failing rounds are kept")
    parser.add_argument("--check", type=Path, default=None, metavar="FOLDER", help="check a round's history again")
    parser.add_argument(
        "--mixed",
        nargs="?",
        const=BEFORE,
        default=None,
        metavar="REF",
        help=f"a git ref, whose code every second process runs ({BEFORE[:8]})",
    )
    options = parser.parse_args(arguments)
    if options.check is not None:
        return _check_again(options.check)
    missing = _missing_server(options.store)
    if missing and options.if_there:
        print(f"NOT PLAYED ON {options.store}: {missing}")
        return 0
    if missing:
        parser.error(missing)
    if options.store not in (EXCHANGED_STORES if options.exchanged else STORES):
        parser.error(f"--store {options.store} is {'not ' if options.exchanged else ''}for rounds with --exchanged")
    if options.faulty and (options.exchanged or options.store == "folder"):
        parser.error("--faulty is for a server's store, and rounds with --exchanged have such faults anyway")
    if options.apps and (options.exchanged or options.mixed is not None):
        parser.error("--apps is for rounds with neither --exchanged nor --mixed")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="sparklog-torture-"))
    first = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    began, outcomes = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="sparklog-other-version-") as other:
        mixed = None if options.mixed is None else Path(other)
        if mixed is not None:
            try:
                print(f"the other version: {check_out(options.mixed, mixed)}", flush=True)
            except NoVersionError as error:
                parser.error(str(error))
        for seed in range(first, first + options.rounds):
            place = folder / f"{options.store}-{seed}"
            outcome = _play(options, seed, place, mixed)
            print(outcome, flush=True)
            if outcome.faults:
                _tell_faults(outcome, place, options)
            else:
                shutil.rmtree(place)
            outcomes.append(outcome)
    if options.folder is None and not any(one.faults for one in outcomes):
        folder.rmdir()
    kills_server = options.store == "s3" and not options.exchanged
    return sum_up(
        outcomes,
        time.monotonic() - began,
        kills_server=kills_server,
        is_mixed=options.mixed is not None,
        has_apps=options.apps,
    )


def _missing_server(store: str) -> str:
    """What is to be done about the server of a store that isn't there; empty: it is."""
    if store == "s3" and find_versitygw() is None:
        return f"{NO_VERSITYGW}; or take STORE=moto"
    return NO_AZURITE if store == "azurite" and find_azurite() is None else ""


def _play(options: argparse.Namespace, seed: int, place: Path, mixed: Path | None) -> Outcome:
    """A round; one that can't be played to its end has failed, and the others follow."""
    began = time.monotonic()
    try:
        if options.exchanged:
            return play_exchanged(seed, place, options.store, span_s=options.span)
        return play(
            seed,
            place,
            options.store,
            span_s=options.span,
            sharing=options.sharing,
            gateways=options.gateways,
            mixed=mixed,
            is_faulty=options.faulty,
            has_apps=options.apps,
        )
    except Exception as error:  # whatever it is, it's the round's
        took_s = time.monotonic() - began
        faults = (f"the round ended by {error!r}", *traceback.format_exc().splitlines())
        place.mkdir(parents=True, exist_ok=True)
        return Outcome(
            seed=seed, faults=faults, judged=None, torments=Counter(), took_s=took_s, worked_s=took_s, ended_s=took_s
        )


def _tell_faults(outcome: Outcome, place: Path, options: argparse.Namespace) -> None:
    for fault in outcome.faults[:_SHOWN]:
        print(f"  {fault}")
    if len(outcome.faults) > _SHOWN:
        print(f"  … and {len(outcome.faults) - _SHOWN} more")
    (place / "outcome.txt").write_text("\n".join([str(outcome), *outcome.faults, ""]))
    print(f"  kept in {place}; check it again: python -m proof.torture --check {place}")
    given = {"STORE": options.store, "SHARING": options.sharing, "GATEWAYS": options.gateways, "MIXED": options.mixed}
    given |= {"EXCHANGED": int(options.exchanged), "FAULTY": int(options.faulty), "APPS": int(options.apps)}
    said = " ".join(f"{name}={value}" for name, value in given.items() if value)
    print(f"  a round like it: make torture ROUNDS=1 SEED={outcome.seed} {said}", flush=True)


def sum_up(
    outcomes: Sequence[Outcome],
    took_s: float,
    *,
    kills_server: bool = False,
    is_mixed: bool = False,
    has_apps: bool = False,
) -> int:
    """Print what came of the rounds; 1 if anything is wrong, or what is to happen in so many didn't."""
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
    expected = {**_TORMENTS, **_NOTED, **(_SERVER_TORMENTS if kills_server else {}), **(_MIXED if is_mixed else {})}
    expected |= _APPS if has_apps else {}
    noted = sum((one.judged.counts for one in outcomes if one.judged is not None), Counter[str]())
    lacking = [
        name for name, rounds in expected.items() if len(outcomes) >= rounds and not (torments[name] or noted[name])
    ]
    if lacking:
        print(f"never met: {', '.join(lacking)}", file=sys.stderr)
        return 1
    return 1 if failed or not outcomes else 0


def _check_again(folder: Path) -> int:
    judged = judge(place_of(folder, "folder"))
    print(judged.verdict)
    for fault in judged.faults:
        print(fault)
    return 1 if judged.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
