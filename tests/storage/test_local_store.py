import errno
import os
import subprocess
import sys
from contextlib import suppress

import pytest

from sparklog._native import CORE
from sparklog.errors import (
    InvalidArgumentError,
    ObjectNotFoundError,
    StoreError,
    StoreFullError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
    UnsafeStoreError,
)
from sparklog.storage import CreateResult, LocalStore, ObjectStore, _local_listing, _nameless, local
from sparklog.testing.store_contract import StoreContract

WAYS = ["nameless", "temporary"]
"""Files that have no name before they are whole, and temporary ones, where a system has none of those."""


def a_store(root, way):
    found = LocalStore(root)
    found._nameless.is_supported = found._nameless.is_supported and way == "nameless"
    return found


class TestLocalStore(StoreContract):
    @pytest.fixture(params=WAYS)
    def store(self, tmp_path, request) -> ObjectStore:
        store: ObjectStore = a_store(tmp_path / "root", request.param)
        return store


@pytest.fixture(params=WAYS)
def store(tmp_path, request):
    (tmp_path / "root").mkdir()
    return a_store(tmp_path / "root", request.param)


@pytest.fixture
def by_temporary(tmp_path):
    (tmp_path / "root").mkdir()
    return a_store(tmp_path / "root", "temporary")


def by_python(monkeypatch):
    """Have files written and read one by one by Python's calls, which a test can see and part, and which do what the
    core's calls leave over."""
    for module in (local, _local_listing):
        monkeypatch.setattr(module, "CORE", None)


def fail(monkeypatch, function, code, *, when=lambda *arguments: True):
    """Let ``os.<function>`` raise ``code`` where ``when`` says so."""
    real = getattr(os, function)
    by_python(monkeypatch)

    def failing(*arguments, **keywords):
        if when(*arguments):
            raise OSError(code, os.strerror(code))
        return real(*arguments, **keywords)

    monkeypatch.setattr(os, function, failing)


def name_of(descriptor):
    return os.readlink(f"/proc/self/fd/{descriptor}")


def is_folder(descriptor):
    return os.path.isdir(name_of(descriptor))


def files(store):
    return sorted(str(path.relative_to(store.root)) for path in store.root.rglob("*") if path.is_file())


