"""An S3 bucket as a store, over s3fs: ``If-None-Match: *`` is the create-only put."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sparklog.errors import InvalidArgumentError, ObjectNotFoundError, StoreError
from sparklog.storage import _s3_errors as failed
from sparklog.storage._paths import check_path, check_prefix, check_range, is_path
from sparklog.storage._s3_client import CONCURRENCY, S3Client, gather
from sparklog.storage.base import CreateResult, ObjectInfo, ObjectStore

__all__ = ["S3Store"]

_DELETE_KEYS = 1000  # S3's limit for one DeleteObjects
_PART_BYTES = 16 * 2**20
_MULTIPART_BYTES = 4 * _PART_BYTES
_PARTS_AT_ONCE = 4
_DELETES_AT_ONCE = 4
_URI = re.compile(r"s3a?://(?P<bucket>[^/@]+)(?:/(?P<root>.*))?", re.DOTALL)


class S3Store(ObjectStore):
    """Objects are keys below ``s3://bucket/prefix``; the bucket must be there.

    Requests are repeated here, at most three times, and not by botocore below: only so is it known whether an attempt
    that failed may have been carried out. A create is never repeated: its caller does so, with another token. aiohttp
    still sends a request twice when a connection breaks, and proxies may: so ``EXISTS`` may be the caller's own success
    (compare tokens), and of a create that failed nobody knows whether it was carried out, unless the server refused it
    for good (401, 403, 501, 507, …) and aiohttp has sent it once.

    Args:
        uri: ``s3://bucket/prefix``; ``s3a://`` means the same.
        storage_options: arguments of ``s3fs.S3FileSystem``: ``key``, ``secret``, ``token``, ``endpoint_url``,
            ``client_kwargs``, ``config_kwargs``, … They appear in no message. ``retries`` in ``config_kwargs`` has no
            effect.
    Raises:
        InvalidArgumentError: the URI has no bucket, or carries credentials.
        InvalidConfigurationError: s3fs isn't installed or refuses an option; raised by the first call.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None) -> None:
        match = _URI.fullmatch(uri)
        if match is None:  # the text isn't repeated: it may hold a secret
            raise InvalidArgumentError("invalid S3 URI: expected s3://bucket/prefix, without credentials")
        self._bucket = match["bucket"]
        root = (match["root"] or "").rstrip("/")
        self._root = f"{check_path(root)}/" if root else ""
        self._options = dict(storage_options or {})
        self._client = S3Client(self._bucket, self._options)

    def __repr__(self) -> str:
        return f"S3Store({self.uri!r})"

    @property
    def uri(self) -> str:
        return f"s3://{self._bucket}/{self._root}".rstrip("/")

    def read(self, path: str) -> bytes:
        key = self._key(path)
        return self._client.run(lambda: self._get(key))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        check_range(path, start, end)
        key = self._key(path)
        # Inclusive. Of an empty range one byte is asked for, to learn whether the object is there.
        last = max(end, start + 1) - 1
        try:
            data = self._client.run(lambda: self._get(key, Range=f"bytes={start}-{last}"))
        except StoreError as error:
            if error.__cause__ is not None and failed.is_unsatisfiable_range(error.__cause__):
                return b""
            raise
        return data[: end - start]

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        keys = [self._key(path) for path in paths]

        async def get(key: str) -> bytes | None:
            try:
                return await self._get(key)
            except ObjectNotFoundError:
                return None

        return self._client.run(lambda: gather(get, keys, CONCURRENCY))

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self.put_many({path: data})

    def put_many(self, objects: Mapping[str, bytes], *, sync: bool = False) -> None:
        rows = [(self._key(path), data) for path, data in objects.items()]

        async def put(row: tuple[str, bytes]) -> None:
            key, data = row
            if len(data) < _MULTIPART_BYTES:
                await self._client.request("put", key, "put_object", Key=key, Body=bytes(data))
            else:
                await self._put_parts(key, memoryview(data))

        self._client.run(lambda: gather(put, rows, CONCURRENCY))

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        key = self._key(path)
        is_created = self._client.run(lambda: self._client.create(key, bytes(data)))
        return CreateResult.CREATED if is_created else CreateResult.EXISTS

    def list_names(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        folder = self._root + prefix
        names: set[str] = set()
        for page in self._pages(Prefix=folder, Delimiter="/"):
            names.update(row["Prefix"][len(folder) : -1] for row in page.get("CommonPrefixes", ()))
            names.update(row["Key"][len(folder) :] for row in page.get("Contents", ()))
        return sorted(name for name in names if is_path(name))

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        return self._objects(prefix, after)

    def delete(self, paths: Iterable[str]) -> None:
        keys = [self._key(path) for path in paths]
        chunks = [keys[at : at + _DELETE_KEYS] for at in range(0, len(keys), _DELETE_KEYS)]
        self._client.run(lambda: gather(self._delete_keys, chunks, _DELETES_AT_ONCE))

    def arrow_filesystem(self) -> Any:
        from sparklog.storage._s3_arrow import arrow_s3  # loads Arrow's S3 client, which is for engines alone

        return arrow_s3(self._bucket, self._root, self._options)

    def close(self) -> None:
        self._client.close()

    def _key(self, path: str) -> str:
        return self._root + check_path(path)

    async def _get(self, key: str, **arguments: str) -> bytes:
        async def get() -> bytes:
            answer = await self._client.send("get_object", Key=key, **arguments)
            async with answer["Body"] as body:
                data: bytes = await body.read()
                return data

        return await self._client.attempts("get", key, get)

    async def _put_parts(self, key: str, data: memoryview) -> None:
        """Upload in parts: nothing is visible before the last request, and none outlasts s3fs's time-outs."""

        async def put_part(number: int) -> dict[str, Any]:
            body = bytes(data[(number - 1) * _PART_BYTES : number * _PART_BYTES])
            part = {"Key": key, "UploadId": upload_id, "PartNumber": number, "Body": body}
            answer = await self._client.request("put", key, "upload_part", **part)
            return {"PartNumber": number, "ETag": answer["ETag"]}

        upload_id = (await self._client.request("put", key, "create_multipart_upload", Key=key))["UploadId"]
        numbers = range(1, -(-len(data) // _PART_BYTES) + 1)
        try:
            parts = {"Parts": await gather(put_part, numbers, _PARTS_AT_ONCE)}
            upload = {"Key": key, "UploadId": upload_id, "MultipartUpload": parts}
            await self._client.request("put", key, "complete_multipart_upload", **upload)
        except StoreError:
            with suppress(StoreError):  # the first error counts; the bucket's lifecycle rules remove what stays
                await self._client.request("put", key, "abort_multipart_upload", Key=key, UploadId=upload_id)
            raise

    async def _delete_keys(self, keys: Sequence[str]) -> None:
        left = list(keys)

        async def delete() -> None:
            wanted = {"Objects": [{"Key": key} for key in left], "Quiet": True}
            answer = await self._client.send("delete_objects", Delete=wanted)
            refused = {row.get("Key", ""): row for row in answer.get("Errors", ()) if row.get("Code") != "NoSuchKey"}
            if refused:
                left[:] = [key for key in left if key in refused] or left  # the others are gone
                raise failed.KeysRefused(f"s3://{self._bucket}", [*refused.values()])

        name = keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more"
        await self._client.attempts("delete", name, delete)

    def _objects(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        start = {"StartAfter": self._root + after} if after else {}
        for page in self._pages(Prefix=self._root + prefix, **start):
            for row in page.get("Contents", ()):
                path = row["Key"][len(self._root) :]
                if path > after and is_path(path):  # not the markers, ending with "/", that others write for folders
                    modified_ms = round(row["LastModified"].timestamp() * 1000)
                    etag = f"{row['ETag'].strip(chr(34))}-{modified_ms}"  # S3's own is but a hash of the content
                    yield ObjectInfo(path=path, size_bytes=row["Size"], modified_ms=modified_ms, etag=etag)

    def _pages(self, **arguments: str) -> Iterator[dict[str, Any]]:
        while True:
            page = self._client.run(
                lambda: self._client.request("list", arguments["Prefix"], "list_objects_v2", **arguments)
            )
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]
