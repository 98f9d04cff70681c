"""Batches that Kafka's idempotent producers number, at several gateways, as the topic has them (rules L15, L14, L4).

One partition and one producer, whose batches hold one record each, so a batch's offset is the number of its entry.
Gateways are played create by create, and may sleep between any two; the client sends several batches before one is
answered, sends them again through another gateway, and gives an epoch up.

========================  ==============================================================================
step                      what it mirrors
========================  ==============================================================================
sends / moves             a client: librdkafka's, or Java's; the gateway's ``produce.begin_produce``, by which
                          ``ProducerBatches.note_seen`` gets the batch
loads                     ``log.producer_batches.load_batches``
reads the tail            ``log.catch_up.catch_up``, ``ProducerBatches.note_entry``
answers / refuses         ``ProducerBatches.judge``, ``log.append_slots``, the answer of ``gateway.produce``
creates                   the create of ``EntryLog.create_next``
gives up                  ``delivery_timeout_ms`` of a gateway: REQUEST_TIMED_OUT, upon which clients ask again
========================  ==============================================================================

Producers are never forgotten here; how long they are remembered is said in decision 0038. A log cleanup takes the
offsets of all batches so far from whoever loads the topic behind it, not their last sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from proof.model.search import switched_off

__all__ = ["Batch", "Bounds", "Gateway", "Numbering", "Rules", "Verdict", "World"]

NAMES = ("a", "b")


@dataclass(frozen=True, slots=True)
class Rules:
    """What keeps numbered batches once and in order; each can be switched off."""

    at_each_create: bool = True
    """L15, L4: a batch is judged at each create, on all entries before it; off: once, as it comes."""
    load: bool = True
    """L15: a writer loads the topic before it judges; off: it knows what was stored since it began."""
    tail_before_refusing: bool = True
    """L15: who refuses has read the log to its tail since the batch came; off: it refuses by what it knows."""
    behind_the_first: bool = True
    """L15: of an unknown producer nothing is stored before the first batch that was seen; off: any is."""
    from_zero: bool = True
    """L15: of an unknown producer, which can't have been forgotten, the batch of sequence 0 is stored first; off: any
    is."""
    recent: bool = True
    """L15: twice as many batches are known again as a client may have under way; off: as many. The first of those may
    be given up and lie in the log, while others are stored behind it, and answered, and new ones are sent."""
    stored_before: bool = True
    """L15: a batch that ends with the last sequence is stored, though the entry with its offset was deleted, and is
    answered without an offset; off: it is refused."""
    old_epochs: bool = True
    """L15: an epoch below the newest is refused; off: it goes on by its own sequence."""
    epoch_from_zero: bool = True
    """L15: a new epoch begins at 0; off: at any sequence."""
    unannounced: bool = True
    """L14: files of numbered batches aren't announced; off: another gateway may include one, which it can't judge."""

    def without(self, *names: str) -> Rules:
        """These rules but for some. Raises ``ValueError`` for a name that is none."""
        return switched_off(self, *names)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen."""

    batches: int = 2
    """Of the client, in each of its epochs."""
    under_way: int = 2
    """Batches that are sent before the first of them is answered."""
    moves: int = 0
    """Times that the client's connection breaks, and it sends again what wasn't answered, to any gateway."""
    deaths: int = 0
    """Gateways that die, and are started anew."""
    faults: int = 0
    """Creates whose answer is lost, or that come late."""
    gives_up: int = 0
    epochs: int = 1
    """The client gives up what wasn't answered, and begins the next of them."""
    cleanings: int = 0
    """Log cleanups, each of all entries so far. With two batches under way the first of them may then be refused."""


class Batch(NamedTuple):
    epoch: int
    sequence: int


class Request(NamedTuple):
    batch: Batch
    came: int
    """How many entries the log had then."""
    connection: int
    is_new: bool
    """As judged when it came; only with ``at_each_create`` off."""


