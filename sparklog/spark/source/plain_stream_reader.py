"""The reader of a streaming query, by the API of PySpark 4.0 and 4.1: it is asked for the newest offset, and isn't told
from where on."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sparklog.spark.source.readers import RecordReader, TaskPartition, open_planner
from sparklog.streaming.positions import Positions
from sparklog.streaming.stream import StreamPlanner

__all__ = ["PlainStreamReader"]


class PlainStreamReader(RecordReader, DataSourceStreamReader):
    """Reads a streaming query, by what Spark calls before it asks for the newest offset.

    A new query asks for its initial offset, and one that is started again plans the batch that it had planned last, or
    an empty one at its end: the next batch begins there. Where nothing came before, the query has
    ``Trigger.AvailableNow``, which fixes its end before anything else: that is the end of the logs, and the query reads
    up to it in one batch. Source: Spark ``PythonMicroBatchStream.setLatestSeenOffset`` and
    ``AvailableNowDataStreamWrapper``.
    """

    _planner: StreamPlanner | None = None
    _reached: Positions | None = None
    """The end of the newest batch that was planned, or where the first one begins."""
    _unchecked: bool = False
    """Whether the next batch's end was chosen without knowing its begin."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        initial = self._plan().initial()
        if self._reached is None:
            self._reached = initial
        return initial.to_json()

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        if self._reached is None:
            self._unchecked = True
            return self._plan().ends().to_json()
        self._reached = self._plan().next(self._reached, limited=True)
        return self._reached.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, until = Positions.from_json(start), Positions.from_json(end)
        if begin == until:  # of what the end remembers of its own begin there is nothing to read
            self._reached = until
            return []
        if self._unchecked:
            self._plan().next(begin, limited=False)  # raises where something is gone that the query would have read
            self._unchecked = False
        tasks = self._plan().plan(begin, until)
        self._reached = until
        return [TaskPartition(task) for task in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        self._plan().done(Positions.from_json(end))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    def _plan(self) -> StreamPlanner:
        if self._planner is None:
            self._planner = open_planner(self._cluster_ref, self._options, self._columns)
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_planner", "_reached")}
