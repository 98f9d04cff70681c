"""Flink's sink with ``EXACTLY_ONCE``: a job that fails once copies a topic."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from proof.compat.processes import NotShownError, output_of
from proof.compat.scenarios import PROGRAMS, Scenarios, java_command, serving
from proof.compat.sources import maven_jars
from proof.compat.topics import committed_offsets, create_topics, produce, records_of
from proof.compat.versions import FLINK_JARS

__all__ = ["Flink"]

_RECORDS, _PARTITIONS = 4_000, 3
_JOB_S = 900


class Flink(Scenarios):
    """A job of one process."""

    name = lists = "flink"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        jars = maven_jars(self.name, FLINK_JARS)
        self._command = java_command(PROGRAMS / "flink" / "Copy.java", jars, folder, memory_mb=700)

    def incrementing(self) -> None:
        """Each transaction has a transactional id of its own."""
        self._copied("INCREMENTING")

    def pooling(self) -> None:
        """Transactional ids are used again."""
        self._copied("POOLING")

    def _copied(self, naming: str) -> None:
        folder = self.folder / naming.lower()
        folder.mkdir()
        name = f"{naming.lower()}-{os.getpid()}"
        source, target, group = (f"{name}-{part}" for part in ("from", "to", "group"))
        with serving(folder / "gateway") as servers:
            create_topics(servers, (source, target), _PARTITIONS)
            produce(servers, source, ((n % _PARTITIONS, "", f"{n}") for n in range(_RECORDS)))
            command = [*self._command, servers, source, target, group, str(folder), naming]
            _, failure = output_of(command, folder, folder / "job.log", _JOB_S)
            if failure:
                raise NotShownError(f"the job: {failure}; its log is {folder / 'job.log'}")
            if not (folder / "failed").is_file():
                raise NotShownError("the job didn't fail in between")
            found = Counter(one.value() for one in records_of(servers, target))
            if found != Counter(f"{n}".encode() for n in range(_RECORDS)):
                doubled = sum(found.values()) - len(found)
                raise NotShownError(f"{len(found)} different values of {_RECORDS}, and {doubled} more")
            committed = sum(committed_offsets(servers, group, source))  # Flink doesn't commit after its last records
            if not 0 < committed <= _RECORDS:
                raise NotShownError(f"the group has committed {committed} in sum, expected 1 to {_RECORDS}")
