"""How many elements a request may have: of each array, and of all its arrays together. Pure.

A request of 8 MiB can announce eight million elements. Each takes a hundred times its bytes once it is decoded, and a
piece of work, before anybody has asked for the client's rights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparklog.gateway.wire import ElementLimits

__all__ = ["DEFAULT", "IN_THE_LOOP", "OTHERS", "is_large", "limits_of"]

DEFAULT = ElementLimits(of_array=10_000, of_message=20_000)
"""Ten thousand topics, of each a partition. A broker's controller takes 10,000 changes in a request (source: Kafka
``QuorumController.MAX_RECORDS_PER_USER_OP``)."""
_NONE = ElementLimits(of_array=16, of_message=16)
"""The limits of messages without arrays, which anybody may send: tagged fields of newer clients."""
OTHERS: Mapping[str, ElementLimits] = {
    "ApiVersions": _NONE,
    "SaslHandshake": _NONE,
    "SaslAuthenticate": _NONE,
    # A consumer that exchanges its ten thousand topics names those that come and those that go.
    "Fetch": ElementLimits(of_array=10_000, of_message=40_000),
}
"""By the name of the API; ``docs/gateway.md`` has them, with what they cost."""
IN_THE_LOOP = ElementLimits(of_array=1_000, of_message=1_000)
"""A request that has more is decoded, and its answer encoded, in a thread: a thousand take some milliseconds."""


def limits_of(api: str) -> ElementLimits:
    """The limits of an API's requests, by its name."""
    return OTHERS.get(api, DEFAULT)


def is_large(value: object) -> bool:
    """Has a message, as a value of its codec, more elements than are decoded and encoded in the event loop?"""
    unseen: list[object] = [value]
    left = IN_THE_LOOP.of_message
    while unseen:
        one = unseen.pop()
        if isinstance(one, Mapping):
            unseen.extend(part for part in one.values() if _is_composed(part))
        elif isinstance(one, Sequence):
            left -= len(one)
            if left < 0:
                return True
            unseen.extend(part for part in one if isinstance(part, Mapping))
    return False


def _is_composed(value: object) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)
