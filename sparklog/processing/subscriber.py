"""A handler, and what is said of it: topics, order, retries, dead letters, and what it wants to be called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sparklog.errors import InvalidArgumentError, InvalidTypeError
from sparklog.paths import check_topic_name
from sparklog.processing.lanes import OrderBy
from sparklog.processing.messages import Batch, Record
from sparklog.processing.retries import Retry
from sparklog.processing.values import Decode, decoder_of

__all__ = ["DLQ_PREFIX", "MOST_SHARED_ATTEMPTS", "Subscriber", "check_no_circle", "make_subscriber"]

DLQ_PREFIX = "dlq."
"""Source: KIP-1191."""
MOST_SHARED_ATTEMPTS = 32_766
"""One less than the most deliveries that a share group can allow: Kafka's ``group.share.delivery.count.limit``."""
_MOST_THREADS = 1_000
_RECORDS_AT_ONCE = 256
"""Records of one lane that a thread takes at a time: what it takes to hand them over is shared by so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A handler with its options."""

    handler: Callable[[Any], Any]
    topics: tuple[str, ...]
    takes: Literal["record", "batch"]
    decode: Decode | None
    """None: values are bytes as they are."""
    retry: Retry
    dead_letter: bool | str | None
    """A topic; True: ``dlq.`` and the record's own topic."""
    concurrency: int
    order_by: OrderBy
    batch_size: int
    """Records of a batch at most."""

    @property
    def name(self) -> str:
        """The handler's name."""
        return str(getattr(self.handler, "__qualname__", repr(self.handler)))

    @property
    def is_async(self) -> bool:
        """Does it have to be run in an event loop?"""
        call = getattr(self.handler, "__call__", None)  # noqa: B004 - of an object that can be called
        return any(
            inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in (self.handler, call)
        )

    @property
    def most_at_once(self) -> int:
        """Records that are taken out of a lane together."""
        return self.batch_size if self.takes == "batch" else _RECORDS_AT_ONCE

    def dead_letter_of(self, topic: str) -> str | None:
        """The dead-letter topic for records that came from a topic; None: there is none."""
        if self.dead_letter is True:
            return DLQ_PREFIX + topic
        return self.dead_letter if isinstance(self.dead_letter, str) else None

    def moves_to(self) -> list[str]:
        """The topics that records which fail are moved to."""
        letters = [self.dead_letter_of(topic) for topic in self.topics]
        return [*self.delay_topics(), *(topic for topic in letters if topic is not None)]

    def delay_topics(self) -> dict[str, str]:
        """The delay topics, each with the topic whose records come there."""
        return {delay: topic for topic in self.topics for delay in self.retry.topics_of(topic)}


def make_subscriber(
    handler: Callable[[Any], Any],
    topics: tuple[str, ...],
    *,
    retry: Retry | None,
    dead_letter: bool | str | None,
    concurrency: int,
    order_by: str | None,
    batch_size: int,
    value_type: Any,
    decode: Decode | None,
    is_shared: bool = False,
) -> Subscriber:
    """Check what a user said of a handler. Raises ``InvalidArgumentError``, ``InvalidTypeError``, which name it.

    Args:
        is_shared: is it a handler of a share group?
    """
    name = getattr(handler, "__qualname__", repr(handler))
    if not topics or len(set(topics)) != len(topics):
        raise InvalidArgumentError(f"subscriber {name}: topics {topics!r}, expected one or more, each once")
    takes, annotated = _annotation(handler, name)
    checked = Subscriber(
        handler=handler,
        topics=topics,
        takes=takes,
        decode=decode if decode is not None else decoder_of(annotated if value_type is None else value_type),
        retry=retry or Retry(attempts=1),
        dead_letter=dead_letter,
        concurrency=_within(name, "concurrency", concurrency, _MOST_THREADS),
        order_by=_order_by(name, order_by or ("none" if is_shared else "partition"), takes, is_shared=is_shared),
        batch_size=_within(name, "batch_size", batch_size, 1_000_000),
    )
    if is_shared:
        _check_shared(checked)
    named = [*topics, *checked.delay_topics()]
    for topic in topics:
        letters = checked.dead_letter_of(topic)
        named += [] if letters is None else [letters]
        if letters in topics:
            raise InvalidArgumentError(f"subscriber {name}: dead_letter={letters!r} is a topic that it reads")
    for topic in named:
        check_topic_name(topic)
    return checked


