"""Gaps for foreign writers: short pauses of all sparklog writers, in which another engine's commit comes through.

Other engines commit as Delta's protocol has it: they list the log, read every commit that they don't know, check it,
and create the next version, which takes from ten milliseconds to seconds. Beside a producer that commits more often
than that they lose every race. So an entry of ours may ask for a gap: whoever wants to create the version after it has
read or written it, and waits. No clock is shared, and nothing depends on a gap: an older sparklog passes over it, and a
writer whose time is short waits for at most half of what is left.

When to ask is decided here: while files of another engine lie in the table's folder that no commit has named yet, and
where another engine has committed a moment ago. It costs nothing where no other engine writes, but a listing every five
seconds by a topic's producers while they commit more often than twice a second.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from itertools import islice

from sparklog.clock import Deadline
from sparklog.delta.log import DeltaLog
from sparklog.errors import StoreError
from sparklog.log.state import TopicState
from sparklog.workers import Background, Run

__all__ = ["GAP_SETTING", "ForeignGaps", "wait_for_gap"]

_LOGGER = logging.getLogger(__name__)

GAP_SETTING = "foreign.gap.interval.ms"
AUTOMATIC, NEVER = -1, 0
"""Values of the setting; any other number is how often a gap is left."""

WAITING_GAPS_MS = (500.0, 1_000.0, 2_000.0, 4_000.0, 8_000.0)
"""One after the other while a foreign file waits for its commit; the last again and again."""
SHORT_GAP_MS, SHORT_GAP_EVERY_MS = 100.0, 1_000.0
"""While another engine has committed lately: the next such commit may be one of an engine that gives up soon."""
_LATELY_MS = 120_000.0
_DUTY = 5
"""A gap is at most this part of the time: as one ends, the next begins after four times as long at the earliest."""
_LONGEST_SET_GAP_MS = 2_000.0

_LOOK_EVERY_MS = 5_000.0
_LOOK_EVERY_LATELY_MS = 2_000.0
_LONGEST_LOOK_EVERY_MS = 300_000.0
_FAST_PER_S = 2.0
_GIVEN_UP_MS = 180_000.0
"""A file that waits for longer was left by a writer that died, or failed."""
_YOUNG_MS = 15_000
"""A file that was written longer before this writer's first commit had its chance; and perhaps it was committed
unseen."""
_MAX_LISTED = 10_000
"""Files of a folder that are listed: where more foreign files lie, they come so often that gaps are left for what came
lately."""
_PARTITIONS_PER_LOOK = 3
_NULL = "__HIVE_DEFAULT_PARTITION__"
"""How engines write null into the names of folders. Source: Apache Hive, ``hive.exec.default.partition.name``."""
_SLICE_MS, _SHORTEST_SLEEP_MS = 50.0, 1.0


def wait_for_gap(state: TopicState, gaps: ForeignGaps | None, *, deadline: Deadline) -> None:
    """Wait until the gap ends that the newest entries ask for, if they do.

    Args:
        gaps: of the writer that is about to commit.
        deadline: of the commit; a gap takes at most half of the time that is left.
    """
    if state.gap_until_ticks_ms == float("-inf"):  # none was ever asked for
        return
    clock = state.log.clock
    now = clock.ticks_ms()
    until = min(state.gap_until_ticks_ms, (now + deadline.ticks_ms) / 2)
    while until - now >= _SHORTEST_SLEEP_MS:
        if gaps is not None and gaps.finish_by_ticks_ms > now:
            until = min(until, (now + gaps.finish_by_ticks_ms) / 2)
        clock.sleep_ms(min(_SLICE_MS, max(0.0, until - now)))
        now = clock.ticks_ms()


class ForeignGaps:
    """Decides when the entries of a topic's writer ask for a gap, and how long it is."""

    def __init__(self, *, run: Run | None = None) -> None:
        """
        Args:
            run: starts a look at the table's folder; by default in a thread of its own.
        """
        self._background = Background("foreign-writers", run)
        self._waiting: Mapping[str, float] = {}
        """Files that no commit has named yet, and when they were first seen. Replaced by each look."""
        self._listed: dict[str, frozenset[str]] = {}
        """By folder: what the newest look found there."""
        self._next_partition = 0
        self._gaps_before: int | None = None
        """How many gaps the log had asked for when a file began to wait; None: none waits."""
        self._first_step = 0
        """In ``WAITING_GAPS_MS``: the gap for the next file that waits."""
        self._look_every_ms = _LOOK_EVERY_MS
        self._young_since_ms = 0
        self._counted_since: tuple[float, int] | None = None
        """When counting began, and the version then."""
        self._own_commits = 0
        self._is_fast = False
        self.finish_by_ticks_ms = float("-inf")
        """When somebody gives up who waits for the writer's commits: until then, a gap takes at most half of the time
        that is left. Set by any thread."""

    def gap_ms(self, state: TopicState) -> int:
        """The gap that the next entry asks for, in milliseconds; mostly 0. Calls no store.

        Belongs to the thread that commits.
        """
        interval_ms = state.head.config.integer(GAP_SETTING)
        if interval_ms == NEVER or (interval_ms == AUTOMATIC and not self._is_fast):
            return 0
        now = state.log.clock.ticks_ms()
        if now < state.gap_until_ticks_ms + (_DUTY - 1) * state.gap_ms:  # whoever asked for the last one
            return 0
        since_ms = now - (state.gap_until_ticks_ms - state.gap_ms)
        if interval_ms != AUTOMATIC:
            return int(min(interval_ms / _DUTY, _LONGEST_SET_GAP_MS)) if since_ms >= interval_ms else 0
        if self._waiting:
            if self._gaps_before is None:
                self._gaps_before = state.gap_count
            step = self._first_step + state.gap_count - self._gaps_before
            return int(WAITING_GAPS_MS[min(step, len(WAITING_GAPS_MS) - 1)])
        self._gaps_before = None
        is_lately = now - state.foreign_ticks_ms <= _LATELY_MS
        return int(SHORT_GAP_MS) if is_lately and since_ms >= SHORT_GAP_EVERY_MS else 0

    def after_commit(self, state: TopicState) -> None:
        """Count this writer's newest commit, and look for foreign files where it is time to. Calls no store itself."""
        now, version = state.log.clock.ticks_ms(), state.position.version
        if self._waiting and state.foreign_paths.keys() >= self._waiting.keys():
            if self._gaps_before is not None:  # its engine will need about as long the next time
                last_step = self._first_step + state.gap_count - self._gaps_before - 1
                self._first_step = min(max(0, last_step - 1), len(WAITING_GAPS_MS) - 1)
            self._waiting, self._gaps_before = {}, None
        self._own_commits += 1
        if self._counted_since is None:
            self._counted_since = now, version
            self._young_since_ms = state.log.clock.now_ms() - _YOUNG_MS
        since, first = self._counted_since
        if now - since < self._look_every_ms:
            return
        versions = max(1, version - first)
        self._is_fast = versions / (now - since) * 1_000 >= _FAST_PER_S
        # Of many writers each looks the more seldom, the less it commits: all together every five seconds.
        every_ms = _LOOK_EVERY_LATELY_MS if now - state.foreign_ticks_ms <= _LATELY_MS else _LOOK_EVERY_MS
        self._look_every_ms = min(every_ms * max(1.0, versions / self._own_commits), _LONGEST_LOOK_EVERY_MS)
        self._counted_since, self._own_commits = (now, version), 0
        if self._is_fast and state.head.config.integer(GAP_SETTING) == AUTOMATIC:
            log, partition_count, named = state.log, state.head.partition_count, frozenset(state.foreign_paths)
            self._background.start(
                lambda: self._look(log, partition_count, named), f"a look for foreign writers of {log.table}"
            )

    def close(self) -> None:
        """Wait for a look that is under way."""
        self._background.close(_LOOK_EVERY_MS)

    def _look(self, log: DeltaLog, partition_count: int, named: Collection[str]) -> None:
        """List the folders where engines put files without offsets, and see which of them no commit has named."""
        now, waiting = log.clock.ticks_ms(), dict(self._waiting)
        try:
            for folder in self._folders(partition_count):
                prefix = f"{log.table}/"
                found = {
                    one.path.removeprefix(prefix): one.modified_ms
                    for one in islice(log.store.list(prefix + folder), _MAX_LISTED)
                    if _is_data_file(one.path)
                }
                before = self._listed.get(folder)
                for path, modified_ms in found.items():
                    if (modified_ms >= self._young_since_ms) if before is None else (path not in before):
                        waiting.setdefault(path, now)
                self._listed[folder] = frozenset(found)
        except StoreError as error:  # the next look comes
            _LOGGER.info("%s: files of other engines can't be listed: %s", log.table, error)
        self._waiting = {
            path: since for path, since in waiting.items() if path not in named and now - since <= _GIVEN_UP_MS
        }

    def _folders(self, partition_count: int) -> list[str]:
        """The folders to look at. Of many partitions some at a time: few writers say a partition."""
        count = min(partition_count, _PARTITIONS_PER_LOOK)
        partitions = [(self._next_partition + number) % partition_count for number in range(count)]
        self._next_partition = (self._next_partition + count) % partition_count
        return [f"partition={partition}/base_offset={_NULL}/" for partition in (_NULL, *partitions)]


def _is_data_file(path: str) -> bool:
    """Beside each of its files, Spark leaves a hidden one with checksums on a local file system."""
    name = path.rpartition("/")[2]
    return name.endswith(".parquet") and not name.startswith((".", "_"))
