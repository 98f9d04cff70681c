"""A bucket over any file system of fsspec whose create-only put is the server's own."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from sparklog.errors import (
    InvalidConfigurationError,
    ObjectNotFoundError,
    StoreError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
    UnsafeStoreError,
)
from sparklog.parallel import parallel_map
from sparklog.storage import _s3_errors
from sparklog.storage._answers import error_without_answer
from sparklog.storage._attempts import PAUSES_S, Attempts
from sparklog.storage._bucket import CONCURRENCY, Bucket, object_info
from sparklog.storage._client_options import HiddenOptions, without_values
from sparklog.storage.base import ObjectInfo

__all__ = ["FsspecBucket", "open_filesystem"]

T = TypeVar("T")

_MODIFIED = ("LastModified", "last_modified", "updated", "mtime", "modified")
_ETAG = ("ETag", "etag", "generation", "md5Hash")


class FsspecBucket(Bucket):
    """Objects of a file system of fsspec, whose keys are whole paths there.

    File systems of fsspec repeat requests as they like, and say so to nobody: whatever a create's failure says, it is
    unknown, and "taken" may be the caller's own success (compare tokens).
    """

    def __init__(self, protocol: str, options: Mapping[str, Any]) -> None:
        """
        Args:
            protocol: of fsspec: the URI's scheme.
            options: arguments of the file system's class.
        """
        self._protocol = protocol
        self._options = HiddenOptions(options)
        self._opened: tuple[int, Any] | None = None

    def get(self, key: str) -> bytes:
        return self._read(key, lambda files: bytes(files.cat_file(key)))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        def get(files: Any) -> bytes:
            try:
                return bytes(files.cat_file(key, start=start, end=end))
            except Exception as error:
                if _s3_errors.is_unsatisfiable_range(error) or _status(error) == "416":
                    return b""
                raise

        return self._read(key, get)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return parallel_map(self._get_or_none, keys, at_once=CONCURRENCY)

    def put_many(self, objects: Sequence[tuple[str, bytes]]) -> None:
        parallel_map(self._put, objects, at_once=CONCURRENCY)

    def create(self, key: str, data: bytes) -> bool:
        try:
            self._filesystem().pipe_file(key, data, mode="create")
        except Exception as error:
            if _is_taken(error):
                return False
            if isinstance(error, InvalidConfigurationError | UnsafeStoreError):
                raise
            raise StoreOutcomeUnknownError(f"create {self._shown(key)}: {_said(error)}") from error
        return True

    def list_objects(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        rows = self._attempts("list", prefix, lambda files: files.find(prefix, detail=True))
        for path, row in sorted(rows.items()):
            if path.startswith(prefix) and path > after and row.get("type", "file") == "file":
                modified, etag = _modified(path, row), next((str(row[name]) for name in _ETAG if row.get(name)), "")
                yield object_info(path, int(row["size"]), modified, etag)

    def list_names(self, prefix: str) -> Iterator[str]:
        try:
            paths = self._attempts("list", prefix, lambda files: files.ls(prefix, detail=False))
        except ObjectNotFoundError:
            return
        for path in paths:
            if path.startswith(prefix):
                yield path[len(prefix) :].rstrip("/")

    def delete(self, keys: Sequence[str]) -> None:
        parallel_map(self._delete, keys, at_once=CONCURRENCY)

    def close(self) -> None:
        self._opened = None

    def _get_or_none(self, key: str) -> bytes | None:
        try:
            return self.get(key)
        except ObjectNotFoundError:
            return None

    def _read(self, key: str, read: Callable[[Any], T]) -> T:
        """Read an object. Most file systems say nothing of the server's code: whether one is missing, a listing shows.

        Raises:
            StoreUnavailableError: it is listed, though it was said to be missing.
        """
        try:
            return self._attempts("get", key, read)
        except ObjectNotFoundError as missing:
            if not missing.code and key in self._attempts("list", key, partial(_listed, key)):
                message = f"{missing}; but a listing shows it: who answers isn't the store"
                raise StoreUnavailableError(message) from missing
            raise

    def _put(self, row: tuple[str, bytes]) -> None:
        key, data = row
        self._attempts("put", key, lambda files: files.pipe_file(key, bytes(data)))

    def _delete(self, key: str) -> None:
        try:
            self._attempts("delete", key, lambda files: files.rm_file(key))
        except ObjectNotFoundError:
            return

    def _attempts(self, op: str, key: str, call: Callable[[Any], T]) -> T:
        tries = Attempts(partial(self._translate, op, key), pauses_s=PAUSES_S)
        return tries.run(lambda: call(self._filesystem()))

    def _translate(self, op: str, key: str, error: Exception) -> StoreError | None:
        if isinstance(error, StoreError):
            return error
        if isinstance(error, InvalidConfigurationError):
            return None
        if _s3_errors.is_answer(error):
            return _s3_errors.translate(error, op, self._shown(key))
        message = f"{op} {self._shown(key)}: {_said(error)}"
        if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
            return ObjectNotFoundError(message)
        if isinstance(error, PermissionError):
            return StorePermissionError(message)
        if isinstance(error, TypeError | AttributeError):
            return None
        return error_without_answer(message, op)

    def _shown(self, key: str) -> str:
        return f"{self._protocol}://{key}"

    def _filesystem(self) -> Any:
        """This process's file system, which caches nothing."""
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            self._opened = opened = os.getpid(), open_filesystem(self._protocol, self._options)
        return opened[1]