@pytest.fixture
def steps(monkeypatch, tmp_path):
    """What is flushed, linked, renamed and unlinked, in order; temporary files are called ``<name>~``, those without a
    name ``~``."""
    by_python(monkeypatch)
    taken = []

    def short(path):
        if str(path).startswith("/proc/") or str(path).endswith("(deleted)"):
            return "~"
        relative = os.path.relpath(path, tmp_path)
        folder, name = os.path.split(relative)
        return os.path.join(folder, name.split(".")[1] + "~") if name.endswith(".tmp") else relative

    def record(function, describe):
        real = getattr(os, function)

        def recording(*arguments, **keywords):
            taken.append(describe(*arguments))
            return real(*arguments, **keywords)

        monkeypatch.setattr(os, function, recording)

    record("fsync", lambda descriptor: f"fsync {short(name_of(descriptor))}")
    record("link", lambda source, target: f"link {short(source)} {short(target)}")
    record("replace", lambda source, target: f"replace {short(source)} {short(target)}")
    record("unlink", lambda path: f"unlink {short(path)}")
    return taken


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc to name open files")
class TestOrder:
    """Protocol rule L9: file data, its link, its folder, each parent that isn't known to be durable."""

    @pytest.fixture
    def store(self, by_temporary):
        return by_temporary

    def test_create_without_a_temporary_file(self, tmp_path, steps, monkeypatch):
        store = a_store(tmp_path / "root", "nameless")
        if not store._nameless.is_supported:
            pytest.skip("the system has no files without a name")
        monkeypatch.setattr(_nameless, "_kind_of", lambda device: b"ext4")
        (tmp_path / "root" / "a").mkdir(parents=True)
        store.create("a/one", b"1", sync=True)
        assert steps == ["fsync ~", "link ~ root/a/one", "fsync root/a", "fsync root", "fsync ."]
        steps.clear()
        store.put("a/two", b"2", sync=True)
        assert steps == ["fsync ~", "link ~ root/a/two", "fsync root/a"]
        steps.clear()
        store.put("a/two", b"3", sync=True)
        assert steps == ["fsync root/a/two~", "replace root/a/two~ root/a/two", "fsync root/a"]

    @pytest.mark.parametrize("kind", [b"btrfs", b"overlay", None])
    def test_elsewhere_what_is_flushed_has_a_name(self, tmp_path, steps, monkeypatch, kind):
        monkeypatch.setattr(_nameless, "_kind_of", lambda device: kind)
        store = a_store(tmp_path / "root", "nameless")
        (tmp_path / "root" / "a").mkdir(parents=True)
        store.create("a/one", b"1", sync=True)
        assert steps[:3] == ["fsync root/a/one~", "link root/a/one~ root/a/one", "unlink root/a/one~"]
        steps.clear()
        store.put("a/two", b"2", sync=True)
        assert steps == ["fsync root/a/two~", "replace root/a/two~ root/a/two", "fsync root/a"]
        steps.clear()
        if store._nameless.is_supported:
            store.create("a/three", b"3")
            assert steps == ["link ~ root/a/three"]

    def test_create(self, store, steps):
        store.create("a/b/one", b"1", sync=True)
        assert steps == [
            "fsync root/a/b/one~",
            "link root/a/b/one~ root/a/b/one",
            "unlink root/a/b/one~",
            "fsync root/a/b",
            "fsync root/a",
            "fsync root",
        ]

    def test_folders_that_are_known_to_be_durable_are_not_flushed_again(self, store, steps):
        store.create("a/b/one", b"1", sync=True)
        steps.clear()
        store.create("a/c/two", b"2", sync=True)
        assert [step for step in steps if step.startswith("fsync")] == [
            "fsync root/a/c/two~",
            "fsync root/a/c",
            "fsync root/a",
        ]
        steps.clear()
        store.create("a/c/three", b"3", sync=True)
        assert [step for step in steps if step.startswith("fsync")] == ["fsync root/a/c/three~", "fsync root/a/c"]

    def test_a_folder_that_another_process_made_is_flushed_once(self, store, steps):
        LocalStore(store.root).put("a/one", b"1")
        steps.clear()
        store.put("a/two", b"2", sync=True)
        assert steps == ["fsync root/a/two~", "replace root/a/two~ root/a/two", "fsync root/a", "fsync root"]

    def test_a_folder_that_was_removed_and_made_again_is_new(self, store, steps):
        store.put("a/one", b"1", sync=True)
        os.unlink(store.root / "a" / "one")
        os.rmdir(store.root / "a")
        steps.clear()
        store.put("a/one", b"1", sync=True)
        assert steps[-2:] == ["fsync root/a", "fsync root"]

    def test_a_root_that_is_made_is_flushed_with_its_parents(self, tmp_path, steps):
        LocalStore(tmp_path / "new" / "root").put("a", b"1", sync=True)
        assert steps[-3:] == ["fsync new/root", "fsync new", "fsync ."]

    def test_put_many_flushes_each_folder_once(self, store, steps):
        store.put_many({"a/1": b"", "a/2": b"", "b/3": b""}, sync=True)
        assert [step for step in steps if step.startswith("fsync")] == [
            "fsync root/a/1~",
            "fsync root/a/2~",
            "fsync root/b/3~",
            "fsync root/a",
            "fsync root",
            "fsync root/b",
            "fsync root",
        ]

    def test_sync_flushes_files_then_folders_and_passes_over_what_is_gone(self, store, steps):
        LocalStore(store.root).put_many({"a/1": b"", "a/2": b"", "b": b""})
        steps.clear()
        store.sync(["a/1", "gone", "gone/too", "b/not-a-folder", "a/2", "b"])
        assert steps == [
            "fsync root/a/1",
            "fsync root/a/2",
            "fsync root/b",
            "fsync root/a",
            "fsync root",
            "fsync root",
        ]

    def test_nothing_is_flushed_unless_asked_for(self, store, steps):
        store.create("a/one", b"1")
        store.put("a/two", b"2")
        store.put_many({"b/three": b"3"})
        assert not [step for step in steps if step.startswith("fsync")]

    def test_a_folder_is_not_known_to_be_durable_when_its_parents_failed(self, store, steps, monkeypatch):
        with monkeypatch.context() as patch:
            fail(patch, "fsync", errno.EIO, when=lambda descriptor: name_of(descriptor) == str(store.root))
            with pytest.raises(StoreOutcomeUnknownError):
                store.put("a/b/one", b"1", sync=True)
        steps.clear()
        for path in ("a/b/one", "a/b/two", "a/three", "four"):  # root is flushed no more, though it would say yes now
            with pytest.raises(StoreOutcomeUnknownError, match=r"an earlier fsync of .*root failed"):
                store.put(path, b"1", sync=True)
        assert "fsync root/a" in steps
        assert "fsync root" not in steps

    @pytest.mark.parametrize("failing", ["a/one", "a"])
    def test_what_could_not_be_flushed_once_is_never_again_called_durable(self, store, monkeypatch, failing):
        """The system tells of a lost write once."""
        store.put_many({"a/one": b"1", "b/two": b"2"})
        with monkeypatch.context() as patch:
            fail(patch, "fsync", errno.EIO, when=lambda descriptor: name_of(descriptor) == str(store.root / failing))
            with pytest.raises(StoreOutcomeUnknownError, match="EIO"):
                store.sync(["a/one"])
        for _ in range(2):
            with pytest.raises(StoreOutcomeUnknownError, match=f"an earlier fsync of .*root/{failing} failed"):
                store.sync(["a/one"])
            with pytest.raises(StoreOutcomeUnknownError, match=f"an earlier fsync of .*root/{failing} failed"):
                store.sync_all()  # the system wouldn't tell of it at all
        store.sync(["b/two"])
        store.put("b/three", b"3", sync=True)

    def test_a_failed_flush_of_the_data_is_definite_and_leaves_nothing(self, store, monkeypatch):
        fail(monkeypatch, "fsync", errno.EIO)
        for write in (store.put, store.create):
            with pytest.raises(StoreUnavailableError):
                write("a", b"1", sync=True)
        assert files(store) == []

    def test_a_failed_flush_of_the_folder_after_the_link_is_unknown(self, store, monkeypatch):
        fail(monkeypatch, "fsync", errno.EIO, when=is_folder)
        with pytest.raises(StoreOutcomeUnknownError):
            store.create("a", b"1", sync=True)
        with pytest.raises(StoreOutcomeUnknownError):
            store.put("b", b"1", sync=True)
        assert files(store) == ["a", "b"]

    def test_no_descriptor_left_for_the_folder_is_unknown_too(self, store, monkeypatch):
        with monkeypatch.context() as patch:
            fail(patch, "open", errno.EMFILE, when=lambda path, *_: os.path.isdir(path))
            with pytest.raises(StoreOutcomeUnknownError):
                store.create("a", b"1", sync=True)
        store.sync(["a"])  # no fsync failed
        store.sync_all()

    def test_sync_that_the_disk_refuses_is_unknown(self, store, monkeypatch):
        store.put("a", b"1")
        fail(monkeypatch, "fsync", errno.EIO)
        with pytest.raises(StoreOutcomeUnknownError):
            store.sync(["a"])


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.ENOSPC, StoreFullError),
        (errno.EDQUOT, StoreFullError),
        (errno.EFBIG, StoreFullError),
        (errno.EROFS, StorePermissionError),
        (errno.EACCES, StorePermissionError),
        (errno.EPERM, StorePermissionError),
        (errno.EMFILE, StoreUnavailableError),
        (errno.ENFILE, StoreUnavailableError),
        (errno.EIO, StoreUnavailableError),
    ],
)
@pytest.mark.parametrize("write", ["put", "create"])
def test_what_fails_before_the_name_is_touched_is_definite(store, monkeypatch, write, code, expected):
    with monkeypatch.context() as patch:
        fail(patch, "open", code)
        with pytest.raises(expected, match=errno.errorcode[code]):
            getattr(store, write)("a", b"1")
    assert files(store) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_disk_that_is_full_in_the_middle_of_writing(store, monkeypatch):
    by_python(monkeypatch)
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, flags, *mode: (real(path, flags, *mode), real("/dev/full", os.O_RDWR))[1]
    )
    for write in (store.put, store.create):
        with pytest.raises(StoreFullError):
            write("a", b"1")
    assert files(store) == []


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def test_a_file_system_without_hard_links_is_unsafe(store, monkeypatch, code):
    fail(monkeypatch, "link", code)
    with pytest.raises(UnsafeStoreError, match="hard links"):
        store.create("a", b"1")
    assert files(store) == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.ENOSPC, StoreFullError),
        (errno.EROFS, StorePermissionError),
        (errno.EACCES, StorePermissionError),
        (errno.EIO, StoreOutcomeUnknownError),
        (errno.ESTALE, StoreOutcomeUnknownError),
        (errno.ETIMEDOUT, StoreOutcomeUnknownError),
    ],
)
@pytest.mark.parametrize(("write", "function"), [("create", "link"), ("put", "replace")])
def test_a_link_or_rename_that_fails_may_have_been_carried_out(store, monkeypatch, write, function, code, expected):
    if write == "put":
        store.put("a", b"0")  # what is new may be linked
    before = files(store)
    fail(monkeypatch, function, code)
    with pytest.raises(StoreError) as caught:
        getattr(store, write)("a", b"1")
    assert type(caught.value) is expected
    assert files(store) == before


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
def test_the_link_of_an_object_that_is_put_may_have_been_carried_out(store, monkeypatch, code):
    if not store._nameless.is_supported:
        pytest.skip("a temporary file is renamed")
    fail(monkeypatch, "link", code)
    with pytest.raises(StoreOutcomeUnknownError):
        store.put("a", b"1")
    assert files(store) == []


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EPERM, errno.EACCES, errno.EXDEV])
@pytest.mark.parametrize("write", ["put", "create"])
def test_where_files_without_names_get_none_temporary_ones_are_linked(store, monkeypatch, write, code):
    """No /proc, or a sandbox that doesn't let it be used."""
    fail(monkeypatch, "link", code, when=lambda source, *_: source.startswith("/proc/"))
    getattr(store, write)("a", b"1")
    assert (store.read("a"), files(store), store._nameless.is_supported) == (b"1", ["a"], False)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMLINK, errno.EINTR, errno.ENOMEM, errno.EAGAIN])
