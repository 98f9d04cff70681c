"""Kafka's messages as bytes: definitions, the codec made from them, and frames. Knows nothing of sparklog's rooms."""

from sparklog.gateway.wire.definitions import Message, message
from sparklog.gateway.wire.primitives import ElementLimits, TooManyElementsError, WireError

__all__ = ["ElementLimits", "Message", "TooManyElementsError", "WireError", "message"]
