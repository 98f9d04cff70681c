"""Google's XML interface, which obstore speaks, in front of fake-gcs-server, which speaks Google's JSON interface.

Each request is one request of the other interface; nothing is decided here. Whether a name is taken is decided by
fake-gcs-server, which compares the generation that ``x-goog-if-generation-match`` names as it makes the object. Only
the parts of an upload in parts are kept here, until one request uploads them as a whole.

Source of both interfaces: Google's reference, https://cloud.google.com/storage/docs/xml-api and …/json_api.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.s3_proxy import HOP_BY_HOP, TIMEOUT_S, S3Proxy, s3_proxy
from tests.scripted_server import Reply, Request, xml_error

__all__ = ["gcs_xml_proxy"]

CONDITION = "x-goog-if-generation-match"
PAGE = 500
"""So many objects a page of a listing has: fewer than Google's 1,000, so that tests see more than one."""
REFUSALS = {
    400: "InvalidArgument",
    404: "NoSuchKey",
    412: "PreconditionFailed",
}


@contextmanager
def gcs_xml_proxy(endpoint: str) -> Iterator[S3Proxy]:
    """A proxy that speaks the XML interface, in front of the fake-gcs-server at ``endpoint``."""
    with closing(Translator(endpoint)) as translator, s3_proxy(endpoint) as proxy:
        proxy.instead = translator.answer
        yield proxy


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Translator:
    """Answers requests of the XML interface by requests of the JSON interface."""

    def __init__(self, endpoint: str) -> None:
        self._backend = urlsplit(endpoint).netloc
        self._numbers = itertools.count()
        self._parts: dict[str, dict[int, bytes]] = {}
        self._idle: list[http.client.HTTPConnection] = []

    def answer(self, request: Request) -> Reply:
        url = urlsplit(request.path)
        bucket, _, key = url.path.removeprefix("/").partition("/")
        query = {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        bucket, key = unquote(bucket), unquote(key)
        if not key:
            return self._list(bucket, query)
        if "uploads" in query or "uploadId" in query:
            return self._upload_in_parts(request, bucket, key, query)
        if request.method == "PUT":
            headers = {name.lower(): value for name, value in request.headers.items()}
            return self._put(bucket, key, request.body, condition=headers.get(CONDITION))
        resource = f"/storage/v1/b/{quote(bucket)}/o/{quote(key, safe='')}"
        if request.method == "DELETE":
            answer = self._ask("DELETE", resource)
            return Reply(204, headers={}) if answer.status == 200 else self._refused(answer.status, bucket)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        answer = self._ask(request.method, f"/download{resource}", headers=headers)
        return self._not_found(bucket) if answer.status == 404 else Reply(answer.status, answer.body, answer.headers)

    def _put(self, bucket: str, key: str, body: bytes, *, condition: str | None = None) -> Reply:
        query = {"uploadType": "multipart", "name": key}  # the one kind whose conditions fake-gcs-server 1.54 looks at
        if condition is not None:
            query["ifGenerationMatch"] = condition
        limit = secrets.token_hex(16)
        parts = (("application/json", json.dumps({"name": key}).encode()), ("application/octet-stream", body))
        lines = [
            b"--%s\r\nContent-Type: %s\r\n\r\n%s\r\n" % (limit.encode(), kind.encode(), part) for kind, part in parts
        ]
        sent = b"".join([*lines, b"--%s--\r\n" % limit.encode()])
        headers = {"Content-Type": f"multipart/related; boundary={limit}"}
        answer = self._ask("POST", f"/upload/storage/v1/b/{quote(bucket)}/o?{urlencode(query)}", sent, headers)
        if answer.status != 200:
            return self._refused(answer.status, bucket)
        made = json.loads(answer.body)
        return Reply(200, headers={"ETag": etag_of(made), "x-goog-generation": str(made["generation"])})

    def _list(self, bucket: str, query: Mapping[str, str]) -> Reply:
        after = query.get("start-after", "")
        asked = {"prefix": query.get("prefix", ""), "startOffset": after}
        if "delimiter" in query:  # fake-gcs-server would repeat folders on each page
            asked["delimiter"] = query["delimiter"]
        else:
            asked["maxResults"] = str(min(PAGE, int(query.get("max-keys", PAGE))))
        if "continuation-token" in query:
            asked["pageToken"] = query["continuation-token"]
        answer = self._ask("GET", f"/storage/v1/b/{quote(bucket)}/o?{urlencode(asked)}")
        if answer.status != 200:
            return self._refused(answer.status, bucket)
        listing = json.loads(answer.body)
        rows = [row_of(item) for item in listing.get("items", []) if item["name"] > after]  # which itself isn't listed
        folders = [
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            for name in listing.get("prefixes") or []
        ]
        token = listing.get("nextPageToken", "")
        rest = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        body = f"<?xml version='1.0'?><ListBucketResult>{''.join(rows + folders)}{rest}</ListBucketResult>"
        return Reply(200, body.encode(), headers={"Content-Type": "application/xml"})

    def _upload_in_parts(self, request: Request, bucket: str, key: str, query: Mapping[str, str]) -> Reply:
        if "uploads" in query:
            upload = str(next(self._numbers))
            self._parts[upload] = {}
            return xml(f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>")
        upload = query["uploadId"]
        if request.method == "PUT":
            number = int(query["partNumber"])
            self._parts[upload][number] = request.body
            return Reply(200, headers={"ETag": f'"{upload}-{number}"'})
        parts = self._parts.pop(upload)
        if request.method == "DELETE":
            return Reply(204, headers={})
        numbers = [int(part.findtext("PartNumber", "")) for part in ElementTree.fromstring(request.body)]
        reply = self._put(bucket, key, b"".join(parts[number] for number in numbers))
        if reply.status != 200:
            return reply
        etag = escape(reply.headers["ETag"])
        return xml(f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>", reply.headers)

    def _refused(self, status: int, bucket: str) -> Reply:
        return self._not_found(bucket) if status == 404 else xml_error(status, REFUSALS.get(status, "InternalError"))

    def _not_found(self, bucket: str) -> Reply:
        is_there = self._ask("GET", f"/storage/v1/b/{quote(bucket)}").status == 200
        return xml_error(404, "NoSuchKey" if is_there else "NoSuchBucket")

    def _ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """Send one request, by a connection that is kept."""
        try:
            kept = self._idle.pop()
        except IndexError:  # each of the others has a request under way
            kept = http.client.HTTPConnection(self._backend, timeout=TIMEOUT_S)
        try:
            kept.request(method, path, body, {**(headers or {}), "Content-Length": str(len(body))})
            got = kept.getresponse()
            answer = Answer(got.status, dict(got.getheaders()), got.read())
        except BaseException:
            kept.close()
            raise
        self._idle.append(kept)
        return answer

    def close(self) -> None:
        """Close the connections. No request is under way."""
        while self._idle:
            self._idle.pop().close()


def row_of(item: Mapping[str, Any]) -> str:
    """An object of a listing."""
    return (
        f"<Contents><Key>{escape(item['name'])}</Key><Generation>{item['generation']}</Generation>"
        f"<LastModified>{item['updated']}</LastModified><ETag>{escape(etag_of(item))}</ETag>"
        f"<Size>{item['size']}</Size></Contents>"
    )


def etag_of(item: Mapping[str, Any]) -> str:
    """The ETag of the XML interface: the MD5 sum."""
    return f'"{base64.b64decode(item["md5Hash"]).hex()}"'


def xml(body: str, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(200, f"<?xml version='1.0'?>{body}".encode(), {**(headers or {}), "Content-Type": "application/xml"})