@pytest.mark.parametrize("write", ["put", "create"])
def test_a_link_that_fails_for_now_leaves_files_without_names_in_use(store, monkeypatch, write, code):
    supported = store._nameless.is_supported
    fail(monkeypatch, "link", code, when=lambda source, *_: source.startswith("/proc/"))
    getattr(store, write)("a", b"1")
    assert (store.read("a"), files(store), store._nameless.is_supported) == (b"1", ["a"], supported)


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL])
def test_a_file_system_without_nameless_files_is_asked_once(store, monkeypatch, code):
    fail(monkeypatch, "open", code, when=lambda path, flags, *_: flags & os.O_TMPFILE == os.O_TMPFILE)
    store.create("a", b"1")
    assert (store.read("a"), store._nameless.is_supported) == (b"1", False)


def test_a_folder_that_is_removed_before_its_first_link_is_made_again(store, monkeypatch):
    by_python(monkeypatch)
    store.put("announced/x", b"1")
    real = os.link

    def link_once_removed(source, target, **keywords):
        monkeypatch.setattr(os, "link", real)
        os.unlink(store.root / "announced" / "x")
        os.rmdir(store.root / "announced")
        return real(source, target, **keywords)

    supported = store._nameless.is_supported
    if supported:
        monkeypatch.setattr(os, "link", link_once_removed)
    assert store.create("announced/y", b"2") is CreateResult.CREATED
    assert (store.read("announced/y"), store._nameless.is_supported) == (b"2", supported)