class Gateway(NamedTuple):
    is_loaded: bool = False
    since: int = 0
    """The first entry that it knows of."""
    known: int = 0
    """It stands before this entry."""
    first: Batch | None = None
    """The first batch that it saw of the producer, while it didn't know that."""
    queue: tuple[Request, ...] = ()
    offsets_from: int = 0
    """It knows the offsets of the batches of the entries from this one on."""


class Late(NamedTuple):
    """A create that is under way, nobody waiting for it any more."""

    version: int
    batch: Batch


class Verdict(NamedTuple):
    """What becomes of a batch; new where both fields say nothing."""

    offset: int = -1
    is_refused: bool = False
    is_stored: bool = False
    """At an offset that is known no more."""


class World(NamedTuple):
    log: tuple[Batch, ...]
    gateways: tuple[Gateway, Gateway]
    at: int = 0
    """The gateway that the client is connected to."""
    connection: int = 0
    epoch: int = 0
    made: int = 0
    """Batches of the epoch that were sent."""
    acknowledged: frozenset[tuple[Batch, int]] = frozenset()
    late: tuple[Late, ...] = ()
    refused: tuple[str, ...] = ()
    """What should never have been."""
    moves: int = 0
    deaths: int = 0
    faults: int = 0
    gives_up: int = 0
    cleanings: int = 0
    cleaned: int = 0
    """The entries before this one were deleted."""


Step = tuple[str, World]


