"""Requests to one bucket over s3fs: the connection of this process, and which failures are tried again."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from sparklog.errors import (
    IllegalStateError,
    InvalidConfigurationError,
    ObjectNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from sparklog.storage import _s3_errors as failed
from sparklog.storage._answers import needs_settling
from sparklog.storage._attempts import PAUSES_S, Attempts, of_create
from sparklog.storage._bucket import CONCURRENCY
from sparklog.storage._client_options import HiddenOptions, seconds_option, without_values
from sparklog.storage._s3_sendings import count_sendings, counting_session_class
from sparklog.storage._written_etags import WrittenEtags, unreadable_write
from sparklog.storage.call_limit import CallLimit, call_limit

__all__ = ["S3Client"]

T = TypeVar("T")

_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 5, 15  # s3fs's defaults
_GRACE_S = 10  # for a free connection, a name to be resolved, credentials to be fetched
_SLOWEST_BYTES_PER_S = 2**20
_PAUSES_S = PAUSES_S


class S3Client:
    """Sends requests to one bucket: see :class:`~sparklog.storage._s3fs_bucket.S3fsBucket` for what is repeated."""

    def __init__(self, bucket: str, options: Mapping[str, Any]) -> None:
        self._bucket = bucket
        self._options = HiddenOptions(options)
        config = options.get("config_kwargs") or {}
        if not isinstance(config, Mapping):
            raise InvalidConfigurationError("storage_options config_kwargs: expected a mapping")
        self._timeout_s = sum(
            seconds_option(config, name, default=default)
            for name, default in (("connect_timeout", _CONNECT_TIMEOUT_S), ("read_timeout", _READ_TIMEOUT_S))
        )
        self._is_counted = "http_session_cls" not in config
        """Is it known how often a request was sent? A session class of the caller's own must send each once."""
        self._lock = threading.Lock()
        self._connected: tuple[int, Any] | None = None
        self._etags = WrittenEtags()

    def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run ``call()`` on the event loop that s3fs keeps in a thread of its own, and wait for it."""
        filesystem = self._filesystem()
        from fsspec.asyn import sync  # after _filesystem, which explains itself where fsspec is missing

        limit = call_limit()

        async def within() -> T:
            with CallLimit(limit):
                return await call()

        answer: T = sync(filesystem.loop, within)
        return answer

    async def send(self, method: str, **arguments: Any) -> Any:
        """One request, sent once, from within :meth:`run`. Raises what s3fs raises."""
        connected = self._connected  # without the lock: who holds it may be waiting for this very event loop
        if connected is None:
            raise IllegalStateError("the store was closed while a call was under way")
        # aiohttp's own time-out doesn't end a PUT while the server owes it the answer "100 Continue".
        limit_s = self._timeout_s + _GRACE_S + len(arguments.get("Body", b"")) / _SLOWEST_BYTES_PER_S
        return await asyncio.wait_for(connected[1]._call_s3(method, Bucket=self._bucket, **arguments), limit_s)

    async def request(self, op: str, key: str, method: str, **arguments: Any) -> Any:
        """One request, repeated as :meth:`attempts` does."""
        return await self.attempts(op, key, lambda: self.send(method, **arguments))

    async def attempts(self, op: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat ``call`` while that may help, and raise what its failures mean.

        Args:
            op: get, list, put or delete; a create is made once, by :meth:`create`.
            key: for messages.
        Raises:
            StoreError: the last failure; ``StoreOutcomeUnknownError`` if an attempt may have been carried out, whatever
                is wrong with the last.
        """

        def translate(error: Exception) -> StoreError | None:
            if isinstance(error, StoreError):
                return error
            return failed.translate(error, op, f"s3://{self._bucket}/{key}")

        return await Attempts(translate, pauses_s=_PAUSES_S).run_async(call)

    async def create(self, key: str, data: bytes) -> bool:
        """Put an object if its name is free, with one request. False: the name is taken.

        Raises:
            StoreOutcomeUnknownError: it may have been carried out, or may be yet.
            StoreError: it was not, and never will be: the server refuses for good, and the request was sent once.
        """
        with count_sendings() as sendings:
            try:
                answer = await self.send("put_object", Key=key, Body=data, IfNoneMatch="*")
            except Exception as error:
                if failed.is_taken(error):
                    return False
                failure = failed.translate(error, "create", f"s3://{self._bucket}/{key}")
                if failure is None:
                    raise
                # Without an answer, what was sent may be carried out.
                certain_count = 1 if failed.is_answer(error) else 0
                is_certain = sendings.count == certain_count or not self._is_counted
                raise of_create(failure, is_certain=is_certain) from error
        if not self._etags.prove(answer.get("ETag"), data, is_create=True):
            await self._confirm("create", key, data, answer.get("ETag"))
        return True

    async def put(self, key: str, data: bytes) -> None:
        """Put an object, repeated as :meth:`attempts` does."""

        async def put() -> None:
            answer = await self.send("put_object", Key=key, Body=data)
            if not self._etags.prove(answer.get("ETag"), data, is_create=False):
                await self._confirm("put", key, data, answer.get("ETag"))

        await self.attempts("put", key, put)

    async def get(self, key: str, **arguments: str) -> bytes:
        """Get an object, repeated as :meth:`attempts` does. That it is missing is believed if the store's own code says
        so, or a listing shows it."""

        async def get() -> bytes:
            answer = await self.send("get_object", Key=key, **arguments)
            async with answer["Body"] as body:
                data: bytes = await body.read()
                return data

        try:
            return await self.attempts("get", key, get)
        except ObjectNotFoundError as missing:
            if needs_settling(missing):
                page = await self.request("list", key, "list_objects_v2", Prefix=key, MaxKeys=1)
                if any(row["Key"] == key for row in page.get("Contents", ())):
                    message = f"{missing}; but a listing shows it: who answers isn't the store"
                    raise StoreUnavailableError(message) from missing
            raise

    async def _confirm(self, op: str, key: str, data: bytes, etag: str | None) -> None:
        """Read back what an answer, which may be another's than the server's, calls written."""
        name = f"{op} s3://{self._bucket}/{key}"
        try:
            stored: bytes | None = await self.get(key)
        except ObjectNotFoundError:
            stored = None
        except StoreError as error:
            raise unreadable_write(name, error) from error
        self._etags.confirm(name, etag, is_there=stored == data)

    def close(self) -> None:
        """Close the connections of this process."""
        with self._lock:
            connected, self._connected = self._connected, None
        if connected is not None and connected[0] == os.getpid():
            filesystem = connected[1]
            filesystem.close_session(filesystem.loop, filesystem._s3creator)

    def _filesystem(self) -> Any:
        """This process's s3fs instance: its event loop doesn't survive a fork, and Spark's workers are forked."""
        with self._lock:
            if self._connected is None or self._connected[0] != os.getpid():
                self._connected = os.getpid(), _connect(self._options)
            return self._connected[1]


def _connect(options: Mapping[str, Any]) -> Any:
    """A new s3fs instance that caches nothing and retries nothing."""
    try:
        from s3fs import S3FileSystem
    except ImportError as error:
        raise InvalidConfigurationError("the client s3fs isn't installed: pip install sparklog[s3fs]") from error
    config = {
        "max_pool_connections": CONCURRENCY,
        "http_session_cls": counting_session_class(),
        **(options.get("config_kwargs") or {}),
    }
    config["retries"] = {"total_max_attempts": 1}
    overrides = {"config_kwargs": config, "use_listings_cache": False, "skip_instance_cache": True}
    try:
        filesystem = S3FileSystem(**{**options, **overrides})
        filesystem.retries = 1
        filesystem.connect()
    except (KeyError, TypeError, ValueError) as error:
        said = without_values(str(error), options)
        raise InvalidConfigurationError(f"storage_options: s3fs says {said}") from None
    except Exception as error:
        failure = failed.translate(error, "open", "s3")
        if failure is None:
            raise
        raise failure from error
    return filesystem
