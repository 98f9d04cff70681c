"""L12: opening lists the log from ``_last_checkpoint`` on; what that file says is only a hint."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from sparklog.delta.listing import Listing, list_log, read_hint, still_there
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import checkpoint_path, entry_path, last_checkpoint_path, log_folder
from sparklog.errors import CorruptLogError
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore
from tests.support import a_log


def a_folder(
    entries: Sequence[int], checkpoints: Sequence[int | str] = (), *, hint: bytes | int | None = None
) -> DeltaLog:
    """A log folder with empty files of these names; checkpoints by version, or by the middle of their name."""
    log = a_log()
    for version in entries:
        log.store.put(entry_path(log.table, version), b"entry")
    for checkpoint in checkpoints:
        if isinstance(checkpoint, int):
            log.store.put(checkpoint_path(log.table, checkpoint), b"checkpoint")
        else:
            log.store.put(f"{log_folder(log.table)}{checkpoint}.parquet", b"part")
    if hint is not None:
        body = hint if isinstance(hint, bytes) else json.dumps({"version": hint, "size": 1}).encode()
        log.store.put(last_checkpoint_path(log.table), body)
    return log


def part(version: int, number: int, of: int) -> str:
    return f"{version:020d}.checkpoint.{number:010d}.{of:010d}"


def listed(log: DeltaLog) -> Listing:
    listing = list_log(log)
    assert listing is not None
    return listing


def versions(listing: Listing) -> list[int]:
    return [version for version, _ in listing.entries]


def test_a_folder_without_a_log_is_none() -> None:
    assert list_log(a_log()) is None
    log = a_log()
    log.store.put(f"{log.table}/partition=0/x.parquet", b"")
    assert list_log(log) is None


def test_a_log_without_a_checkpoint_lists_every_entry() -> None:
    listing = listed(a_folder(range(4)))
    assert (listing.checkpoint_version, listing.checkpoint_parts) == (-1, ())
    assert versions(listing) == [0, 1, 2, 3]
    assert listing.newest_version == 3


def test_the_highest_checkpoint_is_taken_and_the_entries_from_its_own_on() -> None:
    listing = listed(a_folder(range(10), [3, 6]))
    assert listing.checkpoint_version == 6
    assert versions(listing) == [6, 7, 8, 9]


def test_a_checkpoint_whose_own_entry_was_cleaned_is_enough() -> None:
    assert versions(listed(a_folder([7, 8], [6]))) == [7, 8]


def test_what_isnt_an_entry_or_a_checkpoint_is_passed_over() -> None:
    log = a_folder(range(2), ["00000000000000000001.00000000000000000009.compacted"])
    for name in ("00000000000000000001.crc", "_commits/x.json", "00000000000000000009.json.tmp", "z"):
        log.store.put(log_folder(log.table) + name, b"")
    listing = listed(log)
    assert (listing.checkpoint_version, versions(listing)) == (-1, [0, 1])


def test_a_checkpoint_of_several_parts_counts_when_all_of_them_are_there() -> None:
    listing = listed(a_folder(range(9), [3, part(6, 2, 2), part(6, 1, 2)]))
    assert listing.checkpoint_version == 6
    assert [found.path[-20:] for found in listing.checkpoint_parts] == ["1.0000000002.parquet", "2.0000000002.parquet"]


def test_an_incomplete_checkpoint_is_passed_over() -> None:
    listing = listed(a_folder(range(9), [3, part(6, 1, 3), part(6, 3, 3), part(8, 1, 2)]))
    assert listing.checkpoint_version == 3
    assert len(listing.checkpoint_parts) == 1
    assert versions(listing) == [3, 4, 5, 6, 7, 8]


def test_parts_of_different_checkpoints_of_one_version_dont_complete_each_other() -> None:
    assert listed(a_folder(range(9), [part(6, 1, 2), part(6, 2, 3), part(6, 3, 3)])).checkpoint_version == -1


def test_opening_costs_a_get_and_a_list() -> None:
    for log in (a_folder(range(9), [3], hint=3), a_folder(range(9), [3])):
        store = CountingStore(log.store)
        list_log(DeltaLog(store=store, table=log.table, clock=log.clock))
        assert store.counts() == {"get": 1, "list": 1}


def test_nothing_below_the_hint_is_listed() -> None:
    class Recording(MemoryStore):
        after = ""

        def list(self, prefix, *, after=""):
            self.after = after
            return super().list(prefix, after=after)

    log, recording = a_folder(range(9), [3], hint=3), Recording()
    for found in log.store.list(""):
        recording.put(found.path, log.store.read(found.path))
    list_log(a_log(recording))
    assert entry_path(log.table, 2) < recording.after < checkpoint_path(log.table, 3)


@pytest.mark.parametrize(
    "hint",
    [
        None,
        3,
        -1,
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"size": 3}',
        b'{"version": null}',
        b'{"version": "x"}',
        b'{"version": 1e999}',
    ],
)
def test_a_hint_that_is_missing_stale_or_torn_doesnt_hide_a_newer_checkpoint(hint: bytes | int | None) -> None:
    listing = listed(a_folder(range(9), [3, 6], hint=hint))
    assert (listing.checkpoint_version, versions(listing)) == (6, [6, 7, 8])


@pytest.mark.parametrize("hint", [7, 8, 9, 10**6, 10**30])
def test_a_hint_of_a_checkpoint_that_isnt_there_doesnt_hide_the_one_that_is(hint: int) -> None:
    # After a power loss the hint may be on the disk and the checkpoint not.
    listing = listed(a_folder(range(9), [6], hint=hint))
    assert (listing.checkpoint_version, versions(listing)) == (6, [6, 7, 8])


def test_a_hint_or_a_checkpoint_without_any_entry_is_corrupt() -> None:
    with pytest.raises(CorruptLogError, match=r"topics/t.*_last_checkpoint names version 3"):
        list_log(a_folder([], hint=3))
    with pytest.raises(CorruptLogError, match=r"topics/t.*version 6"):
        list_log(a_folder([2, 3], [6]))


def test_a_gap_is_the_first_version_behind_the_checkpoint_that_is_missing() -> None:
    assert listed(a_folder(range(9), [3])).first_gap() is None
    assert listed(a_folder([4, 5], [3])).first_gap() is None
    assert listed(a_folder([3, 4, 6, 8], [3])).first_gap() == 5
    assert listed(a_folder([3, 5], [3])).first_gap() == 4
    assert listed(a_folder([1, 2])).first_gap() == 0


def test_the_hint_is_the_version_it_names() -> None:
    assert read_hint(a_folder([], hint=12)) == 12
    assert read_hint(a_folder([])) == -1


def test_a_listed_object_is_still_there_until_it_is_deleted_or_written_again() -> None:
    log = a_folder(range(3), [1])
    (version, found), *_ = listed(log).entries
    assert still_there(log, version, found)
    log.store.put(found.path, b"entry")
    assert not still_there(log, version, found)
    (version, found), *_ = listed(log).entries
    log.store.delete([found.path])
    assert not still_there(log, version, found)
