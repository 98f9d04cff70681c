"""``spark-submit jobs/retention.py --help``: the job ``sparklog.jobs.retention``, as a file in the repository."""

from __future__ import annotations

import sys

from sparklog.jobs.retention import main

if __name__ == "__main__":
    sys.exit(main())
