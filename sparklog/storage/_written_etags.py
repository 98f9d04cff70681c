"""The ETags that a bucket gives to what is written: whether an answer of success to a PUT is the bucket's own.

Its status alone proves nothing. The HTTP client below obstore follows a 303 by a GET, whose 200 obstore takes for the
PUT's; and a gateway or a login page may answer whatever it is asked with 200. Pure.
"""

from __future__ import annotations

import hashlib
import re

from sparklog.errors import StoreError, StoreOutcomeUnknownError

__all__ = ["WrittenEtags", "unreadable_write"]

_HASHED_BYTES = 64 * 2**10
"""Larger objects, whose sum takes 2 ms a megabyte, are judged by the ETag's form alone; one that is created isn't."""
_HEX = re.compile(r"[0-9a-f]")
_MD5_FORM = "h" * 32


class WrittenEtags:
    """Decides whether the answer to a PUT of some bytes is to be believed; if not, they must be read back.

    By default the ETag of an object that was put in one piece is the MD5 sum of its bytes: on S3, on most servers that
    speak its interface and on Google Cloud Storage. Azure, and objects encrypted by a key of the user's own, have
    others: their form is learned from an object that was read back. May be used from several threads.
    """

    def __init__(self) -> None:
        self._forms: frozenset[str] = frozenset()
        """The forms of ETags that are no MD5 sums."""

    def prove(self, etag: str | None, data: bytes, *, is_create: bool) -> bool:
        """Does an ETag prove that ``data`` was written?

        Args:
            etag: in the answer; None: it has none.
            is_create: the object is a name that is created; else a large one is judged by the ETag's form.
        """
        if not etag:
            return False
        form = _form(etag)
        if form in self._forms:
            return True
        if form != _MD5_FORM:
            return False
        if len(data) > _HASHED_BYTES and not is_create:
            return True
        return _bare(etag) == hashlib.md5(data, usedforsecurity=False).hexdigest()

    def confirm(self, name: str, etag: str | None, *, is_there: bool) -> None:
        """Settle a write whose ETag proves nothing, and learn the ETag's form.

        Args:
            name: of the request, for the message.
            is_there: was the object read back, and is it what was written?
        Raises:
            StoreOutcomeUnknownError: it isn't.
        """
        if not is_there:
            raise StoreOutcomeUnknownError(
                f"{name}: answered with a success that isn't the store's (ETag {etag}): the object isn't there, or is "
                "another; it may be written yet"
            )
        if etag:
            self._forms |= {_form(etag)}


def unreadable_write(name: str, error: StoreError) -> StoreOutcomeUnknownError:
    """The error where an object whose ETag proves nothing can't be read back, for whatever reason."""
    return StoreOutcomeUnknownError(f"{name}: answered with a success, but can't be read back: {error}")


def _bare(etag: str) -> str:
    return etag.removeprefix("W/").strip('"').lower()


def _form(etag: str) -> str:
    return _HEX.sub("h", _bare(etag))
