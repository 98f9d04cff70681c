"""``python -m proof.model``: search all worlds, deeper than the tests do if asked to, and show each rule's fault."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from proof.model.worlds import (
    APPEND_FAULTS,
    APPENDS,
    DEEPEST,
    GROUND,
    GROUND_FAULTS,
    GROUP_COMMIT_FAULTS,
    GROUP_COMMITS,
    NUMBERING,
    NUMBERING_FAULTS,
    SHARING,
    SHARING_FAULTS,
    TRANSACTION_FAULTS,
    TRANSACTIONS,
    found,
)

_WORLDS = [*APPENDS, *TRANSACTIONS, *GROUP_COMMITS, *NUMBERING, *SHARING, *GROUND]
_FAULTS = [
    *APPEND_FAULTS,
    *TRANSACTION_FAULTS,
    *GROUP_COMMIT_FAULTS,
    *NUMBERING_FAULTS,
    *SHARING_FAULTS,
    *GROUND_FAULTS,
]


def main() -> int:
    """0 where nothing went wrong with all rules on, no world had fewer states than it must, and each rule's fault was
    found, as the one that it is."""
    parser = argparse.ArgumentParser(prog="python -m proof.model", description=__doc__)
    parser.add_argument("--deep", action="store_true", help="the larger worlds, too: minutes and some gigabytes")
    parser.add_argument("--depth", type=int, help="steps, in place of each world's own bound")
    parser.add_argument("--no-faults", action="store_true", help="leave out what happens with a rule switched off")
    options = parser.parse_args()
    is_good = True
    for world in [*_WORLDS, *(DEEPEST if options.deep else [])]:
        if options.depth is not None:
            world = replace(world, max_depth=options.depth)
        began = time.monotonic()
        seen = world.search()
        print(f"{world.name} ({world.bounds}): {seen} ({time.monotonic() - began:.1f} s)", flush=True)
        if seen.violation is not None:
            is_good = False
            print(f"{seen.violation}\n")
        elif options.depth is None and seen.state_count < world.least_states:
            is_good = False
            print(f"too few: expected at least {world.least_states:,} states; the model has lost some of its steps\n")
    for fault in [] if options.no_faults else _FAULTS:
        violation = found(fault).violation
        print(f"\nwithout {' and '.join(fault.without)}: {found(fault)}\n{violation}", flush=True)
        if violation is None or not violation.invariants[0].startswith(fault.broken):
            is_good = False
            print(f"expected to be violated: {fault.broken}", flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