def test_who_puts_while_another_creates_the_name_replaces_it(store, monkeypatch):
    by_python(monkeypatch)
    monkeypatch.setattr(os.path, "lexists", lambda path: store.create("a", b"other") is None)
    store.put("a", b"own")
    assert (store.read("a"), files(store)) == (b"own", ["a"])


@pytest.mark.parametrize(
    ("code", "expected"),
    [(errno.EACCES, StorePermissionError), (errno.EMFILE, StoreUnavailableError), (errno.EIO, StoreUnavailableError)],
)
def test_reads_that_fail_are_no_missing_objects(store, monkeypatch, code, expected):
    store.put("a/b", b"1")
    by_python(monkeypatch)

    def failing(*arguments, **keywords):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("builtins.open", failing)
    monkeypatch.setattr(os, "open", failing)
    monkeypatch.setattr(os, "scandir", failing)
    reads = (
        lambda: store.read("a/b"),
        lambda: store.read_range("a/b", 0, 1),
        lambda: store.read_buffers(["a/b"]),
        lambda: [*store.list("")],
    )
    for call in reads:
        with pytest.raises(expected):
            call()


@pytest.mark.parametrize("size_bytes", [100, 200_000])
def test_a_buffer_of_a_file_that_gets_shorter_as_it_is_read_ends_where_the_file_ends(store, monkeypatch, size_bytes):
    store.put("a", b"x" * size_bytes)
    fstat = os.fstat

    def before_it_was_cut(descriptor):
        found = fstat(descriptor)
        return os.stat_result([*found[:6], found.st_size + 70_000, *found[7:10]])

    by_python(monkeypatch)
    monkeypatch.setattr(os, "fstat", before_it_was_cut)
    [found] = store.read_buffers(["a"])
    assert bytes(found) == b"x" * size_bytes


