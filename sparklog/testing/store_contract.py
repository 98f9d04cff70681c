"""The contract that every store has to keep, as tests for pytest: subclass :class:`StoreContract`, give it a ``store``
fixture.

::

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self):
            return MyStore()
"""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.errors import InvalidArgumentError, ObjectNotFoundError
from sparklog.storage.base import CreateResult, ObjectStore

__all__ = ["StoreContract"]

_RACERS = 16
_ODD_NAMES = [
    "with space",
    "per%20cent%",
    "plus+and&equals=?versionId=1#hash",
    "späße/日本語/🦆",
    "~!@$()[]{};,'\"",
    ".hidden",
    "..dots..",
    ".a.tmp",
    "topics/t/_delta_log/00000000000000000000.json",
    "n" * 200,
]
_BAD_PATHS = ["", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/../b", "../a", "a\\b", "a\0b", "a\ud800"]


class StoreContract:
    """Tests of every promise in ``sparklog.storage.base``. The ``store`` fixture gives a fresh, empty store."""

    raced_names = 50
    """So many names are raced for: a server that takes a hundredth of a second for each call may be asked for fewer."""
    page_size = 1_000
    """How many names one answer of the store holds at most: a longer listing takes several."""

    def test_what_was_put_is_read(self, store: ObjectStore) -> None:
        store.put("a/b", b"one")
        assert store.read("a/b") == b"one"

    @pytest.mark.parametrize("data", [b"", b"\0", bytes(range(256)) * 64, b"\r\n\xff\xfe"])
    def test_any_bytes_are_stored_as_they_are(self, store: ObjectStore, data: bytes) -> None:
        store.put("put", data)
        assert store.create("created", data) is CreateResult.CREATED
        assert [*store.read_many(["put", "created"])] == [data, data]
        assert [info.size_bytes for info in store.list("")] == [len(data), len(data)]

    @pytest.mark.parametrize("size_bytes", [0, 3, 300_000, 5 * 2**20])
    def test_views_are_stored_as_bytes_are_and_are_needed_no_more(self, store: ObjectStore, size_bytes: int) -> None:
        memory = bytearray(b"x" + bytes(range(256)) * (size_bytes // 256 + 1))
        data = bytes(memory[1 : size_bytes + 1])
        view = memoryview(memory).toreadonly()[1 : size_bytes + 1]
        store.put("put", view)  # type: ignore[arg-type]
        store.put_many({"many/a": view, "many/b": view})  # type: ignore[dict-item]
        assert store.create("created", view) is CreateResult.CREATED  # type: ignore[arg-type]
        memory[:] = bytes(len(memory))  # as memory that is used again
        found = store.read_many(["put", "many/a", "many/b", "created"])
        assert [*found] == [data] * 4
        assert {type(one) for one in found} == {bytes}

    def test_a_large_object_is_stored_whole(self, store: ObjectStore) -> None:
        data = bytes(range(256)) * (5 * 2**20 // 256)
        store.put("large", data)
        assert store.read("large") == data
        assert store.read_range("large", 4 * 2**20, 4 * 2**20 + 300) == data[4 * 2**20 : 4 * 2**20 + 300]

    def test_missing_objects(self, store: ObjectStore) -> None:
        store.put("folder/object", b"x")
        for path in ("gone", "folder", "folder/gone", "folder/object/below"):
            with pytest.raises(ObjectNotFoundError, match=path):
                store.read(path)
            with pytest.raises(ObjectNotFoundError):
                store.read_range(path, 0, 1)
            with pytest.raises(ObjectNotFoundError):
                store.read_range(path, 0, 0)

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [(0, 5, b"01234"), (3, 4, b"3"), (0, 0, b""), (4, 4, b""), (8, 99, b"89"), (10, 20, b""), (99, 100, b"")],
    )
    def test_ranges(self, store: ObjectStore, start: int, end: int, expected: bytes) -> None:
        store.put("digits", b"0123456789")
        assert store.read_range("digits", start, end) == expected

    def test_ranges_of_an_empty_object(self, store: ObjectStore) -> None:
        store.put("empty", b"")
        assert store.read_range("empty", 0, 0) == store.read_range("empty", 0, 9) == b""

    def test_what_exists(self, store: ObjectStore) -> None:
        store.put("a/full", b"0123456789")
        store.put("a/empty", b"")
        assert store.exists("a/full")
        assert store.exists("a/empty")
        assert not store.exists("a/other")

    @pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 2), (-2, -1)])
    def test_impossible_ranges_are_refused(self, store: ObjectStore, start: int, end: int) -> None:
        store.put("a", b"0123456789")
        with pytest.raises(InvalidArgumentError):
            store.read_range("a", start, end)

    def test_read_many_keeps_the_order_and_marks_what_is_missing(self, store: ObjectStore) -> None:
        store.put_many({f"many/{number:03d}": str(number).encode() for number in range(100)})
        paths = [f"many/{number:03d}" for number in (99, 0, 500, 42, 42)]
        assert [*store.read_many(paths)] == [b"99", b"0", None, b"42", b"42"]
        assert [*store.read_many([])] == []

    def test_buffers_for_arrow_hold_what_read_many_returns(self, store: ObjectStore) -> None:
        large = bytes(range(256)) * 1_024
        store.put_many({"large": large, "small": b"42", "empty": b""})
        found = store.read_buffers(["small", "gone", "large", "empty", "small"])
        assert [None if one is None else bytes(one) for one in found] == [b"42", None, large, b"", b"42"]
        assert [*store.read_buffers([])] == []

    def test_put_replaces_and_nothing_old_is_read_again(self, store: ObjectStore) -> None:
        for number in range(5):
            data = b"x" * number
            store.put("a", data)
            assert store.read("a") == data
            assert store.read_range("a", 0, 99) == data
            assert [info.size_bytes for info in store.list("")] == [number]

    def test_a_replaced_object_has_another_etag(self, store: ObjectStore) -> None:
        store.put("a", b"one")
        [before] = store.list("")
        assert [before] == [*store.list("")]
        store.put("a", b"two")
        [after] = store.list("")
        assert after.etag != before.etag
        assert after.modified_ms >= before.modified_ms > 0

    def test_create_gives_a_name_once(self, store: ObjectStore) -> None:
        assert store.create("log/0", b"first") is CreateResult.CREATED
        assert store.create("log/0", b"second") is CreateResult.EXISTS
        assert store.read("log/0") == b"first"

    def test_create_refuses_what_put_wrote(self, store: ObjectStore) -> None:
        store.put("a", b"")
        assert store.create("a", b"x") is CreateResult.EXISTS
        assert store.read("a") == b""

    def test_a_deleted_name_can_be_created_again(self, store: ObjectStore) -> None:
        store.create("a", b"first")
        store.delete(["a"])
        assert store.create("a", b"second") is CreateResult.CREATED
        assert store.read("a") == b"second"

    def test_of_racers_exactly_one_creates(self, store: ObjectStore) -> None:
        names = [f"race/{number:02d}" for number in range(self.raced_names)]
        barrier = threading.Barrier(_RACERS)

        def race(racer: int) -> list[CreateResult]:
            results = []
            try:
                for name in names:
                    barrier.wait()
                    results.append(store.create(name, f"racer {racer}".encode() * 50))
            except BaseException:
                barrier.abort()
                raise
            return results

        with ThreadPoolExecutor(_RACERS) as threads:
            results = list(threads.map(race, range(_RACERS)))
        stored = store.read_many(names)
        for number, data in enumerate(stored):
            winners = [racer for racer in range(_RACERS) if results[racer][number] is CreateResult.CREATED]
            assert [f"racer {winner}".encode() * 50 for winner in winners] == [data]
        assert [*store.list_names("race/")] == [f"{number:02d}" for number in range(self.raced_names)]

    def test_readers_see_the_old_object_or_the_new_one(self, store: ObjectStore) -> None:
        versions = [letter * 100_000 for letter in (b"a", b"b", b"c")]
        store.put("a", versions[0])
        with ThreadPoolExecutor(2) as threads:
            writes = threads.submit(lambda: [store.put("a", data) for _ in range(10) for data in versions])
            while not writes.done():
                assert store.read("a") in versions
            writes.result()

    def test_listings_are_in_byte_order_of_whole_paths(self, store: ObjectStore) -> None:
        # "-" and "." sort before "/", "0" after it; é and 🦆 after all ASCII.
        paths = ["a-b", "a.b", "a/b-c", "a/b/c/d", "a/b/e", "a/b0", "a0", "A", "b", "é", "🦆"]
        store.put_many(dict.fromkeys(paths, b""))
        assert [info.path for info in store.list("")] == sorted(paths, key=str.encode)

    def test_a_listing_is_of_one_folder(self, store: ObjectStore) -> None:
        store.put_many(dict.fromkeys(["a/1", "a/x/2", "ab/3", "a-/4", "b/5"], b""))
        assert [info.path for info in store.list("a/")] == ["a/1", "a/x/2"]
        assert [info.path for info in store.list("a/x/")] == ["a/x/2"]
        assert [*store.list("gone/")] == [*store.list("a/1/")] == []

    @pytest.mark.parametrize("prefix", ["", "a/", "a/b/"])
    def test_a_listing_after_a_path_is_the_rest_of_the_whole(self, store: ObjectStore, prefix: str) -> None:
        paths = ["a-b", "a/a", "a/b-c", "a/b/c", "a/b/d/e", "a/b/f", "a/b0", "a0", "b/c"]
        store.put_many(dict.fromkeys(paths, b""))
        whole = [info.path for info in store.list(prefix)]
        odd = ["", "0", "a", "a/b", "a/b/", "a/b/cc", "a/b/d/f", "a/b/zzz", "a/zzz", "z"]
        for after in [*odd, *paths]:
            assert [info.path for info in store.list(prefix, after=after)] == [path for path in whole if path > after]

    def test_a_long_listing_is_complete(self, store: ObjectStore) -> None:
        paths = [f"log/{number:05d}" for number in range(self.page_size * 6 // 5)]
        store.put_many(dict.fromkeys(paths, b"x"))
        assert [info.path for info in store.list("log/")] == paths
        assert [info.path for info in store.list("log/", after=paths[-3])] == paths[-2:]
        assert len(store.list_names("log/")) == len(paths)
        store.delete(iter(paths))
        assert [*store.list("")] == []

    def test_names_of_a_folder(self, store: ObjectStore) -> None:
        store.put_many(dict.fromkeys(["a/1", "a/x/2", "a/x/y/3", "a/x-", "ab/3", "c"], b""))
        assert [*store.list_names("")] == ["a", "ab", "c"]
        assert [*store.list_names("a/")] == ["1", "x", "x-"]
        assert [*store.list_names("gone/"), *store.list_names("c/")] == []

    def test_a_folder_without_objects_is_not_there(self, store: ObjectStore) -> None:
        store.put("a/b/c", b"")
        store.delete(["a/b/c"])
        assert [*store.list_names(""), *store.list_names("a/")] == []
        store.put("a/b/c", b"again")
        assert [*store.list_names("a/")] == ["b"]

    def test_delete(self, store: ObjectStore) -> None:
        store.put_many(dict.fromkeys(["a/1", "a/2", "a/3"], b""))
        store.delete(["a/1", "gone", "a", "a/gone/x", "a/3/x", "a/3"])
        assert [info.path for info in store.list("")] == ["a/2"]
        store.delete([])

    @pytest.mark.parametrize("name", _ODD_NAMES)
    def test_odd_names(self, store: ObjectStore, name: str) -> None:
        path = f"odd/{name}"
        assert store.create(path, b"1") is CreateResult.CREATED
        assert store.create(path, b"2") is CreateResult.EXISTS
        store.put(f"{path}-put", b"3")
        assert [*store.read_many([path, f"{path}-put"])] == [b"1", b"3"]
        assert [info.path for info in store.list("odd/")] == [path, f"{path}-put"]
        assert [*store.list_names("odd/")] == sorted({name.split("/")[0], f"{name}-put".split("/")[0]})
        store.delete([path, f"{path}-put"])
        assert [*store.list("odd/")] == []

    @pytest.mark.parametrize("path", _BAD_PATHS)
    def test_bad_paths_are_refused(self, store: ObjectStore, path: str) -> None:
        for call in (
            lambda: store.read(path),
            lambda: store.read_range(path, 0, 1),
            lambda: store.read_many([path]),
            lambda: store.put(path, b""),
            lambda: store.put_many({path: b""}),
            lambda: store.create(path, b""),
            lambda: store.delete([path]),
        ):
            with pytest.raises(InvalidArgumentError):
                call()
        assert [*store.list("")] == []

    @pytest.mark.parametrize("prefix", ["a", "/", "a//", "../", "a/../", "a\\/"])
    def test_bad_prefixes_are_refused(self, store: ObjectStore, prefix: str) -> None:
        with pytest.raises(InvalidArgumentError):
            store.list(prefix)
        with pytest.raises(InvalidArgumentError):
            store.list_names(prefix)

    def test_writes_that_shall_survive_a_power_loss(self, store: ObjectStore) -> None:
        store.put("a/b/put", b"1", sync=True)
        store.put_many({"a/c/many": b"2", "d": b"3"}, sync=True)
        assert store.create("a/b/created", b"4", sync=True) is CreateResult.CREATED
        assert store.create("a/b/created", b"5", sync=True) is CreateResult.EXISTS
        store.sync(["a/b/put", "a/b/gone", "gone/too", "d"])
        store.sync([])
        store.sync_all()
        assert [*store.read_many(["a/b/put", "a/c/many", "d", "a/b/created"])] == [b"1", b"2", b"3", b"4"]

    def test_the_uri_names_the_root(self, store: ObjectStore) -> None:
        assert "://" in store.uri
        assert not store.uri.endswith("/")
