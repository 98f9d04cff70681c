"""Numbers of generations, which never restart (rule L8, one log), also where a group's generations were deleted.

A stable group's newest generation may be months old, so a rule by age can delete all there are. The stamps in the
group's offset table, and what its members say of themselves, still name numbers that were used: a log begins above
them. One that began at 1 nevertheless, by a client that didn't know this, is filled up until it is above them. Else no
member could ever take a partition again (rule G1, stamps).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from sparklog.clock import Deadline
from sparklog.groups.membership.generations import (
    Generation,
    GenerationLog,
    GenerationPlan,
    encode_generation,
    generation_log,
)
from sparklog.groups.offsets.changes import GENERATION_FENCE
from sparklog.groups.offsets.offset_state import look_once, offset_log
from sparklog.groups.offsets.rows import Rows
from sparklog.log import Cluster
from sparklog.logs import about
from sparklog.model import TopicPartition
from sparklog.storage.entry_log import Created, PositionLost
from sparklog.storage.log_ground import check_ground
from sparklog.storage.position import Position

__all__ = ["FollowedGenerations", "first_position", "greatest_stamp", "not_to_be_taken", "read_rows"]

_LOGGER = logging.getLogger("sparklog.groups")


def greatest_stamp(rows: Rows) -> int:
    """The greatest number of a generation that a group's offset table names; 0 where it names none."""
    return max((row.stamp.generation for row in rows.values()), default=0)


def not_to_be_taken(newest: Generation | None, rows: Rows) -> TopicPartition | None:
    """A partition that no member of a group's newest generation can take, since the stamp in its row is of a generation
    that isn't in the log: the group's numbers have restarted. None where there is none.

    Args:
        newest: looked for after ``rows`` were read: a generation is created before its stamps.
    """
    number, members = (newest.version, newest.plan.members) if newest is not None else (0, {})
    for partition, row in rows.items():
        is_later = row.stamp.generation > number
        is_anothers = row.stamp.generation == number and row.stamp.member not in ("", *members)
        is_fenced = partition == GENERATION_FENCE and row.stamp.generation == number and bool(members)
        if is_later or is_anothers or is_fenced:
            return partition
    return None


def read_rows(cluster: Cluster, group: str) -> Rows:
    """The rows of a group's offset table. A LIST and two GETs as a rule. Raises ``CorruptLogError``, ``StoreError``."""
    return look_once(offset_log(cluster, group))


def first_position(log: GenerationLog, position: Position, used: int) -> Position | None:
    """The position from which the first generation of an empty log is created; None: there are generations by now.

    Of those that find the log empty at once, all that look for used numbers before any generation is created find the
    same; those that look later list it once more.

    Args:
        position: of the empty log.
        used: the greatest number that was used before, looked for after the log was listed.
    """
    if used == 0:
        return position
    return None if log.numbers() else replace(position, version=used)


class FollowedGenerations:
    """A group's generations as one member follows them; owned by one thread."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self.log = generation_log(cluster, group)
        self._position: Position | None = None
        self.used = 0
        """The greatest number that was used before the group's numbers restarted, as far as is known."""

    @property
    def is_open(self) -> bool:
        """Were they looked at yet?"""
        return self._position is not None

    def open(self) -> Generation | None:
        """The newest one. A LIST and a GET. Raises as :meth:`~sparklog.storage.entry_log.NumberedLog.open_newest`."""
        newest, self._position = self.log.open_newest()
        return newest

    def look(self, ahead: int) -> Sequence[Generation]:
        """The generations that follow, up to ``ahead``. A GET each; while there is none, a LIST: the number that a new
        log begins with is its creator's.

        Raises:
            PositionLost: they are to be opened again.
        """
        position = self._position
        if position is None:
            return ()
        if position.version == 0:
            newest = self.open()
            return () if newest is None else (newest,)
        found = self.log.look(position, ahead=ahead)
        if found.entries:
            self.log.flush(found.position.version)
        self._position = found.position
        return found.entries

    def create(self, plan: GenerationPlan, told: Iterable[int], *, deadline: Deadline) -> Generation | None:
        """Create the next generation; None: others did, or the log isn't known.

        Args:
            told: the generations that members act upon, as they say.
        Raises:
            PositionLost: they are to be opened again.
            CommitStateUnknownError, CorruptLogError, StoreError.
        """
        position = self._position
        if position is not None and position.version == 0:
            used = max(greatest_stamp(self.read_rows()), *told, 0)
            position = first_position(self.log, position, used)
        if position is None:
            return None
        encode = partial(encode_generation, plan)
        outcome = self.log.create_next(position, encode, tokens=set(), deadline=deadline, sync=True)
        if not isinstance(outcome, Created):
            return None
        self._position = outcome.position
        return Generation(version=outcome.position.version, token=outcome.position.token, plan=plan)

    def read_rows(self) -> Rows:
        """The rows of the group's offset table. A LIST and two GETs as a rule. Raises as :func:`read_rows`."""
        return read_rows(self._cluster, self._group)

    def is_behind_a_gap(self, newest: Generation | None, rows: Rows) -> bool:
        """Find out why a take was refused, where no generation in the log explains it; see :func:`not_to_be_taken`.

        True: the log goes on behind a gap, or isn't the same any more: it is to be opened again. Else numbers have
        restarted, and :attr:`used` says how far.
        """
        partition = not_to_be_taken(newest, rows)
        if partition is None or self._position is None:
            return False
        try:
            self._position = check_ground(self.log, self._position)
        except PositionLost:
            return True
        self.used = greatest_stamp(rows)
        _LOGGER.warning(
            "group %s: its newest generation is %d, though %s-%d was taken in generation %d: generations were deleted "
            "by others than sparklog; their numbers are passed now",
            self._group,
            newest.version if newest is not None else 0,
            *partition,
            rows[partition].stamp.generation,
            extra=about(group=self._group),
        )
        return False
