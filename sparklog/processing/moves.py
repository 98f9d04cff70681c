"""Records that are moved, to a delay topic or to the dead letters: their headers, there and back.

Sources of the names: KIP-1191 for ``__dlq.errors.*``, of which ``exception`` and ``stacktrace`` are ours; for others
Spring Kafka's ``RetryTopicHeaders`` and ``KafkaHeaders``. All values are text.
"""

from __future__ import annotations

import linecache
import traceback
from dataclasses import dataclass, field, replace
from typing import Any

from sparklog.log.delay_topics import MOVED_BY_GROUP
from sparklog.model import ConsumerRecord, Headers
from sparklog.processing.messages import Record

__all__ = ["DeadLetter", "Origin", "Output", "attempts_of", "bury", "delay", "due_ms_of", "group_of", "origin_of"]
__all__ += ["letter_of", "moves_of", "pointer_only", "topic_id_of"]

DLQ = "__dlq.errors."
OMITTED = DLQ + "value.omitted"
ATTEMPTS, DUE = "retry_topic-attempts", "retry_topic-backoff-timestamp"
FIRST_TIMESTAMP = "retry_topic-original-timestamp"
GROUP = MOVED_BY_GROUP
ORIGINAL = "kafka_original-"
TOPIC_ID = ORIGINAL + "topic-id"
ERROR = "kafka_exception-"
MOVES = DLQ + "moves"
_DELAY_NAMES = frozenset(
    (
        *(ATTEMPTS, DUE, FIRST_TIMESTAMP, GROUP, ERROR + "fqcn", ERROR + "message"),
        *(ORIGINAL + name for name in ("topic", "topic-id", "partition", "offset", "timestamp")),
    )
)
"""The headers that are added on the way to a delay topic, behind those of the record."""
_LETTER_NAMES = frozenset(
    DLQ + name
    for name in (
        *("topic", "partition", "offset", "group", "delivery.count"),
        *("message", "exception", "stacktrace", "value.omitted", "moves"),
    )
)
"""The headers that are added on the way to the dead letters, beside ``FIRST_TIMESTAMP``. They replace those of an
earlier letter."""
_OWN = _DELAY_NAMES | _LETTER_NAMES
_MOST_STACK_CHARACTERS = 8_192
_MOST_MESSAGE_CHARACTERS = 1_024
_MOST_FRAMES = 20
_INT32, _INT64 = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A record that is to be sent, as bytes."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None
    """Chosen by the key if None."""
    near_partition: int | None = None
    """Go to this partition, modulo how many there are: so what comes from one partition stays in order."""
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The place where a record was before it was moved for the first time."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch."""
    topic_id: str | None = field(default=None, compare=False)
    """The id of the topic; None: it isn't known. A topic that is made anew has another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that was moved to the dead letters, and why."""

    topic: str
    """The dead-letter topic."""
    origin: Origin
    group_id: str
    attempts: int
    """Tries, the last among them; 0 where nothing was tried."""
    exception: str
    """The class of the error, with its module."""
    message: str
    stacktrace: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    """Headers of the record, without those that say why it is here."""
    is_value_omitted: bool = False
    """The value was too large to be moved: it is where the record was."""
    moves: int = 1
    """How often the record was moved to dead letters; more than once where it was a dead letter that failed."""


def origin_of(record: ConsumerRecord, *, is_delayed: bool) -> Origin:
    """Where a record came from first: where it is or, of a record of a delay topic, what its headers say."""
    texts = _texts(record.headers) if is_delayed else {}
    try:
        return Origin(
            topic=texts[ORIGINAL + "topic"],
            partition=_whole(texts[ORIGINAL + "partition"], _INT32),
            offset=_whole(texts[ORIGINAL + "offset"], _INT64),
            timestamp=_timestamp(texts[ORIGINAL + "timestamp"]),
            topic_id=texts.get(TOPIC_ID),
        )
    except (KeyError, ValueError):
        return Origin(topic=record.topic, partition=record.partition, offset=record.offset, timestamp=record.timestamp)


def attempts_of(record: ConsumerRecord) -> int:
    """How many tries of it have failed, as a record of a delay topic says; 0 for any other."""
    return _number(record.headers, ATTEMPTS)


def due_ms_of(record: ConsumerRecord) -> int:
    """When a record of a delay topic is due, milliseconds since the epoch; 0: at once."""
    return _number(record.headers, DUE)


