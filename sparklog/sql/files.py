"""A topic's data files as Arrow reads them: where they are, or copied where Arrow has no way to them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from sparklog.errors import ObjectNotFoundError
from sparklog.storage import ObjectStore

__all__ = ["Files", "files_of", "is_local", "missing_file"]

_READ_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Files:
    """A file system, and what it needs while it is in use."""

    filesystem: Any
    """The Arrow file system, which takes paths as the store has them."""
    copy: tempfile.TemporaryDirectory[str] | None = None


def missing_file(topic: str, version: int, path: str) -> ObjectNotFoundError:
    """The error that a data file of a version of a topic isn't there."""
    return ObjectNotFoundError(
        f"topic {topic!r} as of version {version}: data file {path} isn't there: files of that version were "
        "deleted since"
    )


def files_of(store: ObjectStore, paths: Sequence[str], missing: Callable[[str], ObjectNotFoundError]) -> Files:
    """A file system that has the objects at ``paths``.

    Of a folder or an S3 bucket it is Arrow's own, and reads when it is asked to. Of any other store, as one in memory,
    the objects are copied to a temporary folder now: see :meth:`~sparklog.storage.ObjectStore.arrow_filesystem`.

    Args:
        missing: makes the error that one of them isn't there.
    Raises:
        ObjectNotFoundError: that one.
        InvalidConfigurationError, StoreError.
    """
    filesystem = store.arrow_filesystem()
    if filesystem is not None:
        return Files(filesystem)
    copy = tempfile.TemporaryDirectory(prefix="sparklog-sql-")
    try:
        for start in range(0, len(paths), _READ_AT_ONCE):
            _copy(store, paths[start : start + _READ_AT_ONCE], Path(copy.name), missing)
    except BaseException:
        copy.cleanup()
        raise
    return Files(pafs.SubTreeFileSystem(copy.name, pafs.LocalFileSystem()), copy)


def is_local(filesystem: Any) -> bool:
    """Is no network between an Arrow file system's files and this process?"""
    return isinstance(getattr(filesystem, "base_fs", filesystem), pafs.LocalFileSystem)


def _copy(
    store: ObjectStore, paths: Sequence[str], folder: Path, missing: Callable[[str], ObjectNotFoundError]
) -> None:
    for path, data in zip(paths, store.read_many(paths), strict=True):
        if data is None:
            raise missing(path)
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
