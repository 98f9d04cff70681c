"""Numbers as Kafka's record batches hold them: zigzag, seven bits a byte, the lowest first (varint and varlong)."""

from __future__ import annotations

from collections.abc import Sequence

from sparklog._native import CORE

__all__ = ["decode_varints", "decode_varints_pure", "encode_varints", "encode_varints_pure"]

_MASK = 2**64 - 1


def encode_varints_pure(numbers: Sequence[int]) -> bytes:
    """Does the same as :func:`encode_varints`, in pure Python."""
    out = bytearray()
    for number in numbers:
        if not -(2**63) <= number < 2**63:
            raise OverflowError(f"{number} takes more than 64 bits")
        left = (number << 1 ^ number >> 63) & _MASK
        while left > 127:
            out.append(left & 127 | 128)
            left >>= 7
        out.append(left)
    return bytes(out)


def decode_varints_pure(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """Does the same as :func:`decode_varints`, in pure Python."""
    if at < 0 or count < 0:
        raise ValueError(f"varints: {count} from byte {at} on")
    found = []
    for _ in range(count):
        begin, value, shift = at, 0, 0
        while True:
            if at >= len(data):
                raise ValueError(f"varint at byte {begin}: {len(data)} bytes end within it")
            byte = data[at]
            if shift == 63 and byte > 1:
                raise ValueError(f"varint at byte {begin}: it takes more than 64 bits")
            value |= (byte & 127) << shift
            at += 1
            if byte < 128:
                break
            shift += 7
        found.append(value >> 1 ^ -(value & 1))
    return found, at


def encode_varints(numbers: Sequence[int]) -> bytes:
    """Numbers of -2**63 to 2**63 - 1, one after the other, 1 to 10 bytes each.

    Source: Kafka ``ByteUtils.writeVarlong``; ``writeVarint`` writes the same bytes for 32 bits.

    Raises ``OverflowError``: a number of more than 64 bits.
    """
    return encode_varints_pure(numbers) if CORE is None else bytes(CORE.encode_varints(numbers))


def decode_varints(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """``count`` numbers that :func:`encode_varints` wrote, from byte ``at`` on; and the byte behind them.

    Raises ``ValueError``: they don't end within the data, or one takes more than 64 bits.
    """
    if CORE is None:
        return decode_varints_pure(data, at, count)
    found: tuple[list[int], int] = CORE.decode_varints(data, at, count)
    return found
