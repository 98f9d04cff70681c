"""The store error that an ``OSError`` of a local file system means."""

from __future__ import annotations

import errno

from sparklog.errors import (
    ObjectNotFoundError,
    StoreError,
    StoreFullError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
    UnsafeStoreError,
)

__all__ = ["linking", "reading", "removing", "replacing", "syncing", "writing"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
# The file system answered before it changed anything: a link or rename that fails so was not carried out.
_REFUSED = {errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EBUSY, errno.EINTR}


def reading(error: OSError, path: str) -> StoreError:
    """A read, or a listing, failed: nothing was changed."""
    if error.errno in _ABSENT:
        return ObjectNotFoundError(f"{path}: no such object")
    return _definite(error, "read", path)


def writing(error: OSError, path: str) -> StoreError:
    """Something failed before the object's name was touched: nothing visible was written."""
    return _definite(error, "write", path)


def removing(error: OSError, path: str) -> StoreError:
    """An unlink failed; repeating it does no harm."""
    return _definite(error, "delete", path)


def linking(error: OSError, path: str) -> StoreError:
    """A link failed. That the folder may be written was proved by the temporary file just before."""
    if error.errno in _NO_LINKS:
        return UnsafeStoreError(
            f"create {path}: the file system has no hard links ({_said(error)}), so a file can't be created only if "
            "its name is free"
        )
    return _naming(error, "create", path)


def replacing(error: OSError, path: str) -> StoreError:
    """A rename over the object's name failed."""
    return _naming(error, "write", path)


def syncing(error: OSError, path: str) -> StoreError:
    """A flush failed after the name was visible: what was written may be lost by a power loss, or may not."""
    return StoreOutcomeUnknownError(f"sync {path}: {_said(error)}; what is visible may not survive a power loss")


def _naming(error: OSError, what: str, path: str) -> StoreError:
    definite = _FULL | _FORBIDDEN | _REFUSED | _ABSENT | {errno.ENOTEMPTY, errno.ENAMETOOLONG}
    if error.errno in definite:
        return _definite(error, what, path)
    return StoreOutcomeUnknownError(f"{what} {path}: {_said(error)}; it may have been carried out")


def _definite(error: OSError, what: str, path: str) -> StoreError:
    message = f"{what} {path}: {_said(error)}"
    if error.errno in _FULL:
        return StoreFullError(message)
    if error.errno in _FORBIDDEN:
        return StorePermissionError(message)
    if error.errno in {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY}:
        return StoreError(f"{message}; a file is where a folder is expected, or a folder where a file is")
    if error.errno in {errno.ENAMETOOLONG, errno.ELOOP}:
        return StoreError(message)
    return StoreUnavailableError(message)


def _said(error: OSError) -> str:
    return f"{errno.errorcode.get(error.errno or 0, 'error')}, {error.strerror or error}"
