"""Play seeds: ``python -m proof.simulation.cluster SEED [--trace]``, ``… 17..40``, ``… --count 20000``."""

from __future__ import annotations

import argparse
import os
import sys

from proof.simulation.cluster.many import replays, seeds_of, tell

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Returns 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m proof.simulation.cluster", description=__doc__)
    parser.add_argument("seeds", help="one, as 17; a range, as 17..40; with --count how many from 0 on")
    parser.add_argument("--trace", action="store_true", help="print what happened; of one seed")
    parser.add_argument("--count", action="store_true", help="SEEDS is how many")
    parser.add_argument("--planted", metavar="NAME", help="with this fault planted")
    options = parser.parse_args(arguments)
    seeds = seeds_of(options.seeds, is_count=options.count)
    return tell(seeds, is_traced=options.trace, planted=options.planted)


if __name__ == "__main__":
    if not replays():  # sets of strings have another order in each process otherwise
        os.execve(
            sys.executable,
            [sys.executable, "-m", "proof.simulation.cluster", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main(sys.argv[1:]))