def test_a_file_where_a_folder_is_expected_and_the_other_way_round(store):
    store.put("file", b"1")
    store.put("folder/file", b"1")
    for write in (store.put, store.create):
        with pytest.raises(StoreError, match="a file is where a folder is expected"):
            write("file/below", b"2")
        with pytest.raises(StoreError, match="folder"):
            write("folder", b"2")
    with pytest.raises(ObjectNotFoundError):
        store.read("folder")
    assert files(store) == ["file", "folder/file"]


def test_temporary_files_of_a_killed_process_are_not_listed(by_temporary, monkeypatch):
    store = by_temporary
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", lambda path: None)  # killed before it could
        store.create("a/b", b"1")
        store.create("c", b"1")
        store.create("n" * 255, b"1")
    assert len(files(store)) == 6
    assert [info.path for info in store.list("")] == ["a/b", "c", "n" * 255]
    assert store.list_names("") == ["a", "c", "n" * 255]
    store.delete(["a/b"])
    assert store.list_names("") == ["c", "n" * 255]


def test_an_interrupt_leaves_no_temporary_file(store, monkeypatch):
    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.create("a", b"1", sync=True)
    assert files(store) == []


def test_a_listing_walks_only_what_it_needs(store, monkeypatch):
    store.put_many(dict.fromkeys(["a/b/1", "a/c/2", "a/d/3", "x/4"], b""))
    by_python(monkeypatch)
    walked = []
    real = os.scandir

    def scandir(path):
        walked.append(os.path.relpath(path, store.root))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert [info.path for info in store.list("a/c/")] == ["a/c/2"]
    assert walked == ["a/c"]
    walked.clear()
    assert [info.path for info in store.list("a/", after="a/c/5")] == ["a/d/3"]
    assert walked == ["a", "a/c", "a/d"]
    walked.clear()
    assert next(store.list("")).path == "a/b/1"
    assert walked == [".", "a", "a/b"]


def test_an_object_that_vanishes_during_a_listing_is_left_out(store, monkeypatch):
    by_python(monkeypatch)
    store.put_many({"a": b"", "b": b"", "c": b""})
    listing = store.list("")
    assert next(listing).path == "a"
    store.delete(["b"])
    assert [info.path for info in listing] == ["c"]


@pytest.mark.parametrize("count", [0, 1, 32, 33, 1_024, 1_025])
def test_the_core_lists_a_folder_as_python_does(core, store, monkeypatch, count):
    """Also what is no object: links that lead nowhere, temporary files, names that aren't text."""
    store.put_many({f"t/{number}": b"x" * number for number in range(count)} | {"t.x": b"1", "u/below/a": b"2"})
    if count == 1:
        store.put("t/folder/b", b"3")
        os.mkdir(store.root / "t" / "empty")
        os.symlink(store.root / "u", store.root / "t" / "link")
        os.symlink(store.root / "gone", store.root / "t" / "dangling")
        (store.root / "t" / f".a.{'0' * 32}.tmp").write_bytes(b"")
        (store.root / "t" / "a\\b").write_bytes(b"")
        with suppress(OSError):  # not every file system has such names
            (store.root / "t" / os.fsdecode(b"\xff")).write_bytes(b"")
    is_few = core.list_folder(os.fsencode(store.root / "t"), b"") is not None
    assert is_few == (count < 1_025)
    prefixes = ("", "t/", "u/", "t/0/", "nowhere/")
    afters = ("", "t/3", "t/31x", "t/link/b", "t/l", "t/z", "t/\0", "t/\xe9", "t/\ud800")
    found = [[*store.list(prefix, after=after)] for prefix in prefixes for after in afters]
    names = [store.list_names(prefix) for prefix in prefixes]
    by_python(monkeypatch)
    assert [[*store.list(prefix, after=after)] for prefix in prefixes for after in afters] == found
    assert [store.list_names(prefix) for prefix in prefixes] == names


