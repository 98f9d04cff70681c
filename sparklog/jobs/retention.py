"""Remove what topics' retention doesn't keep: ``python -m sparklog.jobs.retention --help``. See docs/operations.md.

Exit codes: 0 done; 1 something failed, the rest was done; 2 wrong arguments; 75 something failed, and the same call may
succeed later.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sparklog.spark.maintenance.maintenance_job import main as run

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    return run("retention", arguments)


if __name__ == "__main__":
    sys.exit(main())
