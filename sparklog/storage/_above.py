"""Looking into the folders above a local root."""

from __future__ import annotations

import os
from pathlib import Path

from sparklog.errors import ObjectNotFoundError, StorePermissionError
from sparklog.storage import _local_errors as failed

__all__ = ["read_above"]


def read_above(root: str, name: str) -> list[tuple[str, bytes]]:
    """The files called ``name`` in the folders above ``root``, by its name and by where its links lead: a listing from
    above may come both ways. Each with its folder's URI, the nearest first.

    Raises ``StoreError`` for what can't be read, but for the want of a permission."""
    found: list[tuple[str, bytes]] = []
    for folder in dict.fromkeys([*Path(root).parents, *Path(os.path.realpath(root)).parents]):
        file = folder / name
        try:
            found.append((folder.as_uri(), file.read_bytes()))
        except OSError as error:
            failure = failed.reading(error, str(file))
            if not isinstance(failure, ObjectNotFoundError | StorePermissionError):
                raise failure from error
    return found
