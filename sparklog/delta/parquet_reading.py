"""Opening Parquet files by Arrow: what a file's seal says is compared first, and its footer's numbers with each other.

A damaged number in a footer could make Arrow return other records, or ask for any amount of memory.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from sparklog.arrow import pa, pq
from sparklog.delta.parquet_checks import CheckedPages
from sparklog.delta.parquet_pages import MAGIC
from sparklog.delta.parquet_seals import has_seal, is_sealed, wrong_sum

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData, ParquetFile

__all__ = ["by_ranges", "footer_of", "open_parquet", "read_footer"]

_TAIL_BYTES = 65_536
"""So much is read of the end of a file, as Arrow does: most footers are smaller."""
_END_BYTES = 4 + len(MAGIC)


def open_parquet(
    source: Any, *, rows: int | None = None, metadata: FileMetaData | None = None, **options: Any
) -> ParquetFile:
    """A Parquet file, whoever wrote it. INT96, in which Spark writes times by default, would end in the year 2262 if it
    were read as nanoseconds.

    Of bytes in memory all are compared with the file's seal; of another source the footer is, and each column chunk
    that is read, with its pages' headers: see :func:`by_ranges`.

    Args:
        source: bytes, a buffer of bytes, or a file of Arrow's or of Python's.
        rows: the number of them, if a log states it.
        metadata: the footer, if it was read by :func:`read_footer`.
        options: Arrow's. A sealed file of which parts are read has no buffers of ``buffer_size``: its chunks are whole.
    Raises:
        pa.ArrowException, OSError, ValueError: it isn't a whole Parquet file, or has changed since it was sealed.
    """
    is_whole = None
    is_in_memory = not isinstance(source, pa.NativeFile | io.RawIOBase)
    own = source
    if is_in_memory:
        is_whole = is_sealed(source)
        if is_whole is False:
            raise pa.ArrowInvalid(
                "it has changed since it was written: its bytes don't have the checksums that it states"
            )
        source = pa.BufferReader(source)
    elif not isinstance(source, pa.NativeFile):
        source = pa.PythonFile(source, mode="r")
    if metadata is None:
        metadata = read_footer(source)
    if rows is not None and rows != metadata.num_rows:
        raise pa.ArrowInvalid(f"it has {metadata.num_rows} rows, and the log states {rows}")
    is_checked = not is_in_memory and has_seal(metadata.metadata, source.size())
    if is_checked:
        source = pa.PythonFile(CheckedPages(own, metadata), mode="r")
        options["buffer_size"] = 0
    return pq.ParquetFile(
        source,
        metadata=metadata,
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=is_whole is None and not is_checked,
        **options,
    )


def by_ranges(source: pa.NativeFile, footer: FileMetaData) -> pa.NativeFile:
    """A file of which parts are read. If it is sealed, each column chunk is compared with the footer and with the
    checksums of its pages before a byte of it is handed out; else it is the same file, and its pages' checksums, if
    there are any, are to be compared by who reads it.

    Args:
        footer: as :func:`read_footer` has returned it.
    """
    if not has_seal(footer.metadata, source.size()):
        return source
    return pa.PythonFile(CheckedPages(source, footer), mode="r")


def read_footer(source: Any) -> FileMetaData:
    """The footer of a file of Arrow's, compared with its seal, if it has one. Raises as :func:`open_parquet`."""
    size = source.size()
    tail = source.read_at(min(size, _TAIL_BYTES), size - min(size, _TAIL_BYTES))
    wanted = int.from_bytes(tail[-_END_BYTES : -len(MAGIC)], "little") + _END_BYTES
    if tail[-len(MAGIC) :] != MAGIC or not _END_BYTES < wanted <= size - len(MAGIC):
        raise pa.ArrowInvalid(f"no Parquet file, or a part of one: {size} bytes, which end in {tail[-_END_BYTES:]!r}")
    footer = tail[-wanted:] if wanted <= len(tail) else source.read_at(wanted, size - wanted)
    return footer_of(footer, size)


def footer_of(end: bytes, size: int) -> FileMetaData:
    """The footer of a file of this size, by its last bytes, from the footer on. Raises as :func:`open_parquet`."""
    wrong = wrong_sum(end, size)
    if wrong is not None:
        raise pa.ArrowInvalid(wrong)
    found = pq.read_metadata(pa.BufferReader(MAGIC + end))
    _check_rows(found)
    return found


def _check_rows(footer: FileMetaData) -> None:
    """Raise unless the footer states the same number of rows wherever it states one: Arrow makes room for as many."""
    rows = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        rows += group.num_rows
        if group.num_rows < 0 or not group.num_columns:
            raise pa.ArrowInvalid(f"row group {number} has {group.num_rows} rows and {group.num_columns} columns")
        first = group.column(0)
        if footer.schema.column(0).max_repetition_level == 0 and first.num_values != group.num_rows:
            raise pa.ArrowInvalid(f"row group {number} has {group.num_rows} rows and {first.num_values} values")
    if rows != footer.num_rows:
        raise pa.ArrowInvalid(f"its row groups have {rows} rows, and the footer states {footer.num_rows}")