def group_of(record: ConsumerRecord) -> str | None:
    """The group that moved a record to a delay topic; None where no header says."""
    return _texts(record.headers).get(GROUP)


def topic_id_of(record: ConsumerRecord) -> str | None:
    """The id of the topic that a record of a delay topic came from; None where no header says."""
    return _texts(record.headers).get(TOPIC_ID)


def moves_of(record: ConsumerRecord) -> int:
    """How often a record was moved to dead letters without having been replayed in between."""
    return _number(record.headers, MOVES) or int(any(name == DLQ + "topic" for name, _ in record.headers))


def _users(record: ConsumerRecord, names: frozenset[str]) -> Headers:
    """The headers of a record that was moved, as they were before: without the last of each of these names."""
    kept: Headers = []
    left = set(names)
    for header in reversed(record.headers):
        if header[0] in left:
            left.discard(header[0])
        else:
            kept.append(header)
    return kept[::-1]


def _with(headers: Headers, added: dict[str, str]) -> Headers:
    """A record's headers with others behind them. Of those that have their names the first is kept, which is the
    user's: else a record that goes round would grow."""
    seen: set[str] = set()
    kept: Headers = []
    for header in headers:
        if header[0] not in added or (header[0] not in seen and header[0] not in _LETTER_NAMES):
            seen.add(header[0])
            kept.append(header)
    return [*kept, *_encoded(added)]


def delay(
    record: ConsumerRecord,
    topic: str,
    *,
    origin: Origin,
    group_id: str,
    attempts: int,
    due_ms: int,
    error: BaseException,
    is_delayed: bool = False,
) -> Output:
    """The record for a delay topic.

    Args:
        is_delayed: it comes from a delay topic.
        origin: where it came from first.
        attempts: tries that have failed.
        due_ms: milliseconds since the epoch.
    """
    added = {
        ATTEMPTS: str(attempts),
        DUE: str(due_ms),
        FIRST_TIMESTAMP: str(origin.timestamp),
        GROUP: group_id,
        ORIGINAL + "topic": origin.topic,
        ORIGINAL + "partition": str(origin.partition),
        ORIGINAL + "offset": str(origin.offset),
        ORIGINAL + "timestamp": str(origin.timestamp),
        ERROR + "fqcn": _class_of(error),
        ERROR + "message": _message_of(error),
        **({} if origin.topic_id is None else {TOPIC_ID: origin.topic_id}),
    }
    return Output(
        topic=topic,
        key=record.key,
        value=record.value,
        headers=_with(_users(record, _DELAY_NAMES) if is_delayed else record.headers, added),
        near_partition=record.partition,
    )


def bury(
    record: ConsumerRecord,
    topic: str,
    *,
    origin: Origin,
    group_id: str,
    attempts: int,
    error: BaseException,
    message: str | None = None,
    is_delayed: bool = False,
) -> tuple[Output, DeadLetter]:
    """The record for a dead-letter topic, and its description.

    Args:
        is_delayed: it comes from a delay topic.
        message: by default the error's own.
    """
    letter = DeadLetter(
        topic=topic,
        origin=origin,
        group_id=group_id,
        attempts=attempts,
        exception=_class_of(error),
        message=_message_of(error) if message is None else message[:_MOST_MESSAGE_CHARACTERS],
        stacktrace=_stack_of(error),
        key=record.key,
        value=record.value,
        headers=[
            header
            for header in (_users(record, _DELAY_NAMES) if is_delayed else record.headers)
            if header[0] not in _LETTER_NAMES
        ],
        moves=moves_of(record) + 1,
    )
    return _output(letter), letter


def pointer_only(letter: DeadLetter) -> tuple[Output, DeadLetter]:
    """A dead letter without value and stack, for a record that is too large with them. KIP-1191 moves no values unless
    configured to."""
    smaller = replace(letter, value=None, headers=[], stacktrace="", is_value_omitted=True)
    return _output(smaller), smaller


