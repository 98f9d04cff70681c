"""Which settings of its clients a user may give to a worker: not those with which it couldn't keep its promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparklog.config import ConsumerConfig, ProducerConfig
from sparklog.config.share_consumer import ShareConsumerConfig
from sparklog.errors import InvalidConfigurationError, InvalidRecordError

__all__ = ["checked_client_settings"]

_GIVE = "give App({}=…)"
_AS_READ = "dead letters and delayed records keep what was read; give subscriber(value_type=…) or subscriber(decode=…)"
_CONSUMER: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "group_id": (_GIVE.format("group_id"), ()),
    "auto_offset_reset": (_GIVE.format("auto_offset_reset"), ()),
    "share_auto_offset_reset": (_GIVE.format("auto_offset_reset"), ()),
    "enable_auto_commit": ("the worker commits what is done, and nothing else", (False, None)),
    "isolation_level": ("the worker reads what is committed", ("read_committed",)),
    "share_acknowledgement_mode": ("the worker acknowledges what is done, and nothing else", ("explicit",)),
    "key_deserializer": (_AS_READ, (None,)),
    "value_deserializer": (_AS_READ, (None,)),
    "value_format": (_AS_READ, ("bytes",)),
    "value_schema_id": ("dead letters and delayed records would lose the fields of other schemas", (None,)),
    "interceptors": ("dead letters and delayed records keep what was read, and nothing is skipped", ((), [], None)),
}
"""By setting: why it is refused, and values that change nothing."""
_PRODUCER: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "transactional_id": (_GIVE.format("transactional_id"), (None,)),
    "key_serializer": ("the keys of Send are bytes or texts, and those of dead letters bytes", (None,)),
    "value_serializer": ("Send encodes values, and those of dead letters are bytes", (None,)),
}
_STORED = "outputs are to be stored before their input is acknowledged"


def checked_client_settings(
    group_id: str, consumer: Mapping[str, Any], producer: Mapping[str, Any], *, is_shared: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Check ``App(consumer=…, producer=…)``. Returns both by names with underscores, as the worker asks for them.

    Raises:
        InvalidConfigurationError: a setting is unknown, given twice, or the worker's own; names it.
    """
    _refuse("consumer", consumer, {**_CONSUMER, "group_id": (_CONSUMER["group_id"][0], (group_id,))})
    _refuse("producer", producer, _PRODUCER)
    if is_shared:
        ShareConsumerConfig.parse(_with(consumer, "group_id", group_id))
        if ProducerConfig.parse(producer).acks == 0:
            raise InvalidConfigurationError(f"App: producer={{'acks': {producer['acks']!r}}}: {_STORED}")
    else:
        ConsumerConfig.parse(_with(consumer, "group_id", group_id))
        ProducerConfig.parse(_with(producer, "transactional_id", group_id))
    of_consumer, of_producer = ({_plain(name): value for name, value in each.items()} for each in (consumer, producer))
    if of_producer.get("partitioner") is not None:
        of_producer["partitioner"] = _Partitioner(of_producer["partitioner"])
    return of_consumer, of_producer


class _Partitioner:
    """A user's partitioner, whose errors are those of the record, in either form that producers take."""

    def __init__(self, given: Any) -> None:
        method = getattr(given, "partition", None)
        self._choose = given
        if callable(method):
            self._choose = method
            self.partition = self.__call__

    def __call__(self, *given: Any) -> Any:
        """Return what it does. Raises ``InvalidRecordError`` where it fails."""
        try:
            return self._choose(*given)
        except Exception as error:
            raise InvalidRecordError(f"the producer's partitioner failed: {error!r}") from error


def _plain(name: str) -> str:
    return name.replace(".", "_")


def _with(given: Mapping[str, Any], own: str, value: Any) -> dict[str, Any]:
    """Set the worker's own value of a setting, however that is spelled in what was given."""
    return {**{name: each for name, each in given.items() if _plain(name) != own}, own: value}


def _refuse(client: str, given: Mapping[str, Any], refused: Mapping[str, tuple[str, tuple[Any, ...]]]) -> None:
    for name, value in given.items():
        why, allowed = refused.get(_plain(name), ("", None))
        if allowed is not None and not any(value is each or value == each for each in allowed):
            raise InvalidConfigurationError(f"App: {client}={{{name!r}: {value!r}}}: {why}")
