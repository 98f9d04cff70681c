"""``spark-submit jobs/optimize.py --help``: the job ``sparklog.jobs.optimize``, as a file in the repository."""

from __future__ import annotations

import sys

from sparklog.jobs.optimize import main

if __name__ == "__main__":
    sys.exit(main())
