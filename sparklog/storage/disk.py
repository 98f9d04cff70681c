"""The room on the disk of a store in a local folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

__all__ = ["DiskSpace", "disk_space"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """A disk: what this user may still write, and what there is in all."""

    free_bytes: int
    size_bytes: int
    free_inodes: int | None
    """Files and folders that can still be made; None: the file system has no limit of their number."""
    inodes: int | None

    @property
    def free_share(self) -> float:
        """The smaller of the shares that are free, of bytes and of i-nodes: 0 to 1."""
        shares = [self.free_bytes / self.size_bytes if self.size_bytes else 0.0]
        if self.inodes and self.free_inodes is not None:
            shares.append(self.free_inodes / self.inodes)
        return min(shares)


def disk_space(uri: str) -> DiskSpace | None:
    """The disk of the store with this URI. None: the store is no local folder, or the system doesn't say."""
    if not uri.startswith("file://"):
        return None
    try:
        found = os.statvfs(unquote(urlsplit(uri).path))
    except OSError:
        return None
    return DiskSpace(
        free_bytes=found.f_bavail * found.f_frsize,
        size_bytes=found.f_blocks * found.f_frsize,
        free_inodes=found.f_favail if found.f_files else None,
        inodes=found.f_files or None,
    )
