"""Frames: a length, a header, a message. Source: kafka.apache.org, "Common Request and Response Structure"."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from sparklog.gateway.wire.definitions import Message, message
from sparklog.gateway.wire.primitives import ElementLimits, Frame, Input, WireError

__all__ = ["API_VERSIONS_KEY", "Frame", "RequestFrame", "read_request_header", "response_frame", "unversioned_header"]

API_VERSIONS_KEY = 18
_START = struct.Struct(">hhi")
_HEADER_LIMITS = ElementLimits(16, 16)
"""A header has no arrays, and no tagged fields so far."""


@dataclass(frozen=True, slots=True)
class RequestFrame:
    """A request whose header is read."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: memoryview


def unversioned_header(data: memoryview) -> tuple[int, int, int]:
    """Key, version and correlation id of a request: what every header begins with. Raises ``WireError``."""
    try:
        key, version, correlation_id = _START.unpack_from(data)
    except struct.error as error:
        raise WireError(f"a request of {len(data)} bytes: expected {_START.size} or more") from error
    return key, version, correlation_id


def read_request_header(data: memoryview, request: Message) -> RequestFrame:
    """The header of a request of a version that is known; the body is what follows.

    Raises ``WireError``: it isn't one.
    """
    _, version, _ = unversioned_header(data)
    source = Input(data, _HEADER_LIMITS)
    header = message("RequestHeader").codec(2 if version in request.flexible else 1).read(source)
    return RequestFrame(
        header["request_api_key"],
        header["request_api_version"],
        header["correlation_id"],
        header["client_id"],
        data[source.at :],
    )


def response_frame(response: Message, version: int, correlation_id: int, value: dict[str, Any]) -> Frame:
    """A response with its header and length. Raises ``WireError``: a value that a field can't hold."""
    # A client that doesn't know the versions yet must be able to read this one. Source: KIP-511.
    is_flexible = version in response.flexible and response.api_key != API_VERSIONS_KEY
    out = Frame(4)
    message("ResponseHeader").codec(1 if is_flexible else 0).write(out, {"correlation_id": correlation_id})
    response.codec(version).write(out, value)
    size = out.size_bytes - 4
    if size >= 2**31:
        raise WireError(f"a response of {size} bytes")
    out[:4] = size.to_bytes(4, "big")
    return out
