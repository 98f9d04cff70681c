"""``spark-submit jobs/maintain.py --help``: the job ``sparklog.jobs.maintain``, as a file in the repository."""

from __future__ import annotations

import sys

from sparklog.jobs.maintain import main

if __name__ == "__main__":
    sys.exit(main())
