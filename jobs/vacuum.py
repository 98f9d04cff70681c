"""``spark-submit jobs/vacuum.py --help``: the job ``sparklog.jobs.vacuum``, as a file in the repository."""

from __future__ import annotations

import sys

from sparklog.jobs.vacuum import main

if __name__ == "__main__":
    sys.exit(main())
