"""The seal of a Parquet file: checksums of all its bytes, in the metadata of its footer.

The key is ``sparklog.crc32``. The value has 28 hexadecimal digits: the size of the file (12); the CRC-32 of all bytes
before the footer (8); and that of all bytes from the footer on, up to the end of the file, with its own digits as zeros
(8). So who reads a file whole compares all of it, and who reads some of it compares the footer before it uses a number
of it; the checksums of pages, which Parquet itself has, protect the rest.

Files without a seal are those of other engines, and of versions of sparklog that wrote none. An engine that copies the
metadata of a file that it reads into one that it writes copies the seal, too: then the size is another, and the file
has none of its own.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparklog._native import CORE
from sparklog.checksums import crc32
from sparklog.delta.parquet_pages import MAGIC, PAGE_SUM_BYTES, page_sum

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = [
    "EMPTY_SEAL",
    "SEAL_KEY",
    "WRITER_OPTIONS",
    "close_sealed",
    "has_seal",
    "is_sealed",
    "seal_pages",
    "sealed_footer",
    "wrong_sum",
]

SEAL_KEY = b"sparklog.crc32"
_SIZE_DIGITS, _DIGITS = 12, 8
EMPTY_SEAL = b"0" * (_SIZE_DIGITS + 2 * _DIGITS)
"""The value as it is before the checksums are known."""
WRITER_OPTIONS = {"write_page_checksum": True}
"""With what Arrow's writers write files that get a seal."""
_MARK = b"\x18" + bytes([len(SEAL_KEY)]) + SEAL_KEY + b"\x18" + bytes([len(EMPTY_SEAL)])
"""The bytes before the digits in a footer: two fields of a struct, by Thrift's compact protocol."""
_ZEROS = b"0" * _DIGITS
_END_BYTES = 4 + len(MAGIC)


def sealed_footer(footer: bytes, size_before: int, sum_before: int) -> bytes:
    """The end of a file, from the footer on, with its seal.

    Args:
        footer: with :data:`EMPTY_SEAL` in its metadata.
        size_before, sum_before: the number of bytes before it, and their checksum.
    """
    at = footer.rindex(_MARK) + len(_MARK)
    head = b"%b%012x%08x" % (footer[:at], size_before + len(footer), sum_before)
    rest = footer[at + len(EMPTY_SEAL) :]
    own = crc32(rest, crc32(_ZEROS, crc32(head)))
    return b"%b%08x%b" % (head, own, rest)


def seal_pages(data: bytes, pages: tuple[int, ...], footer_at: int) -> bytes:
    """A file with the checksums of its pages, and its seal.

    Args:
        data: with room for the checksums, and :data:`EMPTY_SEAL` in its metadata.
        pages: of each page where its checksum is, where it begins and where it ends, one after the other.
        footer_at: where the footer begins.
    """
    if CORE is not None:
        return CORE.seal_pages(data, pages, footer_at)  # type: ignore[no-any-return]
    file = bytearray(data)
    for at, start, stop in zip(pages[::3], pages[1::3], pages[2::3], strict=True):
        file[at : at + PAGE_SUM_BYTES] = page_sum(crc32(data[start:stop]))
    before = bytes(file[:footer_at])
    return before + sealed_footer(data[footer_at:], footer_at, crc32(before))


def close_sealed(writer: pq.ParquetWriter, sink: io.BytesIO) -> bytes:
    """Close a writer of Arrow's, whose sink it is, and seal the file. Nothing of it is copied."""
    writer.add_key_value_metadata({SEAL_KEY: EMPTY_SEAL})
    writer.close()
    with sink.getbuffer() as data:
        at = _footer_at(data)
        data[at:] = sealed_footer(bytes(data[at:]), at, crc32(data[:at]))
    return sink.getvalue()


def is_sealed(data: Any) -> bool | None:
    """Are the bytes of a whole file as they were when it was sealed? None: it has no seal, or no footer.

    Args:
        data: bytes, or a buffer of them.
    """
    if CORE is not None:
        return CORE.is_sealed(data)  # type: ignore[no-any-return]
    file = memoryview(data).cast("B")
    at = _footer_at(file)
    seal = None if at < 0 else _seal_at(footer := bytes(file[at:]), len(file))
    if seal is None:
        return None
    return wrong_sum(footer, len(file)) is None and footer[seal:].startswith(b"%08x" % crc32(file[:at]))


def has_seal(metadata: Mapping[bytes, bytes] | None, size: int) -> bool:
    """Has a file of this size, whose footer has these metadata, a seal of its own?"""
    return metadata is not None and metadata.get(SEAL_KEY, b"").startswith(b"%012x" % size)


def wrong_sum(footer: bytes, size: int) -> str | None:
    """The fault of the checksum of a file's end, from its footer on; None: it has none, or there is no checksum.

    Args:
        size: of the file.
    """
    at = _seal_at(footer, size)
    if at is None:
        return None
    at += _DIGITS
    found = b"%08x" % crc32(footer[at + _DIGITS :], crc32(_ZEROS, crc32(footer[:at])))
    stated = footer[at : at + _DIGITS]
    if stated == found:
        return None
    return f"the checksum of its footer is {found.decode()}, and the footer states {stated!r}"


def _seal_at(footer: bytes, size: int) -> int | None:
    """Where the checksums begin in the end of a file of this size; None: it has no seal, or that of another file."""
    at = footer.rfind(_MARK) + len(_MARK)
    return at + _SIZE_DIGITS if at >= len(_MARK) and footer.startswith(b"%012x" % size, at) else None


def _footer_at(data: Any) -> int:
    """Where the footer of a file begins; -1: it has none."""
    if len(data) <= len(MAGIC) + _END_BYTES or bytes(data[-len(MAGIC) :]) != MAGIC:
        return -1
    at = len(data) - _END_BYTES - int.from_bytes(data[-_END_BYTES : -len(MAGIC)], "little")
    return at if at >= len(MAGIC) else -1
