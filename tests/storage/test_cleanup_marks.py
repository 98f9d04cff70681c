"""Rule L3: the names by which a cleanup says what may be gone, and when one isn't needed any more."""

from __future__ import annotations

from sparklog.storage import ObjectInfo
from sparklog.storage.cleanup_marks import mark_name, mark_of, parse_mark, superseded_marks


def listed(name: str, modified_ms: int = 0) -> ObjectInfo:
    return ObjectInfo(path=f"log/{name}", size_bytes=0, modified_ms=modified_ms, etag="")


def test_a_mark_tells_its_number_and_sorts_by_it() -> None:
    assert [parse_mark(mark_name(below)) for below in (0, 7, 10**19)] == [0, 7, 10**19]
    assert mark_name(9) < mark_name(10)
    assert mark_of(listed(mark_name(7))) == 7


def test_another_name_is_no_mark() -> None:
    for name in ("", "below-7", "00000000000000000007.json", mark_name(7) + ".tmp"):
        assert parse_mark(name) is None
        assert mark_of(listed(name)) == 0


def test_a_mark_goes_once_a_greater_one_is_old() -> None:
    # Else a listing that takes its time could miss both: the one that has gone, and the one that came meanwhile.
    marks = [listed(mark_name(30), 950), listed(mark_name(10), 0), listed("notes"), listed(mark_name(20), 900)]
    assert superseded_marks(marks, latest_ms=899) == []
    assert superseded_marks(marks, latest_ms=900) == [f"log/{mark_name(10)}"]
    assert superseded_marks(marks, latest_ms=950) == [f"log/{mark_name(below)}" for below in (10, 20)]
    assert superseded_marks(marks[:1], latest_ms=10**9) == []
