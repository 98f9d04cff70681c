"""What the processes of the tests' Spark do as Python starts: they take PySpark from where it is compiled, and daemons
import what is needed before they fork.

Spark puts PySpark on the path as a zip of sources, which each process compiles for itself: 2.2 s of CPU to import what
a plan needs, and 0.8 from the installed package. Of a process that reads a stream Spark waits ten seconds for that.

Spark starts ``python -m pyspark.daemon MODULE`` for each kind of work: tasks, plans, filters, the commit of a sink.
That imports nothing: each process that it forks imports Arrow, PySpark and sparklog for itself, which is more than
most tests have it do. A process without work ends after a minute, so that a slow machine forks more of them. Spark's
setting of another daemon is for tasks alone.
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


sys.path[:] = [entry for entry in sys.path if not entry.endswith("pyspark.zip")]
if sys.orig_argv[-3:-1] == ["-m", "pyspark.daemon"]:
    import_what_is_forked()
