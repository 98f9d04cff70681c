"""The files that an entry is about to name: do they lie where its log is (rule L17, ground)?

While a prefix is emptied, or another is in its place, an upload goes into what is there. Once the right one is back, a
check of the ground finds nothing wrong, and the entry would name a file that isn't there. So what was uploaded before
the newest check of the ground is looked for after it. What was uploaded behind that check needs no look: a prefix that
is exchanged *and* put back between two checks is beyond what a client notices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from sparklog.delta.commit import UploadsGoneError
from sparklog.delta.log import DeltaLog
from sparklog.log.data.object_paths import object_path
from sparklog.parallel import parallel_map

__all__ = ["Confirmation"]


class Confirmation:
    """Memory of one commit, over all of its attempts: which of the files that its entries name are there."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._found: dict[str, float] = {}
        """When a look for a file began that found it."""

    def confirm(self, paths: Iterable[str], uploaded_at: Callable[[str], float], *, checked_ticks_ms: float) -> None:
        """Look for those of the files that were uploaded, or found, before a check of the ground: a small GET each,
        side by side. No request where there are none.

        Args:
            paths: relative to the table's folder.
            uploaded_at: a tick of the log's clock before the upload of a file began; -inf: not known.
            checked_ticks_ms: when that check began.
        Raises:
            UploadsGoneError: some aren't there.
            StoreError.
        """
        doubtful = [path for path in paths if uploaded_at(path) < checked_ticks_ms]
        doubtful = [path for path in doubtful if self.found_at(path) < checked_ticks_ms]
        if doubtful:
            self._look_for(doubtful)

    def found_at(self, path: str) -> float:
        """When a look for a file began that found it; -inf: there was none."""
        return self._found.get(path, -math.inf)

    def _look_for(self, paths: Sequence[str]) -> None:
        log, began = self._log, self._log.clock.ticks_ms()
        are_there = parallel_map(lambda path: log.store.exists(object_path(log.table, path)), paths)
        gone = [path for path, is_there in zip(paths, are_there, strict=True) if not is_there]
        if gone:
            raise UploadsGoneError(log.table, gone)
        self._found.update(dict.fromkeys(paths, began))
