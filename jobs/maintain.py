"""All that keeps a cluster in shape, in order: ``spark-submit jobs/maintain.py --help``. See docs/operations.md.

Exit codes: 0 done; 1 something failed, the rest was done; 2 wrong arguments; 75 something failed, and the same call may
succeed later.
"""

from __future__ import annotations

import sys

from sparklog.spark.maintenance.maintenance_job import main

if __name__ == "__main__":
    sys.exit(main("maintain"))
