"""The futures that ``send`` and ``send_batch`` return: partition and offset of records. Names are kafka-python's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from sparklog.errors import InvalidTypeError, KafkaTimeoutError, SparklogError
from sparklog.model import RecordMetadata, TopicPartition
from sparklog.producer.accumulator import FutureBase
from sparklog.producer.batch import Batch
from sparklog.producer.outcome import Outcome

__all__ = ["BatchMetadata", "FutureBatchMetadata", "FutureRecordMetadata", "future_of_only_record", "refuse_callback"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMetadata:
    """Partitions and offsets of the rows of a ``send_batch``, in the table's order; -1 with ``acks=0``."""

    topic: str
    partitions: pa.Array
    """int32; -1 with ``acks=0``."""
    offsets: pa.Array
    """int64; -1 with ``acks=0``."""

    @property
    def record_count(self) -> int:
        """How many rows were sent."""
        return len(self.offsets)


class _Future(FutureBase, Generic[T]):
    """A future whose result is that of its batch; it is done when the batch is done."""

    __slots__ = ()

    def _value_of(self, outcome: Outcome) -> T:
        raise NotImplementedError

    def _error_of(self, outcome: Outcome) -> SparklogError | None:
        raise NotImplementedError

    @property
    def is_done(self) -> bool:
        """Whether the send has succeeded or failed."""
        return self._batch.outcome is not None

    def succeeded(self) -> bool:
        """Whether the send is done without an error."""
        outcome = self._batch.outcome
        return outcome is not None and self._error_of(outcome) is None

    def failed(self) -> bool:
        """Whether the send is done with an error."""
        return self.exception is not None

    def retriable(self) -> bool:
        """Whether the send failed with an error after which the same send may succeed."""
        error = self.exception
        return error is not None and error.retriable

    @property
    def exception(self) -> SparklogError | None:
        """The error; None before the send is done, and after success."""
        outcome = self._batch.outcome
        return None if outcome is None else self._error_of(outcome)

    @property
    def value(self) -> T | None:
        """The result; None before the send is done, and after an error."""
        outcome = self._batch.outcome
        if outcome is None or self._error_of(outcome) is not None:
            return None
        return self._value_of(outcome)

    def get(self, timeout: float | None = None) -> T:
        """Wait for the result.

        Args:
            timeout: seconds; None: no bound but ``delivery_timeout_ms``. A callback that waits for a later record of
                its own topic waits for itself.
        Returns:
            The result. Within an open transaction it is returned once the record is uploaded, and its offset is -1,
            since the record has none before the commit. The future is done, and calls back, when the transaction ends.
        Raises:
            KafkaTimeoutError: not done in ``timeout``; it may still succeed.
            SparklogError: the error with which the send failed.
        """
        outcome = self._batch.outcome
        if outcome is None:
            self._batch.begin_flush()
            self._batch.wait_for_outcome(timeout)
            outcome = self._batch.outcome or self._batch.uploaded_outcome
        if outcome is None:
            raise KafkaTimeoutError(f"a record of topic {self._batch.topic!r} is not acknowledged after {timeout} s")
        error = self._error_of(outcome)
        if error is not None:
            raise error.with_traceback(None)  # of several records, perhaps, and asked for by several threads
        return self._value_of(outcome)

    def add_callback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> _Future[T]:
        """Call ``f(*args, result, **kwargs)`` when it succeeds: in the producer's own thread, in the order of sending
        per partition, and never two callbacks at once. If it has succeeded already, ``f`` is called here."""

        def on_outcome(outcome: Outcome) -> None:
            if self._error_of(outcome) is None:
                f(*args, self._value_of(outcome), **kwargs)

        self._batch.when_done(self._index, on_outcome)
        return self

    def add_errback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> _Future[T]:
        """Call ``f(*args, error, **kwargs)`` when the send fails; otherwise like :meth:`add_callback`."""

        def on_outcome(outcome: Outcome) -> None:
            error = self._error_of(outcome)
            if error is not None:
                f(*args, error, **kwargs)

        self._batch.when_done(self._index, on_outcome)
        return self

    def add_both(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> _Future[T]:
        """Call ``f`` with the result or the error when the send is done."""
        self.add_callback(f, *args, **kwargs)
        return self.add_errback(f, *args, **kwargs)


class FutureRecordMetadata(_Future[RecordMetadata]):
    """The future of one record."""

    __slots__ = ()

    def _error_of(self, outcome: Outcome) -> SparklogError | None:
        return outcome.error_of(self._index)

    def _value_of(self, outcome: Outcome) -> RecordMetadata:
        written, index = outcome.require_written(), self._index
        partition = int(written.partitions[index])
        return RecordMetadata(
            topic=self._batch.topic,
            partition=partition,
            topic_partition=TopicPartition(self._batch.topic, partition),
            offset=int(written.offsets[index]),
            timestamp=int(written.timestamps_ms[index]),
            checksum=None,
            serialized_key_size=int(written.key_sizes[index]),
            serialized_value_size=int(written.value_sizes[index]),
            serialized_header_size=self._batch.header_size(index),
        )


def future_of_only_record(batch: Batch) -> FutureRecordMetadata:
    """Return the future of a batch's only record."""
    future = FutureRecordMetadata()
    future._batch, future._index = batch, 0
    return future


class FutureBatchMetadata(_Future[BatchMetadata]):
    """The future of all rows of a table. It fails with the first error; other rows may be stored nevertheless."""

    __slots__ = ("_batches",)

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batch, self._index = batches[-1], 0  # a topic's batches are settled in their order
        self._batches = batches

    def when_outcome(self, callback: Callable[[Outcome], None]) -> None:
        """Call back with the outcome of the only batch, as :meth:`add_both`."""
        self._batch.when_done(self._index, callback)

    def _error_of(self, outcome: Outcome) -> SparklogError | None:
        outcomes = [batch.outcome for batch in self._batches[:-1]]
        for known in (*outcomes, outcome):
            if known is not None and (known.error or known.refused):
                return known.error or next(iter((known.refused or {}).values()))
        return None

    def _value_of(self, outcome: Outcome) -> BatchMetadata:
        outcomes = [*(batch.outcome or batch.uploaded_outcome for batch in self._batches[:-1]), outcome]
        written = [known.require_written() for known in outcomes if known is not None]
        return BatchMetadata(
            topic=self._batch.topic,
            partitions=pa.array(np.concatenate([part.partitions for part in written])),
            offsets=pa.array(np.concatenate([part.offsets for part in written])),
        )


def refuse_callback(callback: object) -> None:
    """Raise ``InvalidTypeError`` where ``send`` was given a callback, as clients of other libraries take one."""
    if callback is not None:
        raise InvalidTypeError(
            "send(callback=…) isn't supported, since clients differ in what they call it with: "
            "send(…).add_callback(function) calls function(metadata), .add_errback(function) calls function(error)"
        )
