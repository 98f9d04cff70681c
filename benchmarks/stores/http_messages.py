"""HTTP/1.1 messages as the proxy needs them: where one ends, and what an S3 request asks for."""

from __future__ import annotations

import re

__all__ = ["OPERATIONS", "answer_needs", "message_needs", "operation_of"]

OPERATIONS = ("PUT", "GET", "LIST", "DELETE", "POST")

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:\s*chunked", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
_WITHOUT_BODY = (b" 204 ", b" 304 ")


def message_needs(data: bytes) -> int | None:
    """How many bytes the message has that ``data`` begins with; None while its head isn't there as a whole. Where it
    comes in chunks, of which not all are there: one more than there are. Trailers aren't known."""
    end = data.find(_HEAD_END)
    if end < 0:
        return None
    start = end + len(_HEAD_END)
    length = _LENGTH.search(data, 0, start)
    if length:
        return start + int(length[1])
    return _chunked_needs(data, start) if _CHUNKED.search(data, 0, start) else start


def answer_needs(data: bytes, *, is_head: bool) -> int | None:
    """The same for the answer that ``data`` begins with.

    Args:
        is_head: it answers a HEAD: its length is another answer's.
    """
    end = data.find(_HEAD_END)
    if end >= 0 and (is_head or data[8:13] in _WITHOUT_BODY):
        return end + len(_HEAD_END)
    return message_needs(data)


def operation_of(request: bytes) -> str:
    """Which of :data:`OPERATIONS` an S3 request is, as it is billed: a HEAD is a GET, a deletion of many a DELETE."""
    method, target, _ = request.split(b"\r\n", 1)[0].split(b" ")
    query = target.partition(b"?")[2]
    if method == b"GET" and b"list-type=" in query:
        return "LIST"
    if method == b"POST" and query.split(b"&")[0] in (b"delete", b"delete="):
        return "DELETE"
    return "GET" if method == b"HEAD" else method.decode()


def _chunked_needs(data: bytes, start: int) -> int:
    while (end := data.find(b"\r\n", start)) >= 0:
        size = int(data[start:end].split(b";")[0], 16)
        start = end + 2 + size + 2
        if size == 0 and len(data) >= start:
            return start
        if len(data) < start:
            break
    return len(data) + 1