@dataclass(frozen=True, slots=True)
class Numbering:
    """See the module."""

    rules: Rules = Rules()
    bounds: Bounds = Bounds()

    def starts(self) -> Iterator[Step]:
        bounds = self.bounds
        world = World(log=(), gateways=(Gateway(), Gateway()), moves=bounds.moves, deaths=bounds.deaths)
        world = world._replace(cleanings=bounds.cleanings)
        yield "an empty topic", world._replace(faults=bounds.faults, gives_up=bounds.gives_up)

    def moves(self, world: World) -> Iterator[Step]:
        yield from self._client(world)
        for index in range(len(world.gateways)):
            yield from self._gateway(world, index)
        if world.cleanings and world.cleaned < len(world.log):
            yield "the log is cleaned", world._replace(cleanings=world.cleanings - 1, cleaned=len(world.log))
        for number, late in enumerate(world.late):
            left = world._replace(late=(*world.late[:number], *world.late[number + 1 :]))
            if late.version == len(world.log):
                yield f"the create of {late.version} comes late", left._replace(log=(*world.log, late.batch))

    # The client.

    def _client(self, world: World) -> Iterator[Step]:
        bounds, waiting = self.bounds, _unanswered(world)
        if world.made < bounds.batches and len(waiting) < bounds.under_way:
            batch = Batch(world.epoch, world.made)
            sent = self._sent(world._replace(made=world.made + 1), batch)
            yield f"the client sends {_text(batch)}", sent
        if world.moves and waiting:
            for index, name in enumerate(NAMES):
                label = f"the connection breaks; the client sends {len(waiting)} again to {name}"
                yield label, self._moved(world._replace(moves=world.moves - 1), index)
        if world.epoch + 1 < bounds.epochs and waiting:
            begun = world._replace(epoch=world.epoch + 1, made=0, connection=world.connection + 1)
            yield "the client gives up, and begins an epoch", begun
            yield "the client gives up, moves, and begins an epoch", begun._replace(at=1 - world.at)

    def _moved(self, world: World, index: int) -> World:
        waiting = _unanswered(world)
        world = world._replace(at=index, connection=world.connection + 1)
        for batch in waiting:
            world = self._sent(world, batch)
        return world

    def _sent(self, world: World, batch: Batch) -> World:
        """A batch is in the queue of the client's gateway."""
        gateway = world.gateways[world.at]
        if not self.rules.load and not gateway.is_loaded:
            end = len(world.log)
            gateway = gateway._replace(is_loaded=True, since=end, known=end)
        if not _known(world, gateway) and (gateway.first is None or _comes_first(batch, gateway.first)):
            gateway = gateway._replace(first=batch)
        is_new = False
        if not self.rules.at_each_create:
            is_new = self.verdict(world, gateway, batch) == Verdict()
        request = Request(batch, len(world.log), world.connection, is_new)
        return _with(world, world.at, gateway._replace(queue=(*gateway.queue, request)))

    # A gateway.

    def _gateway(self, world: World, index: int) -> Iterator[Step]:
        gateway, name = world.gateways[index], NAMES[index]
        if world.deaths and (gateway.queue or gateway.is_loaded):
            dead = _with(world._replace(deaths=world.deaths - 1), index, Gateway())
            if index != world.at or not _unanswered(world):
                yield f"{name} dies, and is started anew", dead
            else:
                for other, to in enumerate(NAMES):
                    yield f"{name} dies; the client sends again to {to}", self._moved(dead, other)
        if not gateway.queue:
            return
        if not gateway.is_loaded:
            loaded = gateway._replace(is_loaded=True, known=len(world.log), offsets_from=world.cleaned)
            yield f"{name} loads the topic", _with(world, index, loaded)
            return
        if gateway.known < len(world.log):
            is_gone = gateway.known < world.cleaned  # then it loads the topic anew
            offsets_from = world.cleaned if is_gone else gateway.offsets_from
            read = gateway._replace(known=len(world.log), offsets_from=offsets_from)
            yield f"{name} reads the tail", _with(world, index, read)
        yield from self._head(world, index, gateway.queue[0])
        if not self.rules.unannounced:
            other = 1 - index
            label = f"{NAMES[other]} includes the file of {name} with {_text(gateway.queue[0].batch)}"
            yield label, world._replace(log=(*world.log, gateway.queue[0].batch))
        if world.gives_up:
            yield from self._gives_up(world._replace(gives_up=world.gives_up - 1), index, gateway.queue[0])

    def _head(self, world: World, index: int, request: Request) -> Iterator[Step]:
        """The batch that came first is answered, refused, or stored."""
        gateway, name, batch = world.gateways[index], NAMES[index], request.batch
        verdict = self.verdict(world, gateway, batch)
        if request.is_new:  # as judged when it came
            verdict = Verdict()
        if verdict.offset >= 0:
            yield f"{name} answers {_text(batch)}, which is there", self._answered(world, index, verdict.offset)
        elif verdict.is_stored:
            yield f"{name} answers {_text(batch)}, which is there, without its offset", self._answered(world, index, -1)
        elif verdict.is_refused:
            if gateway.known >= request.came or not self.rules.tail_before_refusing:
                yield f"{name} refuses {_text(batch)}", self._refused(world, index)
        elif gateway.known == len(world.log):
            stored = world._replace(log=(*world.log, batch))
            here = _with(stored, index, gateway._replace(known=gateway.known + 1))
            yield f"{name} creates entry {gateway.known}: {_text(batch)}", self._answered(here, index, gateway.known)
            if world.faults:
                lost = stored._replace(faults=world.faults - 1)
                yield f"{name} creates entry {gateway.known}: {_text(batch)}, and the answer is lost", lost
        elif request.is_new:
            again = gateway._replace(known=len(world.log))
            yield f"{name} finds the name taken, and tries the next", _with(world, index, again)

    def _gives_up(self, world: World, index: int, request: Request) -> Iterator[Step]:
        name, batch = NAMES[index], request.batch
        yield f"{name} gives up {_text(batch)}", self._again(world, index)
        known = world.gateways[index].known
        if world.faults and self.verdict(world, world.gateways[index], batch) == Verdict():
            under_way = world._replace(faults=world.faults - 1, late=(*world.late, Late(known, batch)))
            yield f"{name} gives up {_text(batch)}, whose create is under way", self._again(under_way, index)

    def verdict(self, world: World, gateway: Gateway, batch: Batch) -> Verdict:
        """Of a batch, by what a gateway knows of the log."""
        rules, known = self.rules, _known(world, gateway)
        if not known:
            first = gateway.first
            is_behind = first is not None and first.epoch == batch.epoch and first.sequence < batch.sequence
            is_later = rules.from_zero and batch.sequence > 0
            return Verdict(is_refused=(rules.behind_the_first and is_behind) or is_later)
        for offset, found in known[-(2 * self.bounds.under_way if rules.recent else self.bounds.under_way) :]:
            if found == batch and offset >= gateway.offsets_from:
                return Verdict(offset)
        newest = known[-1][1]
        if batch.epoch > newest.epoch:
            return Verdict(is_refused=rules.epoch_from_zero and batch.sequence != 0)
        if batch.epoch < newest.epoch and rules.old_epochs:
            return Verdict(is_refused=True)
        last = max((found.sequence for _, found in known if found.epoch == batch.epoch), default=-1)
        if rules.stored_before and batch == newest and known[-1][0] < gateway.offsets_from:
            return Verdict(is_stored=True)
        return Verdict(is_refused=batch.sequence != last + 1)

    def _answered(self, world: World, index: int, offset: int) -> World:
        request, world = _taken(world, index)
        if request.connection != world.connection:
            return world
        return world._replace(acknowledged=world.acknowledged | {(request.batch, offset)})

    def _refused(self, world: World, index: int) -> World:
        """A client takes the refusal of the batch that is next for fatal; any other it sends again."""
        request = world.gateways[index].queue[0]
        if request.connection != world.connection:
            return _taken(world, index)[1]
        is_next = request.batch == _unanswered(world)[0]
        if not is_next:
            return self._again(world, index)
        return world._replace(refused=(*world.refused, _text(request.batch)))

    def _again(self, world: World, index: int) -> World:
        """The client sends the batch once more over its connection, if that is there."""
        request, world = _taken(world, index)
        return self._sent(world, request.batch) if request.connection == world.connection else world

    # What must hold.

    def broken(self, world: World) -> Iterator[str]:
        log = world.log
        if len(set(log)) < len(log):
            yield f"no batch is stored twice: {log}"
        for epoch in range(self.bounds.epochs):
            sequences = [batch.sequence for batch in log if batch.epoch == epoch]
            if sequences != sorted(sequences):
                yield f"batches are in their order: {log}"
        if [batch.epoch for batch in log] != sorted(batch.epoch for batch in log):
            yield f"an epoch that is over stores nothing: {log}"
        for batch, offset in sorted(world.acknowledged):
            if batch not in log if offset < 0 else log[offset : offset + 1] != (batch,):
                yield f"what is acknowledged is there: {_text(batch)} at {offset}"
            before = log[:offset] if offset >= 0 else log
            if any(Batch(batch.epoch, sequence) not in before for sequence in range(batch.sequence)):
                yield f"what is acknowledged follows all before it: {_text(batch)}"
        for text in world.refused:
            yield f"the next batch is never refused: {text}"


