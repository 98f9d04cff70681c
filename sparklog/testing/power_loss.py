"""A disk that forgets what nobody flushed: what a power loss leaves of a local folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from sparklog.errors import ObjectNotFoundError
from sparklog.storage.base import CreateResult, ObjectStore
from sparklog.testing.wrapped_store import WrappedStore

__all__ = ["Disk", "PowerLossStore"]

_CHANCES = (0.0, 0.3, 0.7, 1.0)
"""Chances that a change which isn't durable is lost. Drawn once for a power loss, so that all of them and none go,
too."""


class Disk:
    """The disk that the processes of one machine share. Not for several threads at once.

    Args:
        store: holds what is visible; what is in it already is durable.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._durable = self.objects()
        self._contents: dict[str, bytes] = {}
        """Bytes that are on the disk, under a name that may not be: such an object is there whole, or not at all."""

    def objects(self) -> dict[str, bytes]:
        """The bytes of all visible objects, by path."""
        return {found.path: self._store.read(found.path) for found in self._store.list("")}

    def content_is_flushed(self, path: str, data: bytes) -> None:
        """Note a flush of whatever object has this path: if it holds these bytes, they aren't torn."""
        self._contents[path] = data

    def flush(self, paths: Iterable[str], flush: Callable[[], None]) -> None:
        """Call ``flush``; then the objects survive that have these paths now, as they are now."""
        present = {path: data for path in paths if (data := self.read(path)) is not None}
        self._flush(present, present, flush)

    def flush_all(self, flush: Callable[[], None]) -> None:
        """Call ``flush``; then everything survives as it is now, and nothing comes back that is deleted by now."""
        present = self.objects()
        self._flush(present.keys() | self._durable.keys(), present, flush)

    def _flush(self, paths: Iterable[str], present: Mapping[str, bytes], flush: Callable[[], None]) -> None:
        before = {path: self._durable.get(path) for path in paths}
        flush()
        for path, data in before.items():
            if self._durable.get(path) != data:
                continue  # another has flushed it meanwhile, as it was by then
            if path in present:
                self._durable[path] = present[path]
            else:
                self._durable.pop(path, None)

    def read(self, path: str) -> bytes | None:
        """The bytes that are visible at a path, or None."""
        try:
            return self._store.read(path)
        except ObjectNotFoundError:
            return None

    def lose_power(self, random: Random) -> list[str]:
        """The power fails and comes back: of what isn't durable each change is lost, spoilt or there, by chance.

        Whoever worked on this disk is gone, and must not call it again. What is left is durable.

        Returns:
            The paths that were lost, spoilt, or came back.
        """
        chance = random.choice(_CHANCES)
        hit = {}
        for path in sorted(self._unsure()):
            if random.random() < chance:
                hit[path] = random.choice(self._may_be_left(path, random))
        return self._leave(hit)

    def lose(self, paths: Iterable[str], *, torn: bool = False) -> list[str]:
        """The power fails, and takes these objects as far as they aren't durable; everything else is there.

        Args:
            torn: leave what may be torn empty, instead of taking it away.
        Returns:
            As :meth:`lose_power`.
        """
        lost = self._unsure() & {*paths}
        return self._leave(
            {path: b"" if torn and self._may_be_torn(path) else self._durable.get(path) for path in lost}
        )

    def _unsure(self) -> set[str]:
        """The paths of what isn't durable as it is visible."""
        visible = self.objects()
        return {path for path in visible.keys() | self._durable.keys() if visible.get(path) != self._durable.get(path)}

    def _may_be_torn(self, path: str) -> bytes | None:
        """The bytes of an object whose content isn't known to be on the disk; None where there is nothing to tear."""
        data = self.read(path)
        return data if data and self._contents.get(path) != data else None

    def _may_be_left(self, path: str, random: Random) -> list[bytes | None]:
        """The contents that a power loss may leave: what was durable, or nothing; and torn: empty, cut, or all
        zeros."""
        left, data = [self._durable.get(path)], self._may_be_torn(path)
        return [*left, b"", data[: random.randrange(len(data))], bytes(len(data))] if data else left

    def _leave(self, hit: Mapping[str, bytes | None]) -> list[str]:
        for path, data in hit.items():
            if data is None:
                self._store.delete([path])
            else:
                self._store.put(path, data)
        self._durable = self.objects()
        return sorted(hit)


class PowerLossStore(WrappedStore):
    """A disk as one process sees it, which forgets in a power loss what :class:`~sparklog.storage.LocalStore` may.

    ``sync=True`` flushes the content, gives it its name, and makes the name durable by a call of its own, ``sync``,
    before which the process may die. Of what was written without, a power loss may leave nothing, or an object that is
    empty, cut or all zeros; what was replaced may be the old object, and what was deleted may be back. ``sync`` makes
    durable the objects that it names, as they were when it was called; ``sync_all`` everything. That the fsync of a
    folder saves the names of other objects in it, as on most file systems, nobody may rely on.

    Args:
        disk: of the machine that the process runs on.
        store: what carries the disk's calls out for this process, with its faults and interruptions.
    """

    def __init__(self, disk: Disk, store: ObjectStore) -> None:
        super().__init__(store)
        self._disk = disk

    @property
    def may_tear(self) -> bool:
        return True

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        if sync:
            self._disk.content_is_flushed(path, data)
        self._store.put(path, data)
        if sync:
            self._flush([path])

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        if sync:
            self._disk.content_is_flushed(path, data)
        result = self._store.create(path, data)
        if sync and result is CreateResult.CREATED:
            self._flush([path])
        return result

    def sync(self, paths: Iterable[str]) -> None:
        self._flush([*paths])

    def sync_all(self) -> None:
        self._disk.flush_all(self._store.sync_all)

    def _flush(self, paths: Sequence[str]) -> None:
        self._disk.flush(paths, lambda: self._store.sync(paths))
