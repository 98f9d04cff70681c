"""Spark's daemon of Python processes, with what they need imported before they are forked.

``python -m tests.spark_daemon MODULE``, as Spark starts it (``spark.python.daemon.module``). Spark's own daemon imports
nothing: each process that it forks imports Arrow, PySpark and sparklog for itself, one to two seconds of CPU, which is
more than most tests have it do.
"""

from __future__ import annotations

import gc
import importlib
import sys

from pyspark.daemon import manager

NEEDED = "sparklog.spark.source.data_source"


def main() -> None:
    """Imports, and does what ``pyspark.daemon`` does.

    The threads that Arrow has begun by then are begun again after a fork, by Arrow and by its allocator.
    """
    for module in (*sys.argv[1:2], NEEDED):
        importlib.import_module(module)
    gc.freeze()  # each process collects after each task
    manager()


if __name__ == "__main__":
    main()
