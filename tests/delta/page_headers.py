"""Where the headers of a Parquet file's pages are, for tests that change bits of them."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pyarrow.parquet as pq

from sparklog.delta.thrift import read_struct

__all__ = ["PageHeader", "page_headers"]


@dataclass(frozen=True)
class PageHeader:
    """A header of a page, and where it is in its file."""

    path: str
    """Of its column."""
    start: int
    begin: int
    """Where the page begins that follows it."""
    encoding: int


def page_headers(data: bytes) -> list[PageHeader]:
    """Those of all pages of a file that is whole."""
    footer = pq.read_metadata(io.BytesIO(data))
    found = []
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            at = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
            end = at + column.total_compressed_size
            while at < end:
                header, begin = read_struct(data, at)
                encoding = header[7 if header[1] == 2 else 5][2]
                found.append(PageHeader(column.path_in_schema, at, begin, encoding))
                at = begin + header[3]
    return found
