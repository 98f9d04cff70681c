"""The file system's notifications, on real folders."""

import ctypes
import errno
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sparklog.storage import LocalStore, MemoryStore, _folder_watch
from sparklog.storage._folder_watch import FolderWatches
from tests.consumer.support import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def watch(watches: FolderWatches, folder: Path, changed: Callable[[], None] = lambda: None) -> Callable[[], None]:
    end = watches.watch(str(folder), changed)
    assert end is not None
    return end


def watching() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "sparklog-folder-watch"}


def descriptors() -> int:
    return sum(is_inotify(int(name)) for name in os.listdir("/proc/self/fd"))


def is_inotify(descriptor: int | None) -> bool:
    if descriptor is None:
        return False
    try:
        return "inotify" in os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:
        return False


def test_what_a_store_writes_is_told_once_it_is_whole(tmp_path):
    store, notified = LocalStore(tmp_path), []
    store.put("a/0", b"")
    end = store.watch(
        "a/", lambda: notified.append(sorted(name for name in os.listdir(tmp_path / "a") if name[0] != "."))
    )
    assert end is not None
    store.create("a/1", b"x")
    until(lambda: bool(notified))
    assert notified == [["0", "1"]]
    store.put("a/0", b"y")
    until(lambda: len(notified) == 2)
    (tmp_path / "a" / ".2.tmp").write_bytes(b"")
    store.put("b/0", b"")
    store.create("a/3", b"")
    until(lambda: len(notified) == 3)
    assert notified[2] == ["0", "1", "3"]
    end()


def test_the_thread_and_its_descriptor_end_with_the_last_who_watches(tmp_path):
    watches = FolderWatches()
    notified: list[int] = []
    before = watching()  # others' tests may have left some, which end whenever they do
    (tmp_path / "b").mkdir()
    ends = [watch(watches, tmp_path / name, partial(notified.append, n)) for n, name in enumerate(("", "", "b"))]
    (tmp_path / "x").touch()
    until(lambda: len(notified) == 2)
    assert sorted(notified) == [0, 1]
    ends[0]()
    ends[0]()  # no harm
    (tmp_path / "y").touch()
    until(lambda: len(notified) == 3)
    assert notified[2] == 1
    [thread] = watching() - before
    descriptor = watches._descriptor
    assert is_inotify(descriptor)
    ends[1]()
    ends[2]()
    until(lambda: not thread.is_alive() and not is_inotify(descriptor))
    assert (watches.count, watches._descriptor) == (0, None)
    again = watch(watches, tmp_path, partial(notified.append, 9))
    (tmp_path / "z").touch()
    until(lambda: 9 in notified)
    again()


def test_a_folder_that_is_removed_is_watched_no_longer(tmp_path):
    watches = FolderWatches()
    (tmp_path / "a").mkdir()
    end = watch(watches, tmp_path / "a")
    (tmp_path / "a").rmdir()
    until(lambda: watches.count == 0)
    end()
    assert watches.watch(str(tmp_path / "a"), lambda: None) is None


def test_where_the_kernel_refuses_nothing_is_watched_or_left_open(tmp_path, monkeypatch):
    before = descriptors()
    (tmp_path / "file").touch()
    watches = FolderWatches()
    assert watches.watch(str(tmp_path / "file"), lambda: None) is None
    assert watches.watch(str(tmp_path / "none"), lambda: None) is None
    assert watches.count == 0
    assert descriptors() <= before  # one that another test has left may end meanwhile

    monkeypatch.setattr(_folder_watch, "_LOCAL", frozenset())  # a network's file system
    assert watches.watch(str(tmp_path), lambda: None) is None
    monkeypatch.undo()

    class Refusing:
        def statfs(self, path, found):
            found[0:2] = (0xEF53).to_bytes(2, "little")
            return 0

        def inotify_init1(self, flags):
            ctypes.set_errno(errno.EMFILE)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Refusing())
    assert watches.watch(str(tmp_path), lambda: None) is None
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    assert watches.watch(str(tmp_path), lambda: None) is None
    monkeypatch.setattr(sys, "platform", "darwin")
    assert watches.watch(str(tmp_path), lambda: None) is None


def test_after_lost_notifications_everybody_is_told():
    watches, first, second = FolderWatches(), lambda: None, lambda: None
    watches._watchers = {1: {"a": first}, 2: {"b": second}}
    assert set(watches._watchers_of(_folder_watch._EVENT.pack(-1, 0x4000, 0, 0))) == {first, second}


def test_a_forked_child_begins_anew(tmp_path):
    store, notified = LocalStore(tmp_path), []
    store.put("a/0", b"")
    end = store.watch("a/", lambda: notified.append(1))
    assert end is not None
    child = os.fork()
    if child == 0:
        news = threading.Event()
        is_right = descriptors() == 0
        store.watch("a/", news.set)
        store.create("a/1", b"")
        os._exit(0 if news.wait(60) and is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    until(lambda: bool(notified))
    end()


def test_a_store_in_memory_tells_nothing():
    assert MemoryStore().watch("a/", lambda: None) is None
