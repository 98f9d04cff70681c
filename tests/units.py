"""Which tests one worker of pytest-xdist runs together: those that share what is costly to make; a few of a file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

__all__ = ["AT_ONCE", "GROUPS", "group_of", "units_of"]

GROUPS = {
    "spark": "mark.spark",
    "kafka": "mark.kafka",
    "s3": "mark.s3",
    "database": "database_url",
    "sources": "import public_names",
}
"""Groups of tests that share what is made once per process, a JVM, servers or parsed sources; and what their files
name."""
ITS_OWN = 'scope="module"'
"""What a file names whose tests share something of the file's own: they are a group, too."""
OWN_JVM = (
    "proof/torture/test_spark_sink.py",
    "tests/integration/test_spark_stream.py",
    "tests/spark/sink/test_sink_kill.py",
)
"""Files whose tests start JVMs of their own, and kill some."""
AT_ONCE = 8
"""So many tests a worker is given at a time: fewer messages, and fewer units for the scheduler to count."""
_REPOSITORY = Path(__file__).parent.parent


@cache
def group_of(file: str) -> str | None:
    """The one of ``GROUPS`` that a file belongs to, unless it is one of ``OWN_JVM``; or the file, if it is its own."""
    if file in OWN_JVM:
        return None
    text = (_REPOSITORY / file).read_text()
    return next((group for group, name in GROUPS.items() if name in text), file if ITS_OWN in text else None)


def units_of(nodeids: Sequence[str]) -> dict[str, str]:
    """The unit of each test: what one worker runs without asking for more.

    Each has up to ``AT_ONCE`` tests of a file that follow each other, or all of a group.
    """
    units: dict[str, str] = {}
    for file, of_file in groupby(nodeids, key=lambda nodeid: nodeid.partition("::")[0]):
        for number, nodeid in enumerate(of_file):
            if number % AT_ONCE == 0:
                first = nodeid
            units[nodeid] = group_of(file) or first
    return units