def _comes_first(batch: Batch, other: Batch) -> bool:
    """Is a batch of a newer epoch, or before another of its epoch?"""
    return batch.epoch > other.epoch or (batch.epoch == other.epoch and batch.sequence < other.sequence)


def _known(world: World, gateway: Gateway) -> list[tuple[int, Batch]]:
    """The batches that a gateway knows of, with their offsets."""
    return list(enumerate(world.log))[gateway.since : gateway.known] if gateway.is_loaded else []


def _unanswered(world: World) -> list[Batch]:
    """The client's batches of this epoch that were sent and not acknowledged, in order."""
    done = {batch for batch, _ in world.acknowledged}
    sent = (Batch(world.epoch, sequence) for sequence in range(world.made))
    return [batch for batch in sent if batch not in done]


def _taken(world: World, index: int) -> tuple[Request, World]:
    """The first request of a queue, and the world without it."""
    gateway = world.gateways[index]
    return gateway.queue[0], _with(world, index, gateway._replace(queue=gateway.queue[1:]))


def _with(world: World, index: int, gateway: Gateway) -> World:
    gateways = (gateway, world.gateways[1]) if index == 0 else (world.gateways[0], gateway)
    return world._replace(gateways=gateways)


def _text(batch: Batch) -> str:
    return f"batch {batch.sequence}" + (f" of epoch {batch.epoch}" if batch.epoch else "")
