"""Files that have no name until they are whole: Linux's ``O_TMPFILE``.

A file that is linked to its name once it is written touches its folder once. A temporary file touches it three times,
is told to whoever watches the folder, and stays when its process is killed.
"""

from __future__ import annotations

import errno
import os

__all__ = ["NOT_LINKED", "NamelessFiles"]

_FLAG = getattr(os, "O_TMPFILE", 0)
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS}
"""The answers of file systems, and of old kernels, that have no such files."""

NOT_LINKED = {errno.EXDEV, errno.ELOOP, errno.EINVAL}
"""The errors of a link that wasn't made, beside those of any link: the name that /proc has wasn't followed."""


class NamelessFiles:
    """Opens them and gives them names, as long as the system has them; for any thread."""

    def __init__(self) -> None:
        self.is_supported = bool(_FLAG)
        """Not any more once the file system, or a sandbox, has refused one for good."""

    def open(self, folder: str) -> int | None:
        """A descriptor to write to a new file in ``folder``; None: not here, or not now."""
        if not self.is_supported:
            return None
        try:
            return os.open(folder, os.O_WRONLY | _FLAG | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                self.is_supported = False
            return None

    def name(self, descriptor: int, target: str) -> None:
        """Give a file its name, if that is free. Raises ``OSError`` as ``os.link``."""
        # With a folder given, though unused, Python calls linkat, which follows the link that /proc has.
        os.link(f"/proc/self/fd/{descriptor}", target, src_dir_fd=descriptor, follow_symlinks=True)

    def note_refused(self, folder: str) -> None:
        """Note that a file couldn't be given a name in a folder: if that is there, /proc isn't, or may not be used."""
        if os.path.isdir(folder):
            self.is_supported = False
