"""A prefix of any file system of fsspec as a store, where that has a create-only put of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparklog.errors import InvalidArgumentError
from sparklog.storage._bucket_store import BucketStore, check_root
from sparklog.storage._fsspec_bucket import FsspecBucket

__all__ = ["FsspecStore"]

_URI = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+)://(?P<root>[^@]+)", re.DOTALL)


class FsspecStore(BucketStore):
    """Objects are files below a root. The race when a cluster is made shows whether its create-only put is one.

    Args:
        uri: ``scheme://bucket/prefix``, without credentials.
        storage_options: arguments of the file system's class in fsspec. Values appear in no message.
    Raises:
        InvalidArgumentError: the URI names no root, or carries credentials.
        InvalidConfigurationError: raised by the first call: the file system isn't installed, or refuses an option.
        UnsafeStoreError: raised by the first call: it has no create-only put of its own.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None) -> None:
        match = _URI.fullmatch(uri)
        if match is None:  # the text isn't repeated: it may hold a secret
            raise InvalidArgumentError("invalid URI for the client fsspec: expected scheme://bucket/prefix")
        root = check_root(match["root"])
        bucket = FsspecBucket(match["scheme"], storage_options or {})
        super().__init__(bucket, uri=f"{match['scheme']}://{root}".rstrip("/"), root=root)
