"""The reader of a streaming query, by the API that PySpark has since 4.2: it is told where a batch begins, and how much
may come."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from sparklog.spark.source.readers import RecordReader, TaskPartition, open_planner
from sparklog.streaming.positions import Positions
from sparklog.streaming.stream import StreamPlanner

__all__ = ["StreamReader"]


class StreamReader(RecordReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a streaming query."""

    _planner: StreamPlanner | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._plan().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        limited = not isinstance(limit, ReadAllAvailable)
        return self._plan().next(Positions.from_json(start), limited=limited).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return self._plan().newest().to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._plan().freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        tasks = self._plan().plan(Positions.from_json(start), Positions.from_json(end))
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
        return {name: value for name, value in self.__dict__.items() if name != "_planner"}
