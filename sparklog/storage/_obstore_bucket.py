"""A bucket on any cloud that obstore knows: S3, Azure Blob Storage, Google Cloud Storage."""

from __future__ import annotations

import asyncio
import math
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

from sparklog.errors import (
    ObjectNotFoundError,
    StoreError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
)
from sparklog.storage import _obstore_errors as failed
from sparklog.storage._answers import needs_settling
from sparklog.storage._attempts import PAUSES_S, Attempts, of_create
from sparklog.storage._bucket import CONCURRENCY, Bucket, object_info
from sparklog.storage._client_options import panics_told
from sparklog.storage._event_loop import gather, run_in_loop
from sparklog.storage._main_thread import run_interruptibly
from sparklog.storage._obstore_library import obstore_library
from sparklog.storage._written_etags import WrittenEtags, unreadable_write
from sparklog.storage.base import ObjectInfo

__all__ = ["ObstoreBucket"]

S = TypeVar("S")
_Row: TypeAlias = Mapping[str, Any]
T = TypeVar("T")

_PAUSES_S = PAUSES_S
_PART_BYTES = 8 * 2**20
_MULTIPART_BYTES = 2 * _PART_BYTES
_PARTS_AT_ONCE = 4
_IN_PARTS = {"use_multipart": True, "chunk_size": _PART_BYTES, "max_concurrency": _PARTS_AT_ONCE}
"""Nothing of an upload in parts is visible before its last request, whose answer names the object. No request is so
long that it would end by a time-out on a slow line."""
_DELETES_AT_ONCE = 4
_ROWS_AT_ONCE = 1000
_CHECK_EVERY_S = 1.0
"""An empty listing isn't checked for so long after one was: it would double what a look into an empty folder costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connection:
    """obstore and its store, as one process has them."""

    process: int
    library: ModuleType
    store: Any


class ObstoreBucket(Bucket):
    """Requests are repeated here, at most three times, and not by obstore below: only so is it known whether an attempt
    that failed may have been carried out. A create is sent once: its caller repeats it, with another token. Proxies may
    send a request twice all the same: so "taken" may be the caller's own success (compare tokens).

    What is refused because the credentials have expired is sent a second time, a create, too, with those that are
    there by then: such a refusal is certain.

    A success is believed where it can only be the cloud's: a PUT's by its ETag, or because the object was read back; an
    empty listing, and a deletion of many keys, by a HEAD of a key that can't be there.
    """

    def __init__(
        self,
        name: str,
        uri: str,
        connect: Callable[[Any], Any],
        *,
        is_sorted: bool = True,
        deletes_keys: int = 1000,
        renews_credentials: bool = True,
    ) -> None:
        """
        Args:
            name: of the bucket or container.
            uri: of the bucket, for messages.
            connect: makes a store of obstore, given the class's module; called at the first request of each process.
            is_sorted: does the cloud list keys by their byte order?
            deletes_keys: that the cloud deletes by one request; with 1 each is deleted by itself.
            renews_credentials: may ``connect`` find others than before, so that a request which is refused because they
                have expired is worth being sent once more?
        """
        self._name = name
        self._uri = uri
        self._connect = connect
        self._is_sorted = is_sorted
        self._deletes_keys = deletes_keys
        self._renews_credentials = renews_credentials
        self._connection: _Connection | None = None
        self._etags = WrittenEtags()
        self._checked_s = -math.inf
        """When an empty listing was checked."""

    def get(self, key: str) -> bytes:
        return run_interruptibly(lambda: self._get(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        def get(at: _Connection) -> bytes:
            return bytes(at.library.get_range(at.store, key, start=start, end=end).to_bytes())

        try:
            return run_interruptibly(lambda: self._settled(key, lambda: self._attempts("get", key, get)))
        except StoreError as error:
            if error.__cause__ is not None and failed.is_unsatisfiable_range(error.__cause__):
                return b""
            raise

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        if len(keys) == 1:
            return [run_interruptibly(lambda: self._get_or_none(keys[0]))]
        return self._gather(self._get_or_none_async, keys, CONCURRENCY)

    def put_many(self, objects: Sequence[tuple[str, bytes]]) -> None:
        if len(objects) == 1:
            [(key, data)] = objects
            run_interruptibly(lambda: self._attempts("put", key, lambda at: self._put(at, key, data)))
            return

        async def put(row: tuple[str, bytes]) -> None:
            key, data = row
            await self._attempts_async("put", key, lambda at: self._put_async(at, key, data))

        self._gather(put, objects, CONCURRENCY)

    def create(self, key: str, data: bytes) -> bool:
        return run_interruptibly(lambda: self._create(key, data))

    def list_objects(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        if self._is_sorted:
            return self._sorted_rows(prefix, after)
        return self._rows_to_sort(prefix, after)

    def list_names(self, prefix: str) -> Iterator[str]:
        def page(at: _Connection) -> Mapping[str, Any]:
            return at.library.list_with_delimiter(at.store, prefix or None)  # type: ignore[no-any-return]

        found = run_interruptibly(lambda: self._attempts("list", prefix, page))
        if not found["common_prefixes"] and not found["objects"]:
            run_interruptibly(lambda: self._check_empty(prefix))
        for path in (*found["common_prefixes"], *(row["path"] for row in found["objects"])):
            if path.startswith(prefix):  # not the marker of the folder itself, which comes without its slash
                yield path[len(prefix) :].removesuffix("/")

    def delete(self, keys: Sequence[str]) -> None:
        if self._deletes_keys == 1:
            self._gather(self._delete_one, keys, CONCURRENCY)
            return
        chunks = [keys[at : at + self._deletes_keys] for at in range(0, len(keys), self._deletes_keys)]
        self._gather(self._delete_chunk, chunks, _DELETES_AT_ONCE)

    def close(self) -> None:
        self._connection = None

    def _get(self, key: str) -> bytes:
        def get(at: _Connection) -> bytes:
            return bytes(at.library.get(at.store, key).bytes().to_bytes())

        return self._settled(key, lambda: self._attempts("get", key, get))

    def _settled(self, key: str, read: Callable[[], T]) -> T:
        """The result of ``read``; that an object is missing is believed if the store's own code says so, or a listing
        shows it."""
        try:
            return read()
        except ObjectNotFoundError as missing:
            if needs_settling(missing):
                self._check_missing(key, missing)
            raise

    def _check_missing(self, key: str, missing: ObjectNotFoundError) -> None:
        """Raise ``StoreUnavailableError`` if an object is there, whatever an answer without a code has said; else
        return. Raises what the listing does, too."""
        folder, before = key.rpartition("/")[0], key[:-1]  # sorts just before the key, in any folder of ours
        after = before if before.startswith(f"{folder}/") or not folder else f"{folder}/"

        def find(at: _Connection) -> bool:
            for page in at.library.list(at.store, folder or None, offset=after or None, chunk_size=_ROWS_AT_ONCE):
                for row in page:
                    if row["path"] >= key and (self._is_sorted or row["path"] == key):
                        return bool(row["path"] == key)
            return False

        if self._attempts("list", folder, find):
            raise StoreUnavailableError(f"{missing}; but a listing shows it: who answers isn't the store") from missing

    def _get_or_none(self, key: str) -> bytes | None:
        try:
            return self._get(key)
        except ObjectNotFoundError:
            return None

    async def _get_or_none_async(self, key: str) -> bytes | None:
        async def get(at: _Connection) -> bytes:
            answer = await at.library.get_async(at.store, key)
            return bytes((await answer.bytes_async()).to_bytes())

        try:
            return await self._attempts_async("get", key, get)
        except ObjectNotFoundError as missing:
            if needs_settling(missing):  # seldom: the loop may wait
                await asyncio.to_thread(self._check_missing, key, missing)
            return None

    def _put(self, at: _Connection, key: str, data: bytes) -> None:
        if len(data) >= _MULTIPART_BYTES:
            try:
                at.library.put(at.store, key, data, **_IN_PARTS)
            except Exception as error:
                if not self._is_completed(at, key, data, error):
                    raise
            return
        etag = at.library.put(at.store, key, data, use_multipart=False)["e_tag"]
        if not self._etags.prove(etag, data, is_create=False):
            self._confirm("put", key, data, etag)

    async def _put_async(self, at: _Connection, key: str, data: bytes) -> None:
        if len(data) >= _MULTIPART_BYTES:
            try:
                await at.library.put_async(at.store, key, data, **_IN_PARTS)
            except Exception as error:
                if not await asyncio.to_thread(self._is_completed, at, key, data, error):
                    raise
            return
        etag = (await at.library.put_async(at.store, key, data, use_multipart=False))["e_tag"]
        if not self._etags.prove(etag, data, is_create=False):  # seldom: the loop may wait
            await asyncio.to_thread(self._confirm, "put", key, data, etag)

    def _is_completed(self, at: _Connection, key: str, data: bytes, error: Exception) -> bool:
        """Did an upload in parts that failed become the whole object all the same, as its last answer was lost?

        Where that can't be seen it is uploaded again: False."""
        if not isinstance(self._translate(error, "put", key), StoreOutcomeUnknownError):
            return False
        whole = memoryview(data)
        try:
            if at.library.head(at.store, key)["size"] != len(data):
                return False
            for start in range(0, len(data), _PART_BYTES):
                end = min(start + _PART_BYTES, len(data))
                if at.library.get_range(at.store, key, start=start, end=end).to_bytes() != whole[start:end]:
                    return False
        except Exception as unreadable:
            if self._translate(unreadable, "get", key) is None:
                raise
            return False
        return True

    def _confirm(self, op: str, key: str, data: bytes, etag: str | None) -> None:
        """Read back what an answer, which may be another's than the cloud's, calls written."""
        name = f"{op} {self._uri}/{key}"
        try:
            stored = self._get_or_none(key)
        except StoreError as error:
            raise unreadable_write(name, error) from error
        self._etags.confirm(name, etag, is_there=stored == data)

    def _create(self, key: str, data: bytes) -> bool:
        def put(at: _Connection) -> str | None:
            answer = at.library.put(at.store, key, data, mode="create", use_multipart=False)
            return answer["e_tag"]  # type: ignore[no-any-return]

        try:
            etag = self._call(put)
        except Exception as error:
            if failed.is_taken(error, bucket=self._name):
                return False
            failure = self._translate(error, "create", key)
            if failure is None:
                raise
            raise of_create(failure, is_certain=True) from error  # see _obstore_errors: it was sent once
        if not self._etags.prove(etag, data, is_create=True):
            self._confirm("create", key, data, etag)
        return True

    def _sorted_rows(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """A listing by pages, which goes on behind the last row where a page failed."""
        last, is_empty, was_renewed = after, True, False
        pages: Any = None
        tries = self._new_attempts("list", prefix)
        while True:
            try:
                pages, page = run_interruptibly(partial(self._next_page, pages, prefix, last))
            except Exception as error:
                pages = None
                if was_renewed or not self._forget_expired(error):
                    time.sleep(tries.pause_after(error))
                was_renewed = True
                continue
            if page is None:
                if is_empty:
                    run_interruptibly(lambda: self._check_empty(prefix))
                return
            is_empty, was_renewed = is_empty and not page, False
            tries = self._new_attempts("list", prefix)
            yield from self._objects(page, last)
            last = max(last, page[-1]["path"]) if page else last

    def _rows_to_sort(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        def collect(at: _Connection) -> Sequence[_Row]:
            return at.library.list(at.store, prefix or None).collect()  # type: ignore[no-any-return]

        rows = run_interruptibly(lambda: self._attempts("list", prefix, collect))
        if not rows:
            run_interruptibly(lambda: self._check_empty(prefix))
        return self._objects(sorted(rows, key=lambda row: row["path"]), after)

    def _next_page(self, pages: Any, prefix: str, after: str) -> tuple[Any, Sequence[_Row] | None]:
        """The pages of a listing, begun behind ``after`` where there are none, and the next of them; None: no more."""
        with panics_told(self._uri):
            if pages is None:
                at = self._connected()
                pages = at.library.list(at.store, prefix or None, offset=after or None, chunk_size=_ROWS_AT_ONCE)
            return pages, next(pages, None)

    def _check_empty(self, prefix: str) -> None:
        """Check that an empty listing came from a store.

        obstore reads any well-formed XML as a listing: a login page, or the page of an administrator's console, is an
        empty one. Whoever answers so says of each key that it is there.

        Raises ``StoreUnavailableError``: it doesn't.
        """
        began_s = time.monotonic()
        if began_s - self._checked_s < _CHECK_EVERY_S:
            return
        key = f"{prefix}no-such-object-{secrets.token_hex(8)}"
        try:  # not by a HEAD, whose answer has no code
            self._attempts("get", key, lambda at: at.library.get(at.store, key))
        except ObjectNotFoundError:
            self._checked_s = began_s
        else:
            raise StoreUnavailableError(
                f"list {self._uri}/{prefix}: the answer isn't an object store's: it is empty, but any object is said "
                "to be there; is endpoint_url that of a console, or does a proxy ask for a login?"
            )

    def _objects(self, rows: Sequence[_Row], after: str) -> Iterator[ObjectInfo]:
        """The objects among the sorted rows of a listing, behind ``after``.

        obstore shows a marker ``a/b/``, which other tools write for a folder, as an object ``a/b``, at the marker's
        place in the order. Such rows are passed over: where there is an object ``a/b``, it came before; else it can't
        be read. Both kinds of rows are empty.
        """
        empty = [row["path"] for row in rows if row["size"] == 0 and row["path"] > after]
        found = dict(zip(empty, self.get_many(empty), strict=True))
        last = after
        for row in rows:
            if row["path"] > last and found.get(row["path"], b"") is not None:
                last = row["path"]
                yield object_info(last, row["size"], row["last_modified"], row["e_tag"])

    async def _delete_one(self, key: str) -> None:
        with suppress(ObjectNotFoundError):
            await self._attempts_async("delete", key, lambda at: at.library.delete_async(at.store, key))

    async def _delete_chunk(self, keys: Sequence[str]) -> None:
        name = keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more"
        try:
            await self._attempts_async("delete", name, lambda at: self._delete_keys(at, keys))
        except ObjectNotFoundError:  # Azure says so of one, and obstore then nothing of the others
            await gather(self._delete_one, keys, CONCURRENCY)

    async def _delete_keys(self, at: _Connection, keys: Sequence[str]) -> None:
        """Delete keys by one request. obstore takes each that the answer leaves out for deleted, as servers do that
        answer briefly; so of many one is looked for. Not of a single one, which others may have written anew."""
        await at.library.delete_async(at.store, [*keys])
        if len(keys) == 1:
            return
        key = random.choice(keys)  # noqa: S311 - no secret
        try:
            await at.library.get_async(at.store, key)  # its body isn't read; of a HEAD the answer has no code
        except Exception as error:
            if isinstance(self._translate(error, "get", key), ObjectNotFoundError):
                return
            raise
        raise StoreOutcomeUnknownError(
            f"delete {self._uri}/{keys[0]} and {len(keys) - 1} more: answered with a success, but {key} is still there"
        )

    def _gather(self, call: Callable[[S], Awaitable[T]], arguments: Sequence[S], at_once: int) -> list[T]:
        if not arguments:
            return []
        return run_interruptibly(lambda: run_in_loop(gather(call, arguments, at_once)))

    def _attempts(self, op: str, key: str, call: Callable[[_Connection], T]) -> T:
        """Repeat ``call`` while that may help, and raise what its failures mean."""
        return self._new_attempts(op, key).run(lambda: self._call(call))

    async def _attempts_async(self, op: str, key: str, call: Callable[[_Connection], Awaitable[T]]) -> T:
        return await self._new_attempts(op, key).run_async(lambda: self._call_async(call))

    def _call(self, call: Callable[[_Connection], T]) -> T:
        """Make a call, and once more if the credentials have expired."""
        with panics_told(self._uri):
            try:
                return call(self._connected())
            except Exception as error:
                if not self._forget_expired(error):
                    raise
            return call(self._connected())

    async def _call_async(self, call: Callable[[_Connection], Awaitable[T]]) -> T:
        with panics_told(self._uri):
            try:
                return await call(self._connected())
            except Exception as error:
                if not self._forget_expired(error):
                    raise
            return await call(self._connected())

    def _forget_expired(self, error: Exception) -> bool:
        """Let the next call look for credentials anew, if these have expired. False: they haven't, or no others can be
        found."""
        if not self._renews_credentials or not failed.is_of_expired_credentials(error, bucket=self._name):
            return False
        self._connection = None
        return True

    def _new_attempts(self, op: str, key: str) -> Attempts:
        return Attempts(lambda error: self._translate(error, op, key), pauses_s=_PAUSES_S)

    def _translate(self, error: Exception, op: str, key: str) -> StoreError | None:
        if isinstance(error, StoreError):
            return error
        failure = failed.translate(error, op, f"{self._uri}/{key}", bucket=self._name)
        if isinstance(failure, StorePermissionError):
            self._connection = None  # the next call looks for credentials anew: these may have expired
        return failure

    def _connected(self) -> _Connection:
        """This process's connection. Two threads may make one each, of which the later is kept."""
        connection = self._connection
        if connection is None or connection.process != os.getpid():
            library = obstore_library()
            store = self._connect(library._store)
            self._connection = connection = _Connection(process=os.getpid(), library=library, store=store)
        return connection
