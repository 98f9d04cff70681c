"""The Python processes that Spark hands on from task to task and from query to query.

Spark's daemon collects garbage after each of them. Over all that Spark, Arrow and sparklog have imported this takes
30 ms of CPU, as long as it takes to read 200,000 records.
"""

from __future__ import annotations

import gc
import os
from itertools import count

__all__ = ["work_begins"]

_REUSED = "SPARK_REUSE_WORKER"
"""Set in the environment of processes that Spark hands on. Source: ``pyspark/daemon.py``."""
_CALLS = count()


def work_begins() -> None:
    """Note that Spark has this process work for sparklog once more: run a task, plan a query.

    At the second time all objects that are there are exempted from collections from then on (decision 0074): what is
    imported on first use is among them, and Spark has just collected, so that they aren't garbage. Where processes
    aren't handed on, as in a user's own, nothing is done.
    """
    if _REUSED in os.environ and next(_CALLS) == 1:
        gc.freeze()