def test_the_end_of_a_large_folder_is_listed_without_a_look_at_each_name(core, store):
    store.put_many({f"log/{number:020d}.json": b"" for number in range(1_100)})
    assert core.list_folder(os.fsencode(store.root / "log"), b"") is None
    last = core.list_folder(os.fsencode(store.root / "log"), b"%020d" % 1_098)
    assert sorted(name for name, *_ in last) == [b"%020d.json" % number for number in (1_098, 1_099)]
    assert [one.path for one in store.list("log/", after=f"log/{1_098:020d}")] == [
        f"log/{number:020d}.json" for number in (1_098, 1_099)
    ]


@pytest.mark.slow
def test_processes_race_as_threads_do(store):
    script = (
        "import sys; from sparklog.storage import LocalStore; store = LocalStore(sys.argv[1]); sys.stdin.read(1);"
        "print(*[store.create(f'race/{n}', sys.argv[2].encode()).value for n in range(200)])"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(store.root), str(racer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for racer in range(3)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(b"g")
        racer.stdin.flush()
    answers = [racer.communicate(timeout=60)[0].split() for racer in racers]
    for number in range(200):
        winners = [racer for racer in range(3) if answers[racer][number] == CreateResult.CREATED.value.encode()]
        assert [str(winner).encode() for winner in winners] == [store.read(f"race/{number}")]


def test_empty_folders_go_where_they_are_old(store, tmp_path):
    root = tmp_path / "root"
    for name in ("t/a/1/p", "t/a/2/p", "t/b", "u/c"):
        (root / name).mkdir(parents=True)
    store.put("t/a/2/x", b"1")
    store.put("t/young/x", b"1")
    store.delete(["t/young/x"])
    for folder in ("t/a/1/p", "t/a/1", "t/a/2/p", "t/a/2", "t/a", "t/b", "t", "u/c", "u"):
        os.utime(root / folder, (1_000, 1_000))
    store.remove_empty_folders("t/", changed_before_ms=1_000_001)
    left = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    assert left == ["t", "t/a", "t/a/2", "t/a/2/x", "t/young", "u", "u/c"]
    store.remove_empty_folders("t/", changed_before_ms=1_000_000)
    store.remove_empty_folders("nothing/", changed_before_ms=2**62)
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == left


def test_a_folder_that_is_removed_right_after_it_was_made_is_made_again(store, tmp_path, monkeypatch):
    mkdir, removals = os.mkdir, [1, 1, 1]

    def mkdir_and_remove(path, *arguments, **keywords):
        mkdir(path, *arguments, **keywords)
        if removals:
            removals.pop()
            store.remove_empty_folders("announced/", changed_before_ms=2**62)

    monkeypatch.setattr(os, "mkdir", mkdir_and_remove)
    store.put("announced/1/2/x", b"1", sync=True)
    assert store.read("announced/1/2/x") == b"1"
    assert not removals


def test_the_mode_of_a_file_is_as_the_umask_has_it(store):
    before = os.umask(0o027)
    try:
        store.create("a", b"1")
        store.put("b", b"1")
    finally:
        os.umask(before)
    assert {os.stat(store.root / name).st_mode & 0o777 for name in "ab"} == {0o640}


@pytest.mark.skipif(not os.path.exists("/proc/self/mountinfo"), reason="needs /proc")
def test_the_kind_of_a_file_system_is_that_of_its_mount():
    assert _nameless._kind_of(os.stat("/proc/self").st_dev) == b"proc"
    assert _nameless._kind_of(os.makedev(4095, 255)) is None


def test_without_a_list_of_mounts_what_must_be_durable_has_a_name(store, monkeypatch):
    def not_there(device):
        raise FileNotFoundError(2, "no /proc")

    monkeypatch.setattr(_nameless, "_kind_of", not_there)
    assert store.create("a", b"1", sync=True) is CreateResult.CREATED
    assert store.read("a") == b"1"


@pytest.fixture
def core():
    if CORE is None:
        pytest.skip("needs the native core")
    return CORE


needs_nameless = pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="needs files without a name")


@needs_nameless
def test_the_core_creates_files_up_to_the_first_that_it_cannot(core, tmp_path):
    (tmp_path / "there").write_bytes(b"before")
    paths = [os.fsencode(tmp_path / name) for name in ("a", "b", "there", "c")]
    data = [b"1", memoryview(b"22")[:1], b"3", b"4"]
    folder = os.fsencode(tmp_path)
    assert core.create_files(tuple((folder, path, each) for path, each in zip(paths, data, strict=True))) == 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"1", "b": b"2", "there": b"before"}
    assert core.create_files(((folder + b"/gone", paths[3], b""),)) == core.create_files(()) == 0
    with pytest.raises(ValueError, match="null byte"):
        core.create_files(((folder, paths[3] + b"\0d", b""),))


