"""The transactional producers whose sessions a gateway holds: each is a producer of sparklog's (decision 0038)."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from dataclasses import dataclass, field

from sparklog.errors import OutOfOrderSequenceError, SparklogError, TransactionalIdNotFoundError
from sparklog.gateway.backend import Backend
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.least_ends import LeastEnds
from sparklog.log.data.producer_batch import ProducerBatch
from sparklog.log.data.producer_stamp import SEQUENCE_MODULUS, next_sequence
from sparklog.logs import short
from sparklog.producer import Producer
from sparklog.txn.deciding import entry_in_place
from sparklog.txn.entries import TransactionEntry, open_transaction_log
from sparklog.txn.states import TransactionState

__all__ = ["Session", "Sessions", "sessions_of"]

_LOGGER = logging.getLogger("sparklog.gateway")
_KEPT = 5
"""Batches of a partition that are known again. Source: Kafka ``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``."""

Done = asyncio.Future[SparklogError | int]
"""Why a batch isn't stored, or once it is uploaded a lower bound of its first record's offset."""


Ends = dict[tuple[str, int], tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch that was sent in a transaction."""

    batch: ProducerBatch
    place: int
    """How many records the transaction had for its partition before."""
    done: Done


@dataclass(slots=True)
class _Numbers:
    """The batches of a partition that a session was sent."""

    next: int
    recent: deque[Sent] = field(default_factory=lambda: deque(maxlen=_KEPT))
    count: int = 0
    """The records that the open transaction has."""
    may_jump: bool = False
    """Was the transaction aborted since? What the client had numbered and not sent is left out then."""


