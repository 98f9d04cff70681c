"""Plays a scenario's steps on a player, and tells what was seen in lines of text."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from proof.parity.player import PATIENCE_S, Committed, PlayedError, Player, Seen, ToSend
from proof.parity.scenario import Scenario, Step
from sparklog.model import Headers, TopicPartition

__all__ = ["VERBS", "play", "with_seen"]

NEAR_MS = 600_000
SPECS = {"latest": -1, "earliest": -2, "greatest": -3}


class Times:
    """``T`` in a scenario: a moment an hour ago; what is shown is relative to it."""

    def __init__(self) -> None:
        self.base_ms = (int(time.time()) - 3600) * 1000

    def parsed(self, text: str) -> int:
        return self.base_ms + int(text.removeprefix("T") or "0") if text.startswith("T") else int(text)

    def shown(self, timestamp_ms: int) -> str:
        if abs(timestamp_ms - self.base_ms) < NEAR_MS:
            return f"T{timestamp_ms - self.base_ms:+d}"
        return "now" if abs(timestamp_ms - time.time() * 1000) < NEAR_MS else str(timestamp_ms)


Verb = Callable[[Player, Step, Times], list[str]]


def play(player: Player, scenario: Scenario) -> list[tuple[str, ...]]:
    """What each step shows, in order; the player is closed at the end."""
    times = Times()
    try:
        return [tuple(_played(player, step, times)) for step in scenario.steps]
    finally:
        player.close()


def _played(player: Player, step: Step, times: Times) -> list[str]:
    try:
        return VERBS[step.verb](player, step, times)
    except PlayedError as error:
        return [f"error {error}"]
    except Exception as error:
        raise AssertionError(f"in the step {step.text!r}: {error!r}") from error


def _render(seen: Iterable[Seen], times: Times, *, with_offsets: bool) -> list[str]:
    """A line for each record, those of one partition together and in their order."""
    lines = []
    for one in sorted(seen, key=lambda one: one.partition):  # stable
        where = f"{_name(one.partition)} @{one.offset}" if with_offsets else _name(one.partition)
        headers = "".join(f" {name}:{_data(value)}" for name, value in one.headers)
        kind = " (append time)" if one.is_append_time else ""
        when = times.shown(one.timestamp_ms)
        lines.append(f"{where} {_data(one.key)}={_data(one.value)}{headers} {when}{kind}")
    return lines


def _data(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = data.decode()
    return repr(text) if len(text) < 50 else f"{text[0]}*{len(text)}"


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _names(partitions: Collection[TopicPartition]) -> str:
    return " ".join(map(_name, sorted(partitions))) or "none"


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def _partitions(step: Step, first: int = 1) -> list[TopicPartition]:
    return [_partition(word) for word in step.arguments[first:]]


def _offsets(step: Step) -> dict[TopicPartition, int]:
    return {_partition(name): int(value) for name, value in step.options.items()}


# Administration


def _create(player: Player, step: Step, times: Times) -> list[str]:
    options = step.options
    player.create_topic(step.arguments[0], int(options.pop("partitions", "1")), options)
    return []


def _delete_topic(player: Player, step: Step, times: Times) -> list[str]:
    player.delete_topic(step.arguments[0])
    return []


def _topics(player: Player, step: Step, times: Times) -> list[str]:
    return [" ".join(sorted(player.topics())) or "none"]


def _partition_count(player: Player, step: Step, times: Times) -> list[str]:
    return [str(player.partition_count(step.arguments[0]))]


def _grow(player: Player, step: Step, times: Times) -> list[str]:
    topic, count = step.arguments
    player.create_partitions(topic, int(count))
    return []


def _configs(player: Player, step: Step, times: Times) -> list[str]:
    topic, *names = step.arguments
    found = player.configs(topic)
    return [f"{name}={found[name][0]}{' (default)' if found[name][1] else ''}" for name in names]


def _alter(player: Player, step: Step, times: Times) -> list[str]:
    topic, *removed = step.arguments
    player.alter_configs(topic, {**step.options, **dict.fromkeys(removed)})
    return []


def _delete_records(player: Player, step: Step, times: Times) -> list[str]:
    [(partition, offset)] = _offsets(step).items()
    return [f"log start {player.delete_records(partition, offset)}"]


def _bounds(player: Player, step: Step, times: Times) -> list[str]:
    return [
        f"{_name(partition)} {player.list_offset(partition, -2)[0]} to {player.list_offset(partition, -1)[0]}"
        for partition in _partitions(step, 0)
    ]


def _offset_at(player: Player, step: Step, times: Times) -> list[str]:
    partition, spec = step.arguments
    number = SPECS[spec] if spec in SPECS else times.parsed(spec)
    offset, timestamp_ms = player.list_offset(_partition(partition), number)
    return ["none" if offset < 0 else f"@{offset}" + (f" {times.shown(timestamp_ms)}" if timestamp_ms >= 0 else "")]


def _compact(player: Player, step: Step, times: Times) -> list[str]:
    player.compact(step.arguments[0], int(step.options["remaining"]))
    return []


def _groups(player: Player, step: Step, times: Times) -> list[str]:
    return [" ".join(sorted(player.groups())) or "none"]


def _group(player: Player, step: Step, times: Times) -> list[str]:
    """``group g members=0``: once it has so many."""
    wanted = step.options.get("members")
    deadline = time.monotonic() + PATIENCE_S
    state, count = player.group_state(step.arguments[0])
    while wanted is not None and count != int(wanted) and time.monotonic() < deadline:
        time.sleep(0.05)
        state, count = player.group_state(step.arguments[0])
    return [f"{state}, members: {count}"]


def _delete_group(player: Player, step: Step, times: Times) -> list[str]:
    player.delete_group(step.arguments[0])
    return []


def _group_offsets(player: Player, step: Step, times: Times) -> list[str]:
    found = player.group_offsets(step.arguments[0])
    return [_committed_text(_name(at), committed) for at, committed in sorted(found.items())] or ["none"]


def _alter_group_offsets(player: Player, step: Step, times: Times) -> list[str]:
    player.alter_group_offsets(step.arguments[0], _offsets(step))
    return []


def _committed_text(what: str, committed: Committed) -> str:
    return f"{what} @{committed.offset}" + (f" {committed.metadata!r}" if committed.metadata else "")


# Producing


def _producer(player: Player, step: Step, times: Times) -> list[str]:
    player.open_producer(step.arguments[0], step.options)
    return []


def _send(player: Player, step: Step, times: Times) -> list[str]:
    """``value=a,b,c`` are three records; ``headers=a:1,b`` a header of a value and one of null."""
    (producer, topic), options = step.arguments, step.options
    values = [one.encode() for one in options["value"].split(",")] if "value" in options else [None]
    records = [
        ToSend(
            topic,
            value,
            options["key"].encode() if "key" in options else None,
            _headers(options["headers"]) if "headers" in options else None,
            int(options["to"]) if "to" in options else None,
            times.parsed(options["at"]) if "at" in options else None,
        )
        for value in values
    ]
    found = player.send(producer, records, lose_answer=options.get("answer") == "lost")
    return [f"{_name(partition)} @{offset}" for partition, offset in found if offset >= 0]


def _headers(text: str) -> Headers:
    pairs = [word.partition(":") for word in text.split(",")]
    return [(name, value.encode() if colon else None) for name, colon, value in pairs]


def _init(player: Player, step: Step, times: Times) -> list[str]:
    player.init_transactions(step.arguments[0])
    return []


def _begin(player: Player, step: Step, times: Times) -> list[str]:
    player.begin(step.arguments[0])
    return []


def _outlast(player: Player, step: Step, times: Times) -> list[str]:
    player.outlast(int(step.arguments[0]))
    return []


def _commit_transaction(player: Player, step: Step, times: Times) -> list[str]:
    player.commit_transaction(step.arguments[0])
    return []


def _abort(player: Player, step: Step, times: Times) -> list[str]:
    player.abort(step.arguments[0])
    return []


def _send_offsets(player: Player, step: Step, times: Times) -> list[str]:
    producer, consumer = step.arguments
    player.send_offsets(producer, consumer, _offsets(step))
    return []


def _close_producer(player: Player, step: Step, times: Times) -> list[str]:
    player.close_producer(step.arguments[0])
    return []


# Consuming


def _read(player: Player, step: Step, times: Times) -> list[str]:
    options = step.options
    seen = player.read(step.arguments[0], options.get("isolation", "read_committed"))
    return _render(seen, times, with_offsets=options.get("offsets") != "hidden") or ["nothing"]


def _consumer(player: Player, step: Step, times: Times) -> list[str]:
    player.open_consumer(step.arguments[0], step.options)
    return []


def _assign(player: Player, step: Step, times: Times) -> list[str]:
    player.assign(step.arguments[0], {**dict.fromkeys(_partitions(step)), **_offsets(step)})
    return []


def _subscribe(player: Player, step: Step, times: Times) -> list[str]:
    consumer, *topics = step.arguments
    player.subscribe(consumer, topics)
    return []


def _unsubscribe(player: Player, step: Step, times: Times) -> list[str]:
    player.unsubscribe(step.arguments[0])
    return []


def _assigned(player: Player, step: Step, times: Times) -> list[str]:
    """``assigned c d of=t-0,t-1``: each one's partitions; who has which isn't told, since ids are made at random.
    ``stable=g``: once they are the members of the group, with partitions or without."""
    options = step.options
    wanted = {_partition(word) for word in options["of"].split(",")}
    found = player.poll_until_assigned(step.arguments, wanted, options.get("stable"))
    return sorted(_names(one) for one in found)


def _poll(player: Player, step: Step, times: Times) -> list[str]:
    """``poll c 3``: the next three; ``poll c nothing``: what comes within a while."""
    consumer, count = step.arguments
    seen = player.poll_quietly(consumer) if count == "nothing" else player.poll_until(consumer, int(count))
    return _render(seen, times, with_offsets=step.options.get("offsets") != "hidden") or ["nothing"]


def _commit(player: Player, step: Step, times: Times) -> list[str]:
    options = step.options
    metadata = options.pop("metadata", "")
    offsets = {_partition(name): Committed(int(value), metadata) for name, value in options.items()}
    player.commit(step.arguments[0], offsets or None)
    return []


def _committed(player: Player, step: Step, times: Times) -> list[str]:
    consumer, partition = step.arguments
    found = player.committed(consumer, _partition(partition), float(step.options.get("within", 10_000)))
    return ["none" if found is None else _committed_text(partition, found)]


def _position(player: Player, step: Step, times: Times) -> list[str]:
    consumer, partition = step.arguments
    return [f"@{player.position(consumer, _partition(partition))}"]


def _seek(player: Player, step: Step, times: Times) -> list[str]:
    consumer = step.arguments[0]
    for partition, where in step.options.items():
        player.seek(consumer, _partition(partition), {"end": -1, "beginning": -2}.get(where) or int(where))
    return []


def _pause(player: Player, step: Step, times: Times) -> list[str]:
    for partition in _partitions(step):
        player.pause(step.arguments[0], partition)
    return []


def _resume(player: Player, step: Step, times: Times) -> list[str]:
    for partition in _partitions(step):
        player.resume(step.arguments[0], partition)
    return []


def _close_consumer(player: Player, step: Step, times: Times) -> list[str]:
    player.close_consumer(step.arguments[0])
    return []


VERBS: dict[str, Verb] = {
    "create": _create,
    "delete-topic": _delete_topic,
    "topics": _topics,
    "partitions": _partition_count,
    "grow": _grow,
    "configs": _configs,
    "alter": _alter,
    "delete-records": _delete_records,
    "bounds": _bounds,
    "offset-at": _offset_at,
    "compact": _compact,
    "groups": _groups,
    "group": _group,
    "delete-group": _delete_group,
    "group-offsets": _group_offsets,
    "alter-group-offsets": _alter_group_offsets,
    "producer": _producer,
    "send": _send,
    "init": _init,
    "begin": _begin,
    "outlast": _outlast,
    "commit-transaction": _commit_transaction,
    "abort": _abort,
    "send-offsets": _send_offsets,
    "close-producer": _close_producer,
    "read": _read,
    "consumer": _consumer,
    "assign": _assign,
    "subscribe": _subscribe,
    "unsubscribe": _unsubscribe,
    "assigned": _assigned,
    "poll": _poll,
    "commit": _commit,
    "committed": _committed,
    "position": _position,
    "seek": _seek,
    "pause": _pause,
    "resume": _resume,
    "close-consumer": _close_consumer,
}
"""By the word that a step begins with."""


def with_seen(
    scenario: Scenario,
    *,
    kafka: list[tuple[str, ...]],
    sparklog: list[tuple[str, ...]],
    gateway: list[tuple[str, ...]],
) -> Scenario:
    """The scenario with what was seen written below its steps; reasons stay where something still differs."""
    steps = tuple(
        replace(step, kafka=on_kafka, sparklog=here, gateway=None if through == here else through)
        for step, on_kafka, here, through in zip(scenario.steps, kafka, sparklog, gateway, strict=True)
    )
    return replace(scenario, steps=tuple(step if step.differs else replace(step, because="") for step in steps))
