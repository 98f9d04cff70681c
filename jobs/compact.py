"""``spark-submit jobs/compact.py --help``: the job ``sparklog.jobs.compact``, as a file in the repository."""

from __future__ import annotations

import sys

from sparklog.jobs.compact import main

if __name__ == "__main__":
    sys.exit(main())
