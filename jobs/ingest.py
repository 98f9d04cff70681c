"""``spark-submit jobs/ingest.py --help``: the job ``sparklog.jobs.ingest``, as a file in the repository."""

from __future__ import annotations

import sys

from sparklog.jobs.ingest import main

if __name__ == "__main__":
    sys.exit(main())
