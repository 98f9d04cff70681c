"""Files that have no name until they are whole: Linux's ``O_TMPFILE``.

A file that is linked to its name once it is written touches its folder once. A temporary file touches it three times,
is reported to whoever watches the folder, and stays when its process is killed.

What is flushed while it has no name need not be on the disk once it has one: btrfs logs no inode without a link
(``btrfs_log_inode_parent``), so after a power loss its name may be there, by the flush of its folder, and its bytes
not. So what is to be durable is written so only to file systems that are known to keep it.
"""

from __future__ import annotations

import errno
import os

from sparklog.storage.foothold import HeldFolder

__all__ = ["NOT_LINKED", "NamelessFiles"]

_FLAG = getattr(os, "O_TMPFILE", 0)
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS}
"""The answers of file systems, and of old kernels, that have no such files."""

NOT_LINKED = {errno.EXDEV, errno.ELOOP, errno.EINVAL}
"""The errors of a link that wasn't made, beside those of any link: the name that /proc has wasn't followed."""

_REFUSED = NOT_LINKED | {errno.ENOENT, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS}
"""The errors of links by which no such file is ever given a name: there is no /proc, or a sandbox doesn't let it be
used. A disk that is full, say, is so for a while."""

_KEEPING = {b"ext4", b"xfs", b"tmpfs"}
"""File systems whose flushes of a file without a name, and then of the folder of its name, make both durable."""


class NamelessFiles:
    """Opens them and gives them names, as long as the system has them; for any thread."""

    def __init__(self) -> None:
        self.is_supported = bool(_FLAG)
        """Not any more once the file system, or a sandbox, has refused one for good."""
        self._keeping: dict[int, bool] = {}
        """By device."""

    def open(self, folder: str, *, sync: bool = False, held: HeldFolder | None = None) -> int | None:
        """A descriptor to write to a new file in ``folder``; None: not here, or not now.

        Args:
            sync: it is to be flushed before it gets its name, and then to be durable with its folder.
            held: the same folder, held open.
        """
        if not self.is_supported:
            return None
        try:
            if sync and not self._keeps(os.stat(folder).st_dev if held is None else held.device):
                return None
            flags = os.O_WRONLY | _FLAG | os.O_CLOEXEC
            if held is not None:
                return os.open(".", flags, 0o666, dir_fd=held.descriptor)
            return os.open(folder, flags, 0o666)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                self.is_supported = False
            return None

    def name(self, descriptor: int, target: str, *, held: HeldFolder | None = None) -> None:
        """Give a file its name, if that is free. ``held``: the folder that it is relative to. Raises ``OSError`` as
        ``os.link``."""
        within = {} if held is None else {"dst_dir_fd": held.descriptor}
        # With a folder given, though unused, Python calls linkat, which follows the link that /proc has.
        os.link(f"/proc/self/fd/{descriptor}", target, src_dir_fd=descriptor, follow_symlinks=True, **within)

    def _keeps(self, device: int) -> bool:
        keeps = self._keeping.get(device)
        if keeps is None:
            self._keeping[device] = keeps = _kind_of(device) in _KEEPING
        return keeps

    def note_refused(self, folder: str, error: OSError) -> None:
        """Note why a file couldn't be given a name in a folder: if that is there, /proc isn't, or may not be used."""
        if error.errno in _REFUSED and os.path.isdir(folder):
            self.is_supported = False


def _kind_of(device: int) -> bytes | None:
    """The kind of file system on a device; None: it isn't known. Source: proc_pid_mountinfo(5)."""
    number = b"%d:%d" % (os.major(device), os.minor(device))
    with open("/proc/self/mountinfo", "rb") as mounts:
        for mount in mounts:
            place, _, of_system = mount.partition(b" - ")
            if place.split()[2] == number:
                return of_system.split()[0]
    return None  # btrfs gives files other numbers than its mounts