class Session:
    """A client's hold of a transactional id, from InitProducerId on. Belongs to the event loop, but for
    :attr:`producer`."""

    def __init__(
        self,
        transactional_id: str,
        producer: Producer,
        *,
        number: tuple[int, int],
        asked: tuple[int, int],
        timeout_ms: int,
        now_s: float,
        least_ends: LeastEnds,
    ) -> None:
        """
        Args:
            number: producer id and epoch.
            timeout_ms: from a transaction's begin until the gateway aborts it.
            asked: those with which the client asked for them; -1 for none.
            now_s: the loop's time.
            least_ends: of all sessions.
        """
        self.transactional_id = transactional_id
        self.producer = producer
        self.number = number
        self.asked = asked
        self.least_ends = least_ends
        self.lock = asyncio.Lock()
        """Held by a request that changes the transaction."""
        self.is_open = False
        self.has_failed = False
        """A batch of the open transaction couldn't be stored: it can only be aborted."""
        self.ends: Ends = {}
        """Where the log of each partition ended at least as the open transaction sent its first records there, with the
        topic's id. Threads add to it; another transaction has another one."""
        self.partitions: set[tuple[str, int]] = set()
        """The partitions that AddPartitionsToTxn has added to the open transaction."""
        self.was_committed: bool | None = None
        """How the newest transaction ended; None: none did, or one is open."""
        self.used_s = now_s
        self.timeout_ms = timeout_ms
        self.aborting: asyncio.TimerHandle | None = None
        """The timer of the open transaction's time-out."""
        self.inherited: ErrorCode | None = None
        """The answer to a client that asked, by the number that :attr:`asked` is, to commit a transaction of another
        gateway's; None: no such client is known."""
        self._numbers: dict[tuple[str, int], _Numbers] = {}

    def begin(self) -> None:
        """Begin a transaction unless one is open. Raises what ``begin_transaction`` raises."""
        if not self.is_open:
            self.producer.begin_transaction()
            self.is_open, self.has_failed, self.was_committed = True, False, None
            self.partitions.clear()
            self.ends = {}

    def end(self, *, is_committed: bool) -> None:
        """Note how the transaction ended."""
        self.is_open, self.was_committed = False, is_committed
        self.partitions.clear()
        self.never_abort()
        for at, numbers in self._numbers.items():
            numbers.may_jump = not is_committed
            if is_committed and at in self.ends:
                topic_id, end = self.ends[at]
                self.least_ends.seen(*at, topic_id, end + numbers.count)
            numbers.count = 0

    def never_abort(self) -> None:
        """Take back what :attr:`aborting` is to do."""
        if self.aborting is not None:
            self.aborting.cancel()
            self.aborting = None

    def take(self, topic: str, batch: ProducerBatch, partition: int) -> tuple[Sent, bool]:
        """A batch that came, and whether it is to be sent, or came before.

        Raises ``OutOfOrderSequenceError``."""
        numbers = self._numbers.setdefault((topic, partition), _Numbers(batch.base_sequence))
        for known in numbers.recent:
            if known.batch == batch:
                return known, False
        ahead = (batch.base_sequence - numbers.next) % SEQUENCE_MODULUS
        if ahead and not (numbers.may_jump and ahead < SEQUENCE_MODULUS // 2):
            raise OutOfOrderSequenceError(
                f"topic {topic!r}, partition {partition}, transactional id {self.transactional_id!r}: got a batch of "
                f"sequence {batch.base_sequence}, expected {numbers.next}"
            )
        numbers.next, numbers.may_jump = next_sequence(batch.base_sequence, batch.count), False
        sent = Sent(batch, numbers.count, asyncio.get_running_loop().create_future())
        numbers.count += batch.count
        numbers.recent.append(sent)
        return sent, True


class Sessions:
    """All sessions of one gateway. Belongs to the event loop."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._held: dict[str, Session] = {}
        self._least_ends = LeastEnds()
        self._beginning: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        """Held by a request that takes an id; as long as any does."""
        self._ending: set[asyncio.Task[None]] = set()

    def find(self, transactional_id: str, number: tuple[int, int]) -> Session | ErrorCode:
        """The session that a client names by producer id and epoch, or the error that answers it."""
        session = self._held.get(transactional_id)
        if session is None or session.number[0] != number[0] or (session.inherited and session.asked == number):
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if session.number[1] != number[1]:
            return ErrorCode.PRODUCER_FENCED
        session.used_s = asyncio.get_running_loop().time()
        return session

    def watch(self, session: Session) -> None:
        """Have the open transaction aborted at its time-out, as a coordinator does: its client may be dead, and members
        and readers of groups wait for the offsets that it left pending."""
        if session.is_open and session.aborting is None:
            loop = asyncio.get_running_loop()
            session.aborting = loop.call_later(session.timeout_ms / 1_000, self._abort_overdue, session)

    def _abort_overdue(self, session: Session) -> None:
        session.aborting = None
        _LOGGER.info(
            "transactional id %r: its transaction is aborted, as it wasn't ended within transaction.timeout.ms=%d",
            short(session.transactional_id),
            session.timeout_ms,
        )
        self.drop(session)

    def drop(self, session: Session) -> None:
        """Hold it no more: it was fenced off, or took too long. What it has open is aborted."""
        if self._held.get(session.transactional_id) is session:
            del self._held[session.transactional_id]
            ending = asyncio.ensure_future(self._end(session))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def begin(self, transactional_id: str, timeout_ms: int, asked: tuple[int, int]) -> Session | ErrorCode:
        """Take hold of a transactional id: finish what was left, and fence others off.

        Args:
            asked: producer id and epoch that the client had; -1 for none. Only who had it last may go on with it.
        Raises:
            ConcurrentTransactionsError, InvalidTransactionTimeoutError, KafkaTimeoutError, StoreError, …
        """
        taking = self._beginning.setdefault(transactional_id, asyncio.Lock())
        async with taking:
            held = self._held.get(transactional_id)
            if held is not None and asked[0] >= 0 and asked not in (held.number, held.asked):
                return ErrorCode.PRODUCER_FENCED
            if held is None and not self._make_room():
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            if held is not None:
                del self._held[transactional_id]
                await self._end(held)
            producer, number = await self._backend.run(
                lambda: self._new_producer(transactional_id, timeout_ms, None if held is not None else asked)
            )
            if producer is None:
                return ErrorCode.PRODUCER_FENCED
            now_s = asyncio.get_running_loop().time()
            session = Session(
                transactional_id,
                producer,
                number=number,
                asked=asked,
                timeout_ms=timeout_ms,
                now_s=now_s,
                least_ends=self._least_ends,
            )
            self._held[transactional_id] = session
            return session

    async def inherit(self, transactional_id: str, number: tuple[int, int]) -> ErrorCode:
        """The answer to a client that asks for a commit, and whose session another gateway held.

        That gateway may have committed just now, without the client having heard of it. So it is fenced off first; then
        the id's log has the last entry that it wrote. Where that is a commit, it is unknown whether it is the one that
        is asked for: a client that took it for aborted would send its records again. So it is fenced off, too.

        Raises what :meth:`begin` raises.
        """
        held = self._held.get(transactional_id)
        if held is not None and held.inherited and held.asked == number:
            return held.inherited
        try:
            (known,) = await self._backend.run(lambda: self._backend.admin.describe_transactions([transactional_id]))
        except TransactionalIdNotFoundError:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if number != (known.producer_id, known.producer_epoch):
            return ErrorCode.PRODUCER_FENCED
        session = await self.begin(transactional_id, known.transaction_timeout_ms, number)
        if isinstance(session, ErrorCode):
            return session
        before = await self._backend.run(lambda: self._entry_before(session))
        is_committed = before is None or (
            number == (before.header.producer_id, before.header.producer_epoch)
            and before.state is TransactionState.COMPLETE_COMMIT
        )
        session.inherited = ErrorCode.PRODUCER_FENCED if is_committed else ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return session.inherited

    def _entry_before(self, session: Session) -> TransactionEntry | None:
        """The last entry of the id's log before the session began; None: it isn't there any more.

        Whoever aborted what took too long may have come after a commit whose answer was lost: it is unknown whether
        there was another transaction to abort, so that entry and the decision for it are passed over.
        """
        log = open_transaction_log(self._backend.cluster, session.transactional_id)
        deciding = session.producer._require_transactions("the entry before")._session.decider.number
        before = entry_in_place(log, deciding - 2)  # between them is the one by which the session began
        if before is not None and before.state is TransactionState.COMPLETE_ABORT and before.reason:
            return entry_in_place(log, deciding - 4)
        return before

    def _new_producer(
        self, transactional_id: str, timeout_ms: int, asked: tuple[int, int] | None
    ) -> tuple[Producer | None, tuple[int, int]]:
        settings = self._backend.settings
        if asked is not None and asked[0] >= 0 and not self._may_go_on(transactional_id, asked):
            return None, (-1, -1)
        producer = Producer(
            self._backend.cluster,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=0,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            request_timeout_ms=settings.delivery_timeout_ms,
            max_block_ms=settings.delivery_timeout_ms,
            max_request_size=settings.max_decoded_bytes,
        )
        try:
            producer.init_transactions()
            header = producer._require_transactions("producer id")._session.header
            return producer, (header.producer_id, header.producer_epoch)
        except BaseException:
            producer.close(0)
            raise

    def _may_go_on(self, transactional_id: str, asked: tuple[int, int]) -> bool:
        """Does a client that says which number it had have the id's newest one? Of an id without entries nothing is
        known to compare it with. Source: Kafka ``TransactionCoordinator.handleInitProducerId``."""
        try:
            (known,) = self._backend.admin.describe_transactions([transactional_id])
        except TransactionalIdNotFoundError:
            return True
        return asked == (known.producer_id, known.producer_epoch)

    def _make_room(self) -> bool:
        """False: all sessions that may be held have an open transaction."""
        if len(self._held) < self._backend.settings.max_transactional_ids:
            return True
        idle = [session for session in self._held.values() if not session.is_open and not session.lock.locked()]
        if not idle:
            return False
        self.drop(min(idle, key=lambda session: session.used_s))
        return True

    async def _end(self, session: Session) -> None:
        """Abort what is open, and end the producer. Errors are logged by it: whoever comes next finds what is left."""
        async with session.lock:
            session.never_abort()
            timeout_s = self._backend.settings.delivery_timeout_ms / 1_000
            await self._backend.run(lambda: session.producer.close(timeout_s))
            session.is_open = False

    async def close(self) -> None:
        """End all sessions; open transactions are aborted."""
        held, self._held = list(self._held.values()), {}
        await asyncio.gather(*self._ending, *(self._end(session) for session in held))


def sessions_of(backend: Backend) -> Sessions:
    """The gateway's."""
    sessions: Sessions | None = backend.extras.get("transactions")
    if sessions is None:
        sessions = backend.extras["transactions"] = Sessions(backend)
    return sessions
