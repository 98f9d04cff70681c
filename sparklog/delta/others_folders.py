"""Folders below one of ours that hold another cluster or another table: nothing in them is deleted, whoever made them.

A cluster that is made now lies in no other one, but there are those that were made before, and other engines' tables
may lie anywhere.
"""

from __future__ import annotations

import re

from sparklog.delta.names import log_folder
from sparklog.paths import CLUSTER_FILE
from sparklog.storage.base import ObjectStore
from sparklog.storage.ground import cluster_id_of

__all__ = ["OthersFolders"]

_LOG = log_folder("").strip("/")
_NO_TABLE = re.compile(r"(?!)")


class OthersFolders:
    """The folders of others below a folder, as a whole listing of that passes by. For one thread.

    Args:
        folder: ours, with a trailing slash; what is directly in it is ours.
        own_tables: the names of folders directly in it that hold tables of ours.
    """

    def __init__(self, store: ObjectStore, folder: str, own_tables: re.Pattern[str] = _NO_TABLE) -> None:
        self._store = store
        self._folder = folder
        self._own_tables = own_tables
        self._tables: set[str] = set()
        self._with_cluster_file: set[str] = set()
        self._found: tuple[str, ...] | None = None

    def note(self, path: str) -> None:
        """Note an object of the listing."""
        if _LOG in path or path.endswith(CLUSTER_FILE):
            *folders, name = path.removeprefix(self._folder).split("/")
            tables = ("/".join(folders[:depth]) for depth, part in enumerate(folders) if part == _LOG)
            others = [table for table in tables if table and not self._own_tables.fullmatch(table)]
            if others:
                self._tables.add(f"{self._folder}{others[0]}/")
            elif name == CLUSTER_FILE and folders:
                self._with_cluster_file.add(f"{self._folder}{'/'.join(folders)}/")

    def found(self) -> tuple[str, ...]:
        """The folders, sorted, each with a trailing slash; those within others are left out.

        A GET for each ``cluster.json`` that was listed. Raises ``StoreError``.
        """
        if self._found is None:
            named = sorted(self._with_cluster_file)
            files = self._store.read_many([f"{folder}{CLUSTER_FILE}" for folder in named]) if named else ()
            clusters = {
                folder
                for folder, data in zip(named, files, strict=True)
                if data is not None and cluster_id_of(data) is not None
            }
            outer: list[str] = []
            for folder in sorted(self._tables | clusters):
                if not folder.startswith(tuple(outer)):
                    outer.append(folder)
            self._found = tuple(outer)
        return self._found

    def spares(self, path: str) -> bool:
        """Does an object belong to one of them?"""
        return path.startswith(self.found())