@needs_nameless
def test_the_core_creates_a_file_or_tells_what_its_link_told(core, tmp_path):
    folder, path = os.fsencode(tmp_path), os.fsencode(tmp_path / "a")
    assert [core.create_file(folder, path, data) for data in (memoryview(b"12")[:1], b"2")] == [1, -errno.EEXIST]
    assert (tmp_path / "a").read_bytes() == b"1"
    assert core.create_file(folder + b"/gone", path, b"") == 0
    assert core.create_file(folder, os.fsencode(tmp_path / "gone" / "a"), b"") == -errno.ENOENT
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    with pytest.raises(ValueError, match="null byte"):
        core.create_file(folder, path + b"\0d", b"")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, CreateResult.CREATED),
        (errno.EEXIST, CreateResult.EXISTS),
        (errno.EXDEV, CreateResult.CREATED),
        (errno.ENOSPC, StoreFullError),
        (errno.EIO, StoreOutcomeUnknownError),
        (errno.EPERM, UnsafeStoreError),
    ],
)
def test_what_the_cores_create_tells_counts_as_what_pythons_calls_tell(core, store, monkeypatch, code, expected):
    """After a link that may have been carried out nothing is tried again; where it wasn't, the way that needs no name
    of /proc may do, and tells what is wrong."""
    if not store._nameless.is_supported:
        pytest.skip("the core isn't asked")
    monkeypatch.setattr(CORE, "create_file", lambda folder, target, data: -code if code else 0)
    real = os.link

    def link(source, target, **keywords):
        if code in (errno.ENOSPC, errno.EPERM):
            raise OSError(code, os.strerror(code))
        assert code in (0, errno.EXDEV)
        return real(source, target, **keywords)

    monkeypatch.setattr(os, "link", link)
    if isinstance(expected, CreateResult):
        assert store.create("a", b"1") is expected
        assert files(store) == (["a"] if expected is CreateResult.CREATED else [])
    else:
        with pytest.raises(StoreError) as caught:
            store.create("a", b"1")
        assert type(caught.value) is expected
        assert files(store) == []


def test_many_small_objects_are_read_whole_and_a_missing_one_is_none(store):
    objects = {"t/a": b"1", "t/b": b"", "t/large": bytes(40_000), "t/c": b"3"}
    objects |= {f"t/{number}": bytes([number]) * 2_500 for number in range(40)}
    store.put_many(objects)
    os.mkdir(store.root / "t" / "folder")
    paths = [*objects, "t/gone", "t/folder", "t/a/below", "nowhere/x"]
    assert store.read_many(paths) == [*objects.values(), None, None, None, None]
    assert store.read_many([]) == []


@pytest.mark.parametrize(
    ("code", "expected"), [(errno.EACCES, StorePermissionError), (errno.EIO, StoreUnavailableError)]
)
def test_what_the_core_cannot_read_is_no_missing_object(core, store, monkeypatch, code, expected):
    store.put("a", b"1")
    monkeypatch.setattr(CORE, "read_small_files", lambda paths: [False] * len(paths))
    assert store.read_many(["a", "gone"]) == [b"1", None]
    fail(monkeypatch, "open", code)
    with pytest.raises(expected):
        store.read_many(["a"])


