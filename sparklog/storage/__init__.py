"""Object stores: one small interface, and the folder, bucket or memory behind it. Alone imports obstore, fsspec and
s3fs.

Stores of clouds are imported when they are first used: a process that works on a folder needs neither them nor asyncio.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sparklog.errors import InvalidArgumentError, InvalidConfigurationError
from sparklog.lazy_imports import import_on_use
from sparklog.storage.base import CreateResult, ObjectInfo, ObjectStore
from sparklog.storage.local import LocalStore
from sparklog.storage.memory import MemoryStore, memory_store
from sparklog.storage.probe import probe_create_only

if TYPE_CHECKING:
    from sparklog.storage.azure import AzureStore
    from sparklog.storage.fsspec_store import FsspecStore
    from sparklog.storage.gcs import GcsStore
    from sparklog.storage.s3 import S3Store
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "sparklog.storage.azure": ("AzureStore",),
            "sparklog.storage.fsspec_store": ("FsspecStore",),
            "sparklog.storage.gcs": ("GcsStore",),
            "sparklog.storage.s3": ("S3Store",),
        },
    )

__all__ = [
    "AzureStore",
    "CreateResult",
    "FsspecStore",
    "GcsStore",
    "LocalStore",
    "MemoryStore",
    "ObjectInfo",
    "ObjectStore",
    "S3Store",
    "open_store",
    "probe_create_only",
]

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>//.*|/.*)", re.DOTALL)
_LIKE_A_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?![/\\])")
_KNOWN = (
    "a path, file:///path, s3://bucket/prefix, gs://bucket/prefix, "
    "abfss://container@account.dfs.core.windows.net/path, az://container/path, memory://name"
)
_CLOUDS = frozenset({"s3", "s3a", "gs", "az", "abfs", "abfss"})
_OTHERS = {
    "hdfs": "sparklog has no client of HDFS, and mounted as a folder it mostly lacks hard links, which a folder needs; "
    "give a local folder, or a bucket as s3://, abfss:// or gs://",
    "dbfs": "give the bucket that the volume lies in, as s3://, abfss:// or gs://, or the path of a mount, /Volumes/…, "
    "if its file system has hard links",
    "wasbs": "give abfss://container@account.dfs.core.windows.net/path",
    "wasb": "give abfss://container@account.dfs.core.windows.net/path",
    "adl": "Data Lake Storage Gen1 is gone; give abfss://container@account.dfs.core.windows.net/path",
    "s3n": "give s3://bucket/prefix",
    "gcs": "give gs://bucket/prefix",
    "azure": "give az://container/path",
    "http": "a web server can't be written to",
    "https": "give the bucket's own URI: s3://, gs:// or abfss://; an endpoint is storage_options endpoint_url",
}
"""Schemes that are refused, and what may be meant."""


def open_store(uri: str | Path, storage_options: Mapping[str, Any] | None = None) -> ObjectStore:
    """The store that ``uri`` names. Nothing is read or written yet.

    Args:
        uri: ``./data``, an absolute path or a ``Path``, ``file:///path`` (percent-encoded), ``s3://bucket/prefix``
            (or ``s3a://``), ``gs://bucket/prefix``, ``abfss://container@account.dfs.core.windows.net/path``,
            ``az://container/path``, ``memory://name`` (the same store each time within one process).
        storage_options: for clouds alone, see :class:`S3Store`, :class:`GcsStore` and :class:`AzureStore`. With
            ``client="fsspec"`` any scheme is opened by fsspec, see :class:`FsspecStore`.
    Raises:
        InvalidArgumentError: another scheme, a URI that isn't complete or was made a ``Path``, or options for a store
            that has none.
    """
    _refuse_garbled(uri)
    match = None if isinstance(uri, Path) else _SCHEME.fullmatch(uri)
    scheme = match["scheme"].lower() if match else "file"
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise InvalidConfigurationError(f"storage_options: expected a mapping, got {type(storage_options).__name__}")
    options = dict(storage_options or {})
    if match and options.get("client") == "fsspec":
        options.pop("client")
        from sparklog.storage.fsspec_store import FsspecStore

        return FsspecStore(str(uri), options)
    if scheme in _CLOUDS:
        if options.get("client") == "obstore":  # the default
            options.pop("client")
        return _cloud_store(scheme, str(uri), options)
    if scheme in _OTHERS:
        raise InvalidArgumentError(f"{scheme}: can't be a store: {_OTHERS[scheme]}")
    if storage_options:
        raise InvalidArgumentError(f"storage_options {sorted(map(str, storage_options))} have no meaning for {scheme}:")
    if match is None:
        if not os.fspath(uri):
            raise InvalidArgumentError(f"empty store URI, expected {_KNOWN}")
        return LocalStore(uri)
    if scheme == "file":
        return LocalStore(_file_path(match["rest"]))
    if scheme == "memory":
        return memory_store(match["rest"].strip("/"))
    raise InvalidArgumentError(f"unknown scheme {scheme}: in the store's URI, expected {_KNOWN}")


def _cloud_store(scheme: str, uri: str, options: dict[str, Any]) -> ObjectStore:
    if scheme in ("s3", "s3a"):
        from sparklog.storage.s3 import S3Store

        return S3Store(uri, options)
    if scheme == "gs":
        from sparklog.storage.gcs import GcsStore

        return GcsStore(uri, options)
    from sparklog.storage.azure import AzureStore

    return AzureStore(uri, options)


def _refuse_garbled(uri: str | Path) -> None:
    """Refuse a path that looks like a mistyped URI, which would name a local folder. A folder with a colon in its name
    can still be given as ``./s3:b``, or by its absolute path. Only the scheme is repeated: the rest may hold a
    secret."""
    if isinstance(uri, Path):
        first = "" if uri.is_absolute() or not uri.parts else uri.parts[0]
        if first.endswith(":") and _SCHEME.fullmatch(f"{first}/"):
            raise InvalidArgumentError(
                f"a Path that begins with {first}: a URI loses a slash as a Path, give {first}//… as a str"
            )
    elif _LIKE_A_SCHEME.match(uri):
        scheme = uri.partition(":")[0]
        raise InvalidArgumentError(
            f"a store that begins with {scheme}: without slashes, expected {_KNOWN}; "
            f"./{scheme}:… for a folder of this name"
        )


def _file_path(rest: str) -> str:
    path = re.sub(r"^//(localhost)?(?=/)", "", rest)
    if path.startswith("//"):
        raise InvalidArgumentError(f"invalid URI file:{rest}: expected file:///path, without a host")
    return unquote(path)