def check_no_circle(subscribers: Iterable[Subscriber]) -> None:
    """Refuse subscribers whose dead letters come back to them. Raises ``InvalidArgumentError``, which names the way."""
    letters: dict[str, str | None] = {}
    for each in subscribers:
        origins = {**{topic: topic for topic in each.topics}, **each.delay_topics()}
        letters |= {topic: each.dead_letter_of(origin) for topic, origin in origins.items()}
    for topic, first in letters.items():
        way, at = [topic], first
        while at is not None and at in letters and at not in way:
            way.append(at)
            at = letters[at]
        if at == topic:
            circle = " → ".join([*way, topic])
            raise InvalidArgumentError(
                f"subscriber: dead letters go in a circle, {circle}: a record that always fails would never end"
            )


def _check_shared(subscriber: Subscriber) -> None:
    """Refuse what the records of a share group can't have."""
    name, what = subscriber.name, "a share group"
    if subscriber.takes == "batch":
        raise InvalidArgumentError(f"subscriber {name}: {what} delivers each record by itself, expected Record[…]")
    if subscriber.order_by != "none":
        raise InvalidArgumentError(f"subscriber {name}: order_by={subscriber.order_by!r}: {what} has no order")
    if subscriber.retry.attempts > MOST_SHARED_ATTEMPTS:
        setting = f"Retry(attempts={subscriber.retry.attempts})"
        raise InvalidArgumentError(f"subscriber {name}: {setting}: {what} delivers up to {MOST_SHARED_ATTEMPTS} times")
    if subscriber.retry.topics:
        raise InvalidArgumentError(f"subscriber {name}: Retry(topics=True): {what} delivers a record again by itself")


def _within(name: str, option: str, number: Any, most: int) -> int:
    if type(number) is not int or not 1 <= number <= most:
        raise InvalidArgumentError(f"subscriber {name}: {option}={number!r}, expected 1 to {most}")
    return number


def _order_by(name: str, order_by: str, takes: str, *, is_shared: bool) -> OrderBy:
    if order_by not in get_args(OrderBy):
        raise InvalidArgumentError(f"subscriber {name}: order_by={order_by!r}, expected 'partition', 'key' or 'none'")
    if takes == "batch" and order_by != "partition" and not is_shared:
        raise InvalidArgumentError(
            f"subscriber {name}: order_by={order_by!r}, expected 'partition': a batch is of one partition, in its order"
        )
    return order_by  # type: ignore[return-value]  # it is one of them


def _annotation(handler: Callable[[Any], Any], name: str) -> tuple[Literal["record", "batch"], Any]:
    """The kind that the first parameter is annotated with, and the type of the values; records of bytes without."""
    function = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
    parameters = [each for each in inspect.signature(handler).parameters.values() if each.default is each.empty]
    if len(parameters) != 1:
        raise InvalidTypeError(f"subscriber {name}: a handler takes one argument, a Record or a Batch")
    annotation = parameters[0].annotation
    if annotation is inspect.Parameter.empty:
        return "record", bytes
    if isinstance(annotation, str):  # by ``from __future__ import annotations``; other types may not be importable
        try:
            annotation = _resolved(annotation, function)
        except (NameError, TypeError) as error:
            raise InvalidTypeError(
                f"subscriber {name}: the annotation {annotation!r} can't be resolved ({error}): define its types in "
                "the module, or leave it out and give value_type"
            ) from error
    kind, parts = get_origin(annotation) or annotation, get_args(annotation)
    if kind not in (Record, Batch):
        raise InvalidTypeError(f"subscriber {name}: got the annotation {annotation!r}, expected Record[…] or Batch[…]")
    return ("record" if kind is Record else "batch"), (parts[0] if parts else bytes)


def _resolved(annotation: str, function: Any) -> Any:
    """The type that an annotation which is a text names, in the module of a function."""

    def only() -> None: ...

    only.__annotations__ = {"found": annotation}
    return get_type_hints(only, function.__globals__)["found"]