@pytest.mark.parametrize("fault", ["there", "no folder", "a folder of its name"])
def test_files_put_together_are_all_put_or_the_failure_is_told(store, fault):
    objects = {f"t/{number}": bytes([number]) * 100_000 for number in range(5)}
    if fault != "no folder":
        store.put("t/first", b"")
    if fault == "there":
        store.put("t/2", b"before")
    if fault == "a folder of its name":
        os.mkdir(store.root / "t" / "2")
        with pytest.raises(StoreError, match="t/2"):
            store.put_many(objects)
        assert files(store) == ["t/0", "t/1", "t/first"]
        return
    store.put_many(objects)
    assert [bytes(found) for found in store.read_buffers([*objects])] == [*objects.values()]
    assert files(store) == sorted([*objects, *(["t/first"] if fault == "there" else [])])


def test_a_disk_that_is_full_fails_files_that_are_put_together(store, monkeypatch):
    """The core's call leaves over what fails; Python's call for it tells why."""
    if CORE is not None:
        monkeypatch.setattr(CORE, "create_files", lambda files: 1 if len(files) == 3 else 0)
        monkeypatch.setattr(CORE, "create_file", lambda folder, target, data: 0)
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, flags, *mode: (real(path, flags, *mode), real("/dev/full", os.O_RDWR))[1]
    )
    with pytest.raises(StoreFullError):
        store.put_many({"a": b"1", "b": b"2", "c": b"3"})


def test_the_core_reads_files_into_one_block_and_leaves_over_others(core, tmp_path):
    sizes = {"small": 10, "large": 70_000, "empty": 0, "half": 4_000_000, "too much": 5_000_000, "last": 65_536}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(os.urandom(size))
    names = [*sizes, "gone", "."]
    found = core.read_files(tuple(os.fsencode(tmp_path / name) for name in names), 65_536)
    kinds = {name: type(each) for name, each in zip(names, found, strict=True) if each is not None}
    assert kinds == {"small": bytes, "large": memoryview, "half": memoryview, "last": memoryview}
    assert all(bytes(each) == (tmp_path / name).read_bytes() for name, each in zip(names, found, strict=True) if each)
    assert core.read_files((), 0) == []


def test_blocks_of_files_are_used_again_once_no_view_of_them_is_left(core, tmp_path):
    (tmp_path / "a").write_bytes(b"a" * 100_000)
    path = os.fsencode(tmp_path / "a")
    kept = core.read_files((path,), 0)
    (tmp_path / "a").write_bytes(b"b" * 100_000)
    for _ in range(5):
        assert bytes(core.read_files((path,), 0)[0]) == b"b" * 100_000
    assert bytes(kept[0]) == b"a" * 100_000


@pytest.mark.parametrize(
    "paths", [["a", "../b"], ["", "a"], ["a/", "b"], ["a", "/b"], ["c\\b", "a"], ["a", "b\0", "c"], ["a/\n", "b"]]
)
def test_a_name_that_may_not_be_is_told_among_many(tmp_path, paths):
    store = LocalStore(tmp_path)
    (illegal,) = [path for path in paths if not path.isalpha()]
    for read in (store.read_many, store.read_buffers):
        with pytest.raises(InvalidArgumentError, match="invalid path") as caught:
            read(paths)
        assert repr(illegal) in str(caught.value)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ELOOP])
def test_a_folder_that_cannot_be_looked_into_is_named_beside_the_others(store, monkeypatch, code):
    store.put("topics/good/x", b"1")
    store.put("topics/bad/x", b"1")
    by_python(monkeypatch)
    fail(monkeypatch, "scandir", code, when=lambda folder: "bad" in str(folder))
    assert store.list_names("topics/") == ["bad", "good"]
    with pytest.raises(StoreError, match="topics/bad"):
        [*store.list("topics/")]


@pytest.mark.parametrize("is_native", [False, True])
def test_a_circle_of_links_is_listed_and_named_by_whoever_reads_it(tmp_path, monkeypatch, is_native):
    store = LocalStore(tmp_path)
    store.put("topics/good/x", b"1")
    for name in ("circle", "good/entry"):
        (tmp_path / "topics" / name).symlink_to(tmp_path / "topics" / name)
    if not is_native:
        by_python(monkeypatch)
    assert store.list_names("topics/") == ["circle", "good"]
    assert [found.path for found in store.list("topics/")] == ["topics/circle", "topics/good/entry", "topics/good/x"]
    for read in (store.read, lambda path: store.read_many([path]), lambda path: [*store.list(f"{path}/")]):
        with pytest.raises(StoreError, match=r"circle.*ELOOP"):
            read("topics/circle")
