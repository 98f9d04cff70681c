"""The interface between a store on a cloud and the client library that sends its requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import datetime

from sparklog.storage.base import ObjectInfo

__all__ = ["CONCURRENCY", "Bucket", "object_info"]

CONCURRENCY = 32
"""Requests of one call under way at once."""


class Bucket(ABC):
    """Requests to one bucket (Azure: container), whose objects are named by whole keys.

    Calls raise what those of :class:`~sparklog.storage.base.ObjectStore` do, and repeat what may be repeated, with a
    bound. Instances may be used from several threads, and from processes that were forked.
    """

    @abstractmethod
    def get(self, key: str) -> bytes:
        """The whole object. Raises ``ObjectNotFoundError``."""

    @abstractmethod
    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Bytes ``start`` (inclusive) to ``end`` (exclusive, greater than ``start``); fewer, or none, where the object
        ends before. Raises ``ObjectNotFoundError``."""

    @abstractmethod
    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Whole objects, in the order of ``keys``; None for one that isn't there."""

    @abstractmethod
    def put_many(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Write or replace objects, given with their keys."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> bool:
        """Put an object if its key is free, by one request that is made once. False: the key is taken.

        Raises:
            StoreOutcomeUnknownError: it may have been carried out, or may be yet.
            StoreError: it was not, and never will be: the server refused it for good, or it was never sent.
        """

    @abstractmethod
    def list_objects(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Objects whose keys start with ``prefix`` (empty, or ending with ``/``) and sort after ``after`` (empty: all),
        by their keys' byte order. A row's ``path`` is the whole key."""

    @abstractmethod
    def list_names(self, prefix: str) -> Iterator[str]:
        """Names directly under ``prefix``, in no order, without their trailing slash; one may come twice."""

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; one that isn't there is no error."""

    @abstractmethod
    def close(self) -> None:
        """Give back the connections of this process."""


def object_info(key: str, size_bytes: int, modified: datetime, etag: str | None) -> ObjectInfo:
    """A row of a bucket's listing. The cloud's own ``etag`` may be but a hash of the content."""
    modified_ms = round(modified.timestamp() * 1000)
    return ObjectInfo(
        path=key,
        size_bytes=size_bytes,
        modified_ms=modified_ms,
        etag=f"{(etag or '').strip(chr(34))}-{modified_ms}",
    )
