"""The entries that this process created a moment ago: whoever writes a checkpoint needn't read them back."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["RecentEntries"]

_MOST_BYTES = 2 * 2**20


class RecentEntries:
    """Bytes of one log's entries that were created here, each kept for ``keep_ms`` and until a checkpoint holds it; of
    more than 2 MiB the newest.

    An entry never changes, and is cleaned away no sooner than ten times ``tail_trust_ms`` after its successor came
    (rule L3, cleanup): so what was created less than ``tail_trust_ms`` ago is what a read would find.

    One thread adds, another one may read: each step is one operation on a dict.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[bytes, float, int]] = {}
        """By version, oldest first: the bytes, when they were created, and the bytes that were ever added by then."""
        self._added_bytes = 0

    def add(self, version: int, data: bytes, *, now_ticks_ms: float, keep_ms: float) -> None:
        """Keep the entry that was created as ``version``, and forget what is too old or too much."""
        self._added_bytes += len(data)
        self._entries[version] = (data, now_ticks_ms, self._added_bytes)
        for oldest, (each, created_ticks_ms, added_bytes) in list(self._entries.items()):
            kept_bytes = self._added_bytes - added_bytes + len(each)
            if kept_bytes <= _MOST_BYTES and now_ticks_ms - created_ticks_ms <= keep_ms:
                return
            self._entries.pop(oldest, None)

    def young(self, *, now_ticks_ms: float, keep_ms: float) -> Mapping[int, bytes]:
        """The entries that were created no longer than ``keep_ms`` ago, by version."""
        found = list(self._entries.items())
        return {version: data for version, (data, at_ms, _) in found if now_ticks_ms - at_ms <= keep_ms}

    def forget_until(self, version: int) -> None:
        """Forget the entries up to a version: a checkpoint holds them."""
        for older in list(self._entries):
            if older <= version:
                self._entries.pop(older, None)
