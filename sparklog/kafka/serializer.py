"""kafka-python's serializers. Plain functions of the data are accepted wherever one of these is."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

from sparklog.errors import InvalidTypeError
from sparklog.model import Headers

__all__ = ["DefaultSerializer", "Deserializer", "JsonSerializer", "Serializer"]


class Serializer(ABC):
    """Makes bytes of keys or values."""

    @abstractmethod
    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """Bytes, or None for a null."""

    def close(self) -> None:
        """Called when the producer is closed."""


class Deserializer(ABC):
    """Makes keys or values of bytes."""

    @abstractmethod
    def deserialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """Turns bytes into the value that they stand for. It isn't called for a null, which stays None."""

    def close(self) -> None:
        """Called when the consumer is closed."""


class DefaultSerializer(Serializer, Deserializer):
    """Text; what is bytes already is sent as it is."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        if data is None or isinstance(data, bytes | bytearray | memoryview):
            return data
        if not isinstance(data, str):
            raise InvalidTypeError(f"DefaultSerializer: got {type(data).__name__}, expected text, bytes or None")
        return data.encode(self.encoding)

    def deserialize(self, topic: str, headers: Headers, data: Any) -> Any:
        return None if data is None else data.decode(self.encoding)

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""


class JsonSerializer(DefaultSerializer):
    """Serializes whatever JSON can express; None is a null, not JSON's ``null``."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        return None if data is None else super().serialize(topic, headers, json.dumps(data))

    def deserialize(self, topic: str, headers: Headers, data: Any) -> Any:
        return None if data is None else json.loads(super().deserialize(topic, headers, data))
