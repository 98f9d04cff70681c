"""Marks: objects without content whose names say which entries of a log a cleanup may have deleted (rule L3, cleanup).
Pure.

A cleanup writes the mark ``below-<number>`` before it deletes the first entry; whoever was silent for longer than it
may trust what it knew lists the marks, and loses its position if it stands below one. So entries below a mark may be
deleted many at a time, in any order and in part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from sparklog.storage.base import ObjectInfo

__all__ = ["mark_name", "mark_of", "parse_mark", "superseded_marks"]

_MARK = re.compile(r"below-(\d{20})")


def mark_name(below: int) -> str:
    """The name of the mark which says that any entry below ``below`` may be gone."""
    return f"below-{below:020d}"


def parse_mark(name: str) -> int | None:
    """The number below which a mark says that entries may be gone; None for a file that is no mark."""
    found = _MARK.fullmatch(name)
    return int(found[1]) if found else None


def mark_of(found: ObjectInfo) -> int:
    """Parse the mark that a row of a listing is; 0 for an object that is no mark. See :func:`parse_mark`."""
    return parse_mark(found.path.rpartition("/")[2]) or 0


def superseded_marks(marks: Iterable[ObjectInfo], *, latest_ms: int) -> list[str]:
    """The paths of marks that aren't needed any more.

    A mark may be deleted once the next greater one is as old as the entries that go: so no listing, however long it
    takes, misses both.

    Args:
        latest_ms: what was modified later is young; milliseconds since the epoch, by the store.
    """
    known = sorted((found for found in marks if mark_of(found)), key=mark_of)
    return [found.path for found, following in pairwise(known) if following.modified_ms <= latest_ms]