def letter_of(record: ConsumerRecord | Record[Any]) -> DeadLetter:
    """Read the headers of a dead letter, which a handler or a consumer has got, and any program has written.

    Missing headers are empty; without an origin it is the record's own offset.
    """
    if isinstance(record, Record):
        record = record.raw
    texts = _texts(record.headers)
    at = origin_of(record, is_delayed=False)
    bounds = {"partition": _INT32, "offset": _INT64, "delivery.count": _INT32}
    number = {name: _number(record.headers, DLQ + name, most=most) for name, most in bounds.items()}
    has_origin = DLQ + "topic" in texts
    return DeadLetter(
        topic=record.topic,
        origin=Origin(
            topic=texts.get(DLQ + "topic", at.topic),
            partition=number["partition"] if has_origin else at.partition,
            offset=number["offset"] if has_origin else at.offset,
            timestamp=_number(record.headers, FIRST_TIMESTAMP) or record.timestamp,
        ),
        group_id=texts.get(DLQ + "group", ""),
        attempts=number["delivery.count"],
        exception=texts.get(DLQ + "exception", ""),
        message=texts.get(DLQ + "message", ""),
        stacktrace=texts.get(DLQ + "stacktrace", ""),
        key=record.key,
        value=record.value,
        headers=_users(record, _LETTER_NAMES | {FIRST_TIMESTAMP}),
        is_value_omitted=OMITTED in texts,
        moves=moves_of(record),
    )


def _output(letter: DeadLetter) -> Output:
    origin = letter.origin
    added = {
        DLQ + "topic": origin.topic,
        DLQ + "partition": str(origin.partition),
        DLQ + "offset": str(origin.offset),
        DLQ + "group": letter.group_id,
        DLQ + "delivery.count": str(letter.attempts),
        DLQ + "message": letter.message,
        DLQ + "exception": letter.exception,
        DLQ + "stacktrace": letter.stacktrace,
        FIRST_TIMESTAMP: str(origin.timestamp),
    }
    if letter.is_value_omitted:
        added[OMITTED] = "true"
    if letter.moves > 1:
        added[MOVES] = str(letter.moves)
    return Output(
        topic=letter.topic,
        key=letter.key,
        value=letter.value,
        headers=_with(letter.headers, added),
        near_partition=origin.partition,
    )


def _encoded(texts: dict[str, str]) -> Headers:
    return [(name, text.encode("utf-8", "replace")) for name, text in texts.items()]


def _texts(headers: Headers) -> dict[str, str]:
    """Our own headers; of several with one name the last."""
    return {name: value.decode("utf-8", "replace") for name, value in headers if value is not None and name in _OWN}


def _number(headers: Headers, name: str, *, most: int = _INT64) -> int:
    """A number of a header that another program may have written, the last of its name up to ``most``; 0 where there
    is none."""
    for header, value in reversed(headers):
        if header == name and value is not None:
            try:
                return _whole(value.decode("ascii", "replace"), most)
            except ValueError:
                continue
    return 0


def _timestamp(text: str) -> int:
    """Milliseconds since the epoch, before it negative. Raises as :func:`_whole`."""
    number = _whole(text.removeprefix("-"), _INT64)
    return -number if text.startswith("-") else number


def _whole(text: str, most: int) -> int:
    """The number that a text of digits says. Raises ``ValueError`` for any other text, and beyond ``most``."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most:
        return int(text)
    raise ValueError(f"got {text[:40]!r}, expected a number up to {most}")


def _class_of(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _message_of(error: BaseException) -> str:
    try:
        return str(error)[:_MOST_MESSAGE_CHARACTERS]
    except Exception as refusal:  # a user's class may be broken, and its record is to be moved all the same
        return f"(its message can't be made: {type(refusal).__name__})"


def _stack_of(error: BaseException) -> str:
    """The error with its causes; of a long one the end, where it was raised."""
    try:
        if error.__cause__ is None and error.__context__ is None:
            text = _plain_stack_of(error)
        else:
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-_MOST_FRAMES))
    except Exception as refusal:
        return f"(its stack can't be made: {type(refusal).__name__})"
    return text[-_MOST_STACK_CHARACTERS:]


def _plain_stack_of(error: BaseException) -> str:
    """The text of :func:`traceback.format_exception`, without marks below the lines: in a sixth of the time."""
    lines = [] if error.__traceback__ is None else ["Traceback (most recent call last):\n"]
    for frame, number in list(traceback.walk_tb(error.__traceback__))[-_MOST_FRAMES:]:
        code = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {number}, in {code.co_name}\n')
        source = linecache.getline(code.co_filename, number).strip()
        if source:
            lines.append(f"    {source}\n")
    return "".join([*lines, *traceback.format_exception_only(type(error), error)])
