"""A bucket on S3 over s3fs, for options and credentials that only it knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sparklog.errors import ObjectNotFoundError, StoreError, StoreOutcomeUnknownError, StoreUnavailableError
from sparklog.storage import _s3_errors as failed
from sparklog.storage._bucket import CONCURRENCY, Bucket, object_info
from sparklog.storage._event_loop import gather
from sparklog.storage._s3_client import S3Client
from sparklog.storage.base import ObjectInfo

__all__ = ["S3fsBucket"]

_DELETE_KEYS = 1000  # S3's limit for one DeleteObjects
_PART_BYTES = 16 * 2**20
_MULTIPART_BYTES = 4 * _PART_BYTES
_PARTS_AT_ONCE = 4
_DELETES_AT_ONCE = 4
_LISTING_FIELDS = {"Contents", "CommonPrefixes", "IsTruncated", "KeyCount", "Name"}
"""Every listing has some of them; botocore reads any other XML as an answer without fields."""


class S3fsBucket(Bucket):
    """Requests are repeated here, at most three times, and not by botocore below: only so is it known whether an
    attempt that failed may have been carried out. A create is never repeated: its caller does so, with another token.
    aiohttp still sends a request twice when a connection breaks, and proxies may: so "taken" may be the caller's own
    success (compare tokens), and of a create that failed nobody knows whether it was carried out, unless the server
    refused it for good (401, 403, 501, 507, …) and aiohttp has sent it once.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        """
        Args:
            name: of the bucket.
            options: arguments of ``s3fs.S3FileSystem``. ``retries`` in ``config_kwargs`` has no effect.
        """
        self._name = name
        self._client = S3Client(name, options)

    def get(self, key: str) -> bytes:
        return self._client.run(lambda: self._client.get(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        try:
            return self._client.run(lambda: self._client.get(key, Range=f"bytes={start}-{end - 1}"))
        except StoreError as error:
            if error.__cause__ is not None and failed.is_unsatisfiable_range(error.__cause__):
                return b""
            raise

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        async def get(key: str) -> bytes | None:
            try:
                return await self._client.get(key)
            except ObjectNotFoundError:
                return None

        return self._client.run(lambda: gather(get, keys, CONCURRENCY))

    def put_many(self, objects: Sequence[tuple[str, bytes]]) -> None:
        async def put(row: tuple[str, bytes]) -> None:
            key, data = row
            if len(data) < _MULTIPART_BYTES:
                await self._client.put(key, bytes(data))
            else:
                await self._put_parts(key, memoryview(data))

        self._client.run(lambda: gather(put, objects, CONCURRENCY))

    def create(self, key: str, data: bytes) -> bool:
        return self._client.run(lambda: self._client.create(key, data))

    def list_objects(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        start = {"StartAfter": after} if after else {}
        for page in self._pages(Prefix=prefix, **start):
            for row in page.get("Contents", ()):
                yield object_info(row["Key"], row["Size"], row["LastModified"], row["ETag"])

    def list_names(self, prefix: str) -> Iterator[str]:
        for page in self._pages(Prefix=prefix, Delimiter="/"):
            yield from (row["Prefix"][len(prefix) : -1] for row in page.get("CommonPrefixes", ()))
            yield from (row["Key"][len(prefix) :] for row in page.get("Contents", ()))

    def delete(self, keys: Sequence[str]) -> None:
        chunks = [keys[at : at + _DELETE_KEYS] for at in range(0, len(keys), _DELETE_KEYS)]
        self._client.run(lambda: gather(self._delete_keys, chunks, _DELETES_AT_ONCE))

    def close(self) -> None:
        self._client.close()

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
        except StoreError as error:
            if isinstance(error, StoreOutcomeUnknownError) and await self._is_stored(key, data):
                return  # completed, and the answer was lost
            with suppress(StoreError):  # the first error counts; the bucket's lifecycle rules remove what stays
                await self._client.request("delete", key, "abort_multipart_upload", Key=key, UploadId=upload_id)
            raise

    async def _is_stored(self, key: str, data: memoryview) -> bool:
        """Is this the whole object? Where that can't be seen it is uploaded again: False."""
        try:
            return await self._client.get(key) == data
        except StoreError:
            return False

    async def _delete_keys(self, keys: Sequence[str]) -> None:
        left = list(keys)

        async def delete() -> None:
            wanted = {"Objects": [{"Key": key} for key in left], "Quiet": True}
            answer = await self._client.send("delete_objects", Delete=wanted)
            refused = {row.get("Key", ""): row for row in answer.get("Errors", ()) if row.get("Code") != "NoSuchKey"}
            if refused:
                left[:] = [key for key in left if key in refused] or left  # the others are gone
                raise failed.KeysRefused(f"s3://{self._name}", [*refused.values()])

        name = keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more"
        await self._client.attempts("delete", name, delete)

    def _pages(self, **arguments: str) -> Iterator[dict[str, Any]]:
        while True:
            page = self._client.run(
                lambda: self._client.request("list", arguments["Prefix"], "list_objects_v2", **arguments)
            )
            if not page.keys() & _LISTING_FIELDS:
                raise StoreUnavailableError(
                    f"list s3://{self._name}/{arguments['Prefix']}: the answer isn't a listing; is endpoint_url that "
                    "of a console, or does a proxy ask for a login?"
                )
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]
