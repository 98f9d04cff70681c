"""The part that all stores on clouds share: paths below a root are keys of a bucket."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from sparklog.errors import InvalidArgumentError, ObjectNotFoundError, StorePermissionError
from sparklog.storage._bucket import Bucket
from sparklog.storage._paths import check_path, check_prefix, check_range, is_path
from sparklog.storage.base import CreateResult, ObjectInfo, ObjectStore

__all__ = ["BucketStore", "check_root"]

_LONGEST_KEY_BYTES = 1024
"""The bound of S3, of Google's store, and, counted in characters, of Azure's."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_root(root: str | None) -> str:
    """The prefix of all keys below a root as its URI has it: empty, or ending with ``/``.

    Raises ``InvalidArgumentError`` unless it is a path, without control characters.
    """
    path = (root or "").rstrip("/")
    if _CONTROL.search(path):
        raise InvalidArgumentError(
            f"the prefix {path!r} has a control character, such as a tab or a line's end: expected none"
        )
    return f"{check_path(path)}/" if path else ""


class BucketStore(ObjectStore):
    """Objects are keys of a bucket below a root."""

    def __init__(self, bucket: Bucket, *, uri: str, root: str) -> None:
        """
        Args:
            bucket: sends the requests.
            uri: of the root, as the store shows it.
            root: of :func:`check_root`.
        """
        self._bucket = bucket
        self._uri = uri
        self._root = root

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def is_remote(self) -> bool:
        return True

    @property
    def longest_path_bytes(self) -> int:
        return _LONGEST_KEY_BYTES - len(self._root.encode())

    def read(self, path: str) -> bytes:
        return self._bucket.get(self._key(path))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        check_range(path, start, end)
        # Of an empty range one byte is asked for, to learn whether the object is there.
        return self._bucket.get_range(self._key(path), start, max(end, start + 1))[: end - start]

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return self._bucket.get_many([self._key(path) for path in paths])

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self._bucket.put_many([(self._key(path), data)])

    def put_many(self, objects: Mapping[str, bytes], *, sync: bool = False) -> None:
        self._bucket.put_many([(self._key(path), data) for path, data in objects.items()])

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        is_created = self._bucket.create(self._key(path), bytes(data))
        return CreateResult.CREATED if is_created else CreateResult.EXISTS

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        return self._objects(prefix, after)

    def list_names(self, prefix: str) -> Sequence[str]:
        check_prefix(prefix)
        return sorted({name for name in self._bucket.list_names(self._root + prefix) if is_path(name)})

    def delete(self, paths: Iterable[str]) -> None:
        self._bucket.delete([self._key(path) for path in paths])

    def read_above(self, name: str) -> Sequence[tuple[str, bytes]]:
        parts = self._root.split("/")[:-1]
        found: list[tuple[str, bytes]] = []
        for count in reversed(range(len(parts))):
            with suppress(ObjectNotFoundError, StorePermissionError):
                data = self._bucket.get("".join(f"{part}/" for part in parts[:count]) + name)
                found.append((self._uri.removesuffix("/".join(parts[count:])).rstrip("/"), data))
        return found

    def close(self) -> None:
        self._bucket.close()

    def _key(self, path: str) -> str:
        return self._root + check_path(path)

    def _objects(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        for row in self._bucket.list_objects(self._root + prefix, self._root + after if after else ""):
            path = row.path[len(self._root) :]
            # Others may have written keys that nobody here could name, or markers of folders: obstore shows `prefix`
            # itself as an object, without its slash.
            if path.startswith(prefix) and is_path(path):
                yield ObjectInfo(  # in a third of the time of replace()
                    path=path, size_bytes=row.size_bytes, modified_ms=row.modified_ms, etag=row.etag
                )
