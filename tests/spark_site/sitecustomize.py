"""What the processes of the tests' Spark do as Python starts: its daemons import what is needed before they fork.

Spark starts ``python -m pyspark.daemon MODULE`` for each kind of work: tasks, plans, filters, the commit of a sink.
That imports nothing: each process that it forks imports Arrow, PySpark and sparklog for itself, one to three seconds
of CPU, which is more than most tests have it do. A process without work ends after a minute, so that a slow machine
forks more of them. Spark's setting of another daemon is for tasks alone.
"""

import sys


def import_what_is_forked() -> None:
    """Imports for all processes to come; each collects garbage after each task, and not what is imported here.

    The threads that Arrow has begun by then are begun again after a fork, by Arrow and by its allocator.
    """
    import gc
    import importlib

    for module in (sys.orig_argv[-1], "sparklog.spark.source.data_source"):
        importlib.import_module(module)
    gc.freeze()


if sys.orig_argv[-3:-1] == ["-m", "pyspark.daemon"]:
    import_what_is_forked()
