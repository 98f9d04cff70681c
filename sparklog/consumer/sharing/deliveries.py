"""The records that are locked for a member of a share group, and the application's acknowledgements. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparklog.errors import IllegalStateError, InvalidRecordStateError
from sparklog.groups.sharing.changes import Acknowledgement, AcknowledgeType
from sparklog.groups.sharing.states import StateRange
from sparklog.model import TopicPartition

__all__ = ["Deliveries"]


class Deliveries:
    """Which lock holds each record that was delivered, and the acknowledgements that are to be sent."""

    def __init__(self) -> None:
        self._locks: dict[TopicPartition, dict[int, int]] = {}
        """Offset to lock, of all that was delivered."""
        self._unshown: list[tuple[TopicPartition, StateRange]] = []
        """The deliveries that no poll has returned yet."""
        self._marked: dict[TopicPartition, dict[int, AcknowledgeType]] = {}

    def __len__(self) -> int:
        """The records in hand."""
        return sum(map(len, self._locks.values()))

    @property
    def unmarked_count(self) -> int:
        """The records in hand that weren't acknowledged."""
        return len(self) - sum(map(len, self._marked.values()))

    def deliver(self, partition: TopicPartition, acquired: StateRange) -> None:
        """Note records that were acquired, and are returned once :meth:`show` is called."""
        self._unshown.append((partition, acquired))
        locks = self._locks.setdefault(partition, {})
        locks.update(dict.fromkeys(range(acquired.first, acquired.last + 1), acquired.lock))

    def show(self) -> None:
        """Note that the application has all that was delivered."""
        self._unshown = []

    def release_unshown(self) -> None:
        """Give back what was acquired by a poll that failed or was interrupted before it returned."""
        for partition, acquired in self._unshown:
            locks, marked = self._locks.get(partition, {}), self._marked.setdefault(partition, {})
            for offset in range(acquired.first, acquired.last + 1):
                if locks.get(offset) == acquired.lock:
                    marked[offset] = AcknowledgeType.RELEASE
        self._unshown = []

    def mark(self, partition: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record; a second time before it is sent, the later kind counts.

        Raises:
            IllegalStateError: it isn't in hand.
        """
        if offset not in self._locks.get(partition, ()):
            raise IllegalStateError(
                f"offset {offset} of {partition.topic}-{partition.partition} isn't in hand: it wasn't delivered by the "
                "last poll, or was acknowledged already"
            )
        self._marked.setdefault(partition, {})[offset] = kind

    def mark_rest(self, kind: AcknowledgeType) -> None:
        """Acknowledge all that wasn't yet."""
        for partition, locks in self._locks.items():
            marked = self._marked.setdefault(partition, {})
            for offset in locks:
                marked.setdefault(offset, kind)

    def waiting(self) -> list[TopicPartition]:
        """The partitions with acknowledgements that are to be sent."""
        return [partition for partition, marked in self._marked.items() if marked]

    def acknowledgements(self, partition: TopicPartition) -> list[Acknowledgement]:
        """The acknowledgements that are to be sent of a partition, ascending; equal neighbours are one."""
        return list(self._runs(partition))

    def _runs(self, partition: TopicPartition) -> Iterator[Acknowledgement]:
        marked, locks = self._marked.get(partition, {}), self._locks.get(partition, {})
        first = last = -1
        current: tuple[int, AcknowledgeType] | None = None
        for offset in sorted(marked):
            acknowledgement = (locks[offset], marked[offset])
            if acknowledgement == current and offset == last + 1:
                last = offset
                continue
            if current is not None:
                yield Acknowledgement(first=first, last=last, lock=current[0], kind=current[1])
            first, last, current = offset, offset, acknowledgement
        if current is not None:
            yield Acknowledgement(first=first, last=last, lock=current[0], kind=current[1])

    def sent(
        self, partition: TopicPartition, sent: Sequence[Acknowledgement], accepted: Sequence[bool], *, renewed: int
    ) -> InvalidRecordStateError | None:
        """Note what became of acknowledgements. Returns an error that names those which came too late.

        Args:
            renewed: the lock that holds what was renewed.
        """
        refused = []
        locks, marked = self._locks.get(partition, {}), self._marked.get(partition, {})
        for each, counts in zip(sent, accepted, strict=True):
            if not counts:
                refused.append(f"{each.first} to {each.last}" if each.last > each.first else str(each.first))
            for offset in range(each.first, each.last + 1):
                if locks.get(offset) != each.lock:
                    continue
                if marked.get(offset) is each.kind:
                    del marked[offset]
                if counts and each.kind is AcknowledgeType.RENEW:
                    locks[offset] = renewed
                else:
                    del locks[offset]
        if not refused:
            return None
        return InvalidRecordStateError(
            f"acknowledged too late: offsets {', '.join(refused)} of {partition.topic}-{partition.partition} are not "
            "held by this consumer any more, and are delivered again"
        )

    def forget(self, partition: TopicPartition) -> None:
        """Forget all of a partition."""
        self._locks.pop(partition, None)
        self._marked.pop(partition, None)