def open_filesystem(protocol: str, options: Mapping[str, Any]) -> Any:
    """A new file system of fsspec.

    Raises:
        InvalidConfigurationError: fsspec, or what the protocol needs, isn't installed; or it refuses an option.
        UnsafeStoreError: its create-only put isn't the server's: fsspec's own looks whether the name is there, and
            then writes.
    """
    try:
        import fsspec
        from fsspec.spec import AbstractFileSystem

        cls = fsspec.get_filesystem_class(protocol)
    except (ImportError, ValueError) as error:
        raise InvalidConfigurationError(f"the client fsspec can't open {protocol}: {error}") from error
    pipe_file = getattr(cls, "_pipe_file", None) or cls.pipe_file
    if pipe_file is AbstractFileSystem.pipe_file or "mode" not in inspect.signature(pipe_file).parameters:
        raise UnsafeStoreError(f"{protocol}: {cls.__name__} of fsspec has no create-only put of its own")
    try:
        filesystem = cls(**options, skip_instance_cache=True, use_listings_cache=False)
        if protocol in ("s3", "s3a"):  # s3fs refuses options by then
            filesystem.connect()
        return filesystem
    except (KeyError, TypeError, ValueError) as error:
        names = ", ".join(sorted(map(str, options)))
        said = without_values(str(error), options)
        raise InvalidConfigurationError(f"storage_options {names}: {cls.__name__} refuses them: {said}") from None


def _listed(key: str, files: Any) -> Container[str]:
    """Names of files that have a key's folder and the beginning of its name, as few as the file system can list."""
    folder, _, name = key.rpartition("/")
    find = getattr(files, "_find", None) or files.find
    narrower = {"prefix": name} if "prefix" in inspect.signature(find).parameters else {"maxdepth": 1}
    try:
        return files.find(folder, **narrower)  # type: ignore[no-any-return]
    except FileNotFoundError:
        return ()


def _is_taken(error: Exception) -> bool:
    return isinstance(error, FileExistsError) or _s3_errors.is_taken(error) or _status(error) == "412"


def _status(error: Exception) -> str:
    """The server's status as file systems attach it to their errors; "None" where they don't."""
    return str(getattr(error, "code", None) or getattr(error, "status", None))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _modified(path: str, row: Mapping[str, Any]) -> datetime:
    """When an object was written, by whichever name the file system has for it."""
    for name in _MODIFIED:
        value = row.get(name)
        if isinstance(value, datetime):
            return value
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        if isinstance(value, str):
            return datetime.fromisoformat(value.replace("Z", "+00:00"))
    raise StoreError(f"list {path}: the file system doesn't say when it was written")
