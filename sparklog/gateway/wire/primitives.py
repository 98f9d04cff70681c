"""Kafka's primitive types: how each is read from bytes and written to them. Source: kafka.apache.org, "Protocol
Primitive Types"."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = [
    "FIXED",
    "ElementLimits",
    "Frame",
    "Input",
    "Read",
    "TooManyElementsError",
    "WireError",
    "Write",
    "read_unsigned",
    "text",
    "write_unsigned",
]


class WireError(ValueError):
    """Bytes that aren't the message they should be, or a value that its type can't hold."""


class TooManyElementsError(WireError):
    """An array, or a message, of more elements than it may have."""


@dataclass(frozen=True, slots=True)
class ElementLimits:
    """How many elements a message may have. Tagged fields that its definition doesn't know are elements, too."""

    of_array: int
    """Bound of each array."""
    of_message: int
    """Bound of all arrays together."""


class Input:
    """Bytes that are being read, and how far."""

    __slots__ = ("_limits", "_outer", "at", "data", "element_count", "end")

    def __init__(
        self, data: bytes | bytearray | memoryview, limits: ElementLimits | None = None, outer: Input | None = None
    ) -> None:
        """
        Args:
            limits: of elements; None: there are none.
            outer: the input that these bytes are a part of, whose elements count with theirs.
        """
        self.data = memoryview(data)
        self.at = 0
        self.end = len(self.data)
        self.element_count = 0
        """Elements that were announced so far."""
        self._limits = limits
        self._outer = outer

    def announce(self, count: int) -> None:
        """Note that so many elements follow, before memory is taken for them. Raises ``TooManyElementsError``."""
        self.element_count += count
        if self._outer is not None:
            self._outer.announce(count)
        limits = self._limits
        if limits is None:
            return
        if count > limits.of_array:
            raise TooManyElementsError(f"{count} elements at byte {self.at}: expected at most {limits.of_array}")
        if self.element_count > limits.of_message:
            raise TooManyElementsError(
                f"{self.element_count} elements up to byte {self.at}: expected at most {limits.of_message} in a message"
            )

    def part(self, size: int) -> Input:
        """The next bytes as an input of their own, whose elements count as those of this one."""
        return Input(self.take(size), outer=self)

    @property
    def left(self) -> int:
        """Bytes that aren't read yet."""
        return self.end - self.at

    def take(self, size: int) -> memoryview:
        """The next bytes, not copied. Raises ``WireError`` where there are fewer."""
        begin = self.at
        if size < 0 or size > self.end - begin:
            raise WireError(f"{size} bytes at byte {begin}: the message ends after {self.end - begin} more")
        self.at = begin + size
        return self.data[begin : begin + size]


class Frame(bytearray):
    """Bytes that are being written, and between them large pieces, which aren't copied."""

    def __init__(self, size: int = 0) -> None:
        """``size``: zero bytes to begin with."""
        super().__init__(size)
        self._pieces: list[tuple[int, bytes | bytearray | memoryview]] = []
        """Each with the number of own bytes before it."""

    def add_piece(self, piece: bytes | bytearray | memoryview) -> None:
        """Write a piece, which must not change until the frame is sent."""
        if len(piece) < _LARGE_BYTES:
            self += piece
        else:
            self._pieces.append((len(self), piece))

    @property
    def size_bytes(self) -> int:
        """The size of all that was written."""
        return len(self) + sum(len(piece) for _, piece in self._pieces)

    def parts(self) -> Iterator[bytes | bytearray | memoryview]:
        """The parts of all that was written, in their order; none is empty."""
        own, before = memoryview(self), 0
        for at, piece in self._pieces:
            if at > before:
                yield own[before:at]
            yield memoryview(piece)
            before = at
        if before < len(own):
            yield own[before:]


_LARGE_BYTES = 16_384
"""To copy fewer bytes costs less than to write them on their own."""

Read = Callable[[Input], Any]
Write = Callable[[bytearray, Any], None]


@dataclass(frozen=True, slots=True)
class Codec:
    """How a type is read and written, and the fewest bytes that a value of it takes."""

    read: Read
    write: Write
    least_bytes: int


def _fixed(code: str) -> Codec:
    packer = struct.Struct(code)
    size, unpack, pack = packer.size, packer.unpack_from, packer.pack

    def read(data: Input) -> Any:
        at = data.at
        if size > data.end - at:
            raise WireError(f"{size} bytes at byte {at}: the message ends after {data.end - at} more")
        data.at = at + size
        return unpack(data.data, at)[0]

    def write(out: bytearray, value: Any) -> None:
        try:
            out += pack(value)
        except struct.error as error:
            raise WireError(f"{value!r}: {error}") from error

    return Codec(read, write, size)


def _read_uuid(data: Input) -> uuid.UUID:
    return uuid.UUID(bytes=bytes(data.take(16)))


def _write_uuid(out: bytearray, value: uuid.UUID) -> None:
    out += value.bytes


FIXED = {
    "bool": _fixed(">?"),
    "int8": _fixed(">b"),
    "int16": _fixed(">h"),
    "uint16": _fixed(">H"),
    "int32": _fixed(">i"),
    "uint32": _fixed(">I"),
    "int64": _fixed(">q"),
    "float64": _fixed(">d"),
    "uuid": Codec(_read_uuid, _write_uuid, 16),
}
"""Types of a fixed size, by name."""


def read_unsigned(data: Input) -> int:
    """An unsigned varint of 32 bits. Source: Kafka ``ByteUtils.readUnsignedVarint``."""
    value = shift = 0
    while True:
        if data.at >= data.end:
            raise WireError(f"a varint at byte {data.at}: the message ends within it")
        byte = data.data[data.at]
        data.at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise WireError(f"a varint before byte {data.at} takes more than 32 bits")
    if value >= 2**32:
        raise WireError(f"a varint before byte {data.at} takes more than 32 bits")
    return value


def write_unsigned(out: bytearray, value: int) -> None:
    """Write an unsigned varint of 32 bits."""
    if not 0 <= value < 2**32:
        raise WireError(f"{value} as an unsigned varint: expected 0 to 2**32 - 1")
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def text(data: memoryview) -> str:
    """A string of the wire. Raises ``WireError`` where it isn't UTF-8."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise WireError(f"a string that isn't UTF-8: {error}") from error
