"""Decoding requests and encoding answers: small ones in the event loop, and large ones in a thread, as other clients
would wait meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparklog.gateway.authorizer import refusal
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.element_limits import IN_THE_LOOP, is_large, limits_of
from sparklog.gateway.error_counts import errors_in
from sparklog.gateway.wire import ElementLimits, Message, TooManyElementsError
from sparklog.gateway.wire.frames import Frame, RequestFrame, read_request_header, response_frame

if TYPE_CHECKING:
    from sparklog.gateway.apis import Api
    from sparklog.gateway.client_log import ClientLog

__all__ = ["decoded", "encoded", "note_refused", "refused_by"]


async def decoded(backend: Backend, api: Api, version: int, frame: memoryview) -> tuple[RequestFrame, dict[str, Any]]:
    """The header and the body of a request.

    Raises ``WireError``: it isn't one; ``TooManyElementsError``: it has more than its API may have.
    """

    def decode(limits: ElementLimits) -> tuple[RequestFrame, dict[str, Any]]:
        header = read_request_header(frame, api.request)
        # librdkafka ends its Metadata requests with bytes too many, which Kafka's brokers pass over.
        return header, api.request.decode(header.body, version, is_exact=False, limits=limits)

    limits = limits_of(api.name)
    try:
        if limits.of_message <= IN_THE_LOOP.of_message:
            return decode(limits)
        try:
            return decode(IN_THE_LOOP)
        except TooManyElementsError:
            pass
        return await backend.run_codec(lambda: decode(limits))
    except TooManyElementsError as error:
        raise TooManyElementsError(f"{api.name} of version {version}: {error}") from None


async def refused_by(backend: Backend, api: str, request: Request) -> dict[str, Any] | None:
    """The answer to a request that its user may not send; None: it is to be carried out. Raises
    ``NotAllowedError``."""
    if request.rules is None or not is_large(request.body):
        return refusal(api, request.rules, request)
    return await backend.run_codec(lambda: refusal(api, request.rules, request))


async def encoded(
    backend: Backend, response: Message, version: int, correlation_id: int, value: dict[str, Any]
) -> tuple[Mapping[int, int], Frame]:
    """How often each error code is in an answer, and its bytes. Raises ``WireError``: a field can't hold its value."""

    def encode() -> tuple[Mapping[int, int], Frame]:
        codes = errors_in(response, value)
        return Counter(codes) if codes else {}, response_frame(response, version, correlation_id, value)

    return await backend.run_codec(encode) if is_large(value) else encode()


async def note_refused(
    backend: Backend, log: ClientLog, api: str, answer: dict[str, Any], asked: Mapping[str, Any], count: int
) -> None:
    """Have a client's log note what an answer refuses: of ten thousand parts, perhaps the last. A client has one answer
    at a time."""

    def note() -> None:
        log.refused(api, answer, asked, count)

    if is_large(answer):
        await backend.run_codec(note)
    else:
        note()
