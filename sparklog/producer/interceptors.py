"""Interceptors: the user's objects that see, and may change, records that are sent (Kafka ``ProducerInterceptors``)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from sparklog.model import RecordMetadata
from sparklog.producer.future import FutureRecordMetadata

__all__ = ["Interceptors", "ProducerRecord"]

_LOGGER = logging.getLogger("sparklog.producer")


class ProducerRecord(NamedTuple):
    """A record as it was passed to ``send``, before it is serialized."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Sequence[tuple[str, bytes | None]] | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


class Interceptors:
    """Calls the interceptors in their order. An error of an interceptor is logged, and doesn't prevent sending.

    An interceptor has ``on_send(record: ProducerRecord) -> ProducerRecord``, and may have
    ``on_acknowledgement(metadata: RecordMetadata | None, exception)`` and ``close()``.
    """

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._interceptors = interceptors

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record that the last interceptor returned."""
        for interceptor in self._interceptors:
            try:
                changed = interceptor.on_send(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send returned {type(changed).__name__}, expected a ProducerRecord")
                record = changed
            except Exception:
                _LOGGER.exception("on_send of interceptor %r failed; the record is sent as it was before", interceptor)
        return record

    def watch(self, future: FutureRecordMetadata) -> None:
        """Call ``on_acknowledgement`` once the record is acknowledged or has failed."""
        future.add_callback(lambda metadata: self.on_acknowledgement(metadata, None))
        future.add_errback(lambda error: self.on_acknowledgement(None, error))

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        """Report the outcome of a record to every interceptor that has ``on_acknowledgement``."""
        self._each("on_acknowledgement", metadata, error)

    def close(self) -> None:
        """Close every interceptor that has ``close``."""
        self._each("close")

    def _each(self, method: str, *arguments: object) -> None:
        for interceptor in self._interceptors:
            try:
                getattr(interceptor, method, _nothing)(*arguments)
            except Exception:
                _LOGGER.exception("%s of interceptor %r failed", method, interceptor)


def _nothing(*arguments: object) -> None:
    """Replaces a method that an interceptor doesn't have."""
