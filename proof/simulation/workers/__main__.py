"""Workers, replays and movers in simulated time: ``python -m proof.simulation.workers --count 0..100``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter

from proof.simulation.workers.play import play

__all__ = ["main"]


def main() -> int:
    """Play seeds; 1 where one found something."""
    parser = argparse.ArgumentParser(prog="python -m proof.simulation.workers", description=__doc__)
    parser.add_argument("--count", default="0..50", help="FIRST..LAST, the seeds, the last exclusive")
    first, last = map(int, parser.parse_args().count.split(".."))
    logging.disable(logging.CRITICAL)
    met: Counter[str] = Counter()
    bad = 0
    for seed in range(first, last):
        played = play(seed)
        met += played.met
        for problem in played.problems:
            print(f"seed {seed}: {problem}", flush=True)
        bad += bool(played.problems)
    print(f"{last - first} seeds, {bad} with problems; met {dict(sorted(met.items()))}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
