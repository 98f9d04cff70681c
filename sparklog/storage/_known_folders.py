"""The folders that a store has seen in its root: what it makes anew once they are gone, and what it doesn't (rule L17,
ground)."""

from __future__ import annotations

import os
from collections.abc import Callable

from sparklog.errors import StoreReplacedError
from sparklog.paths import is_kept_folder

__all__ = ["KnownFolders"]

_MOST_KNOWN = 65_536


class KnownFolders:
    """A store's root, and the folders in it that nothing of ours ever removes; for any thread.

    One that was there and isn't any more was unmounted, moved or deleted. If a write made it again, what is in the
    former one could no longer be put back in its place.
    """

    def __init__(self, root: str, shown: str) -> None:
        """
        Args:
            root: the folder, resolved; ``shown`` is how its user names it.
        """
        self._root = root
        self._shown = shown
        self._known: dict[str, None] = {}
        """Relative to the root, the oldest first."""
        self._root_is_known = os.path.isdir(root)
        self._numbers = _numbers_of(root)
        """Device and inode of the root when it was last known to be the right one."""

    def begin_anew(self, *, root_is_known: bool) -> None:
        """Forget all folders. ``root_is_known``: it is there, and isn't made again."""
        self._known = {}
        self._root_is_known = root_is_known
        self._numbers = _numbers_of(self._root)

    def check_root(self, check: Callable[[], None]) -> None:
        """Do ``check``, and raise what it raises, if another folder has the root's name than when that was last known
        to be the right one, or none has it."""
        found = _numbers_of(self._root)
        if found != self._numbers:
            check()
            self._numbers = found  # a network file system that is mounted again has others

    def note(self, folder: str) -> None:
        """Note that a folder is there. ``folder``: relative to the root, without a trailing slash."""
        if folder in self._known or not folder or not is_kept_folder(folder):
            return
        self._root_is_known = True
        self._known[folder] = None
        if len(self._known) > _MOST_KNOWN:  # many at once: other threads add meanwhile, so all are copied, in one step
            for oldest in list(self._known)[: _MOST_KNOWN // 8]:
                self._known.pop(oldest, None)
        self.note(folder.rpartition("/")[0])

    def check_there(self, folder: str) -> None:
        """Raises ``StoreReplacedError`` if a folder, or one that it is in, was there once and is gone."""
        outer = folder
        while outer:
            if outer in self._known:  # if that is there, so is what it is in
                if not os.path.isdir(f"{self._root}/{outer}"):
                    raise self.gone(folder)
                return
            outer = outer.rpartition("/")[0]

    def check_may_make(self, folder: str) -> None:
        """Raises ``StoreReplacedError`` if a folder, or one that it is in, mustn't be made: it was there once."""
        if self._root_is_known and not os.path.isdir(self._root):
            raise self.gone(folder)
        self.check_there(folder)

    def exchanged(self, folder: str) -> StoreReplacedError:
        """The error that says that another folder, or none, has a folder's name."""
        if not os.path.isdir(f"{self._root}/{folder}"):
            return self.gone(folder)
        return StoreReplacedError(
            f"another folder is at {self._shown}/{folder} now: it was exchanged, expected the one whose log was read; "
            "nothing was written there"
        )

    def gone(self, folder: str) -> StoreReplacedError:
        """The error that says that a folder is gone, perhaps with one that it is in."""
        outer = outermost = folder
        while outer and not os.path.isdir(f"{self._root}/{outer}"):
            outermost, outer = outer, outer.rpartition("/")[0]
        if not os.path.isdir(self._root):
            outermost = ""
        place = f"{self._shown}/{outermost}".rstrip("/")
        within = "" if outermost == folder else f", and {folder} with it"
        return StoreReplacedError(
            f"the folder {place} is gone{within}: it was unmounted, moved or deleted, expected what was opened there; "
            "this client goes on once it is back"
        )


def _numbers_of(folder: str) -> tuple[int, int] | None:
    """Device and inode of a folder; None where there is none, or it can't be asked for."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino
