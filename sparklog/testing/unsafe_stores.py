"""Stores whose create-only put is none: what the probe has to refuse."""

from __future__ import annotations

import time

from sparklog.errors import ObjectNotFoundError
from sparklog.storage.base import CreateResult
from sparklog.testing.wrapped_store import WrappedStore

__all__ = ["CheckThenWriteStore", "OverwritingStore", "WrongBytesStore"]

_GAP_S = 0.005  # long enough for racers that start together to fall into


class CheckThenWriteStore(WrappedStore):
    """Looks whether the name is free, then writes: refuses a second create in sequence, yet lets racers all win."""

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        try:
            self._store.read(path)
        except ObjectNotFoundError:
            time.sleep(_GAP_S)
            self._store.put(path, data, sync=sync)
            return CreateResult.CREATED
        return CreateResult.EXISTS


class OverwritingStore(WrappedStore):
    """Ignores the condition: every create writes and says so."""

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        self._store.put(path, data, sync=sync)
        return CreateResult.CREATED


class WrongBytesStore(WrappedStore):
    """Reports to one racer that it won, and stores what another one wrote."""

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        result = self._store.create(path, data, sync=sync)
        if result is CreateResult.EXISTS:
            self._store.put(path, data, sync=sync)
        return result
