"""An S3 bucket as a store: ``If-None-Match: *`` is the create-only put."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparklog.errors import InvalidArgumentError, InvalidConfigurationError
from sparklog.storage._bucket import Bucket
from sparklog.storage._bucket_store import BucketStore, check_root
from sparklog.storage._client_options import HiddenOptions
from sparklog.storage._obstore_bucket import ObstoreBucket
from sparklog.storage._s3_options import connect_s3, s3_options
from sparklog.storage._s3fs_bucket import S3fsBucket

__all__ = ["S3Store"]

_URI = re.compile(r"s3a?://(?P<bucket>[^/@\s\x00-\x1f<>\"{}|\\^`#?\[\]]+)(?:/(?P<root>.*))?", re.DOTALL)


class S3Store(BucketStore):
    """Objects are keys below ``s3://bucket/prefix``; the bucket must be there.

    Requests that may be repeated are, at most three times. A create is sent once: its caller repeats it, with another
    token. ``EXISTS`` may be the caller's own success (compare tokens), and of a create that failed nobody knows whether
    it was carried out, unless the server refused it for good (401, 403, 501, 507, …).

    Args:
        uri: ``s3://bucket/prefix``; ``s3a://`` means the same.
        storage_options: ``key``, ``secret``, ``token``, ``anon``, ``profile``, ``endpoint_url``, ``region``,
            ``addressing_style``, ``connect_timeout``, ``read_timeout``, …: see ``docs/stores.md``. ``client`` names the
            library that sends the requests: ``obstore``, or ``s3fs``, which takes the arguments of
            ``s3fs.S3FileSystem`` instead. Values appear in no message.
    Raises:
        InvalidArgumentError: the URI has no bucket, or carries credentials.
        InvalidConfigurationError: an option is unknown; or, by the first call, the client isn't installed or refuses
            an option.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None) -> None:
        match = _URI.fullmatch(uri)
        if match is None:  # the text isn't repeated: it may hold a secret
            raise InvalidArgumentError(
                "invalid S3 URI: expected s3://bucket/prefix, in lower case and without credentials, "
                "the bucket's name without spaces and other characters that no bucket's name has"
            )
        self._name = match["bucket"]
        root = check_root(match["root"])
        options = {**(storage_options or {})}
        client = options.pop("client", "obstore")
        self._options = HiddenOptions(options)
        super().__init__(_bucket(self._name, options, client), uri=f"s3://{self._name}/{root}".rstrip("/"), root=root)

    def arrow_filesystem(self) -> Any:
        from sparklog.storage._s3_arrow import arrow_s3  # loads Arrow's S3 client, which is for engines alone

        return arrow_s3(self._name, self._root, self._options)


def _bucket(name: str, options: Mapping[str, Any], client: object) -> Bucket:
    if client == "s3fs":
        return S3fsBucket(name, options)
    if client == "obstore":
        parsed = s3_options(options)
        return ObstoreBucket(
            name,
            f"s3://{name}",
            lambda stores: connect_s3(stores, name, parsed),
            renews_credentials=parsed.keys is None and not parsed.is_anonymous,
        )
    raise InvalidConfigurationError("storage_options client: expected obstore, s3fs or fsspec")
