"""The options of ``format("sparklog")``: those of Spark's Kafka source, and what they mean here. Pure.

Source: Spark ``KafkaSourceProvider``, and its guide "Structured Streaming + Kafka Integration".
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sparklog.errors import InvalidConfigurationError, InvalidTopicError
from sparklog.model import TopicPartition
from sparklog.paths import check_topic_name
from sparklog.sql.names import SYSTEM_VIEWS

__all__ = [
    "EARLIEST",
    "LATEST",
    "VALUE_FORMATS",
    "GivenOptions",
    "Limits",
    "SourceOptions",
    "Subscription",
    "bad_option",
    "json_object",
    "positive",
    "source_options",
    "topic_name",
]

T = TypeVar("T")

LATEST = -1
EARLIEST = -2
"""Special offsets in JSON. Source: Kafka ``ListOffsetsRequest``."""

VALUE_FORMATS = ("bytes", "columns")
"""``bytes``: values of typed topics are bytes of the topic's ``value.format``, as a Kafka topic's. ``columns``: their
fields are columns, and ``value`` has what couldn't be decoded."""
_DEFAULT_MAX_DELAY_MS = 15 * 60 * 1_000
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_NO_EFFECT = frozenset(
    {"groupidprefix", "fetchoffset.numretries", "fetchoffset.retryintervalms", "kafkaconsumer.polltimeoutms"}
)
"""Options of the Kafka source that concern brokers and their clients."""
_ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_NAMES = (
    *("path", "cluster", "kafka.bootstrap.servers", "storageOptions", "view"),
    *("subscribe", "subscribePattern", "assign"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *_ENDINGS,
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "splitLargeCommits"),
    *("minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders", "valueFormat", "newFields"),
    "groupId",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The topics that are read; one of the three fields is set."""

    topics: tuple[str, ...] = ()
    """``subscribe``"""
    pattern: str = ""
    """``subscribePattern``: a topic is read if all of its name matches."""
    partitions: tuple[TopicPartition, ...] = ()
    """``assign``"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The limit at which reading starts or ends. ``timestamp`` goes before ``timestamps``, and those before
    ``offsets``."""

    everywhere: int | None = None
    """:data:`EARLIEST` or :data:`LATEST`, for all partitions."""
    offsets: Mapping[TopicPartition, int] | None = None
    """For each partition an offset, :data:`EARLIEST` or :data:`LATEST`."""
    timestamps: Mapping[TopicPartition, int] | None = None
    """For each partition: the first record that isn't older; milliseconds since the epoch."""
    timestamp: int | None = None
    """The same for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one micro-batch; None: no limit. Batch queries pass over them, as Kafka's source does."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = _DEFAULT_MAX_DELAY_MS
    """After so long a batch doesn't wait for ``min_offsets``."""
    splits_large_commits: bool = False
    """May a commit that is more than its topic's share of ``max_offsets`` be read in several batches?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a query: what it reads."""

    uri: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    view: str = ""
    """One of :data:`~sparklog.sql.names.SYSTEM_VIEWS`, in place of topics."""
    subscription: Subscription
    starting: Limit
    ending: Limit
    """The end of a batch query; a streaming query has none."""
    latest_without_match: bool = False
    """A partition none of whose records is young enough begins at its end, and is no error."""
    limits: Limits = Limits()
    min_partitions: int | None = None
    """About how many tasks a batch is to have."""
    max_records: int | None = None
    """How many offsets a task reads at most."""
    fail_on_data_loss: bool = True
    include_headers: bool = False
    value_format: str | None = None
    """One of :data:`VALUE_FORMATS`; None: a query of one typed topic has its fields as columns, and its bytes."""
    ignores_new_fields: bool = False
    """Does a streaming query go on without the fields that its typed topic gets meanwhile?"""
    group_id: str | None = None
    """The group whose offsets follow a streaming query."""

    @property
    def only_topic(self) -> str | None:
        """The topic that the query names, where it names one alone."""
        topics = {*self.subscription.topics, *(partition.topic for partition in self.subscription.partitions)}
        return next(iter(topics)) if len(topics) == 1 else None


def source_options(given: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """Read the options of a query.

    Args:
        given: names in any case.
        streaming: None while that isn't known, when only the schema is asked for.
    Raises:
        InvalidConfigurationError: an option is unknown, missing, contradicts another, or its value isn't allowed;
            the message names it.
        InvalidTopicError: a name that no topic has.
    """
    options = GivenOptions(given, _NAMES)
    endings = [name for name in _ENDINGS if options.has(name)]
    uri, storage_options = options.pop_cluster()
    view = options.pop("view") or ""
    if view:
        if view not in SYSTEM_VIEWS:
            raise bad_option("view", view, f"one of {', '.join(SYSTEM_VIEWS)}")
        options.check_empty()
        nothing = Limit()
        return SourceOptions(
            uri=uri,
            storage_options=storage_options,
            view=view,
            subscription=Subscription(),
            starting=nothing,
            ending=nothing,
        )
    found = SourceOptions(
        uri=uri,
        storage_options=storage_options,
        subscription=_subscription(options),
        starting=_limit(options, "starting", LATEST if streaming else EARLIEST),
        ending=_limit(options, "ending", LATEST),
        latest_without_match=_strategy(options),
        limits=Limits(
            max_offsets=options.pop_as("maxoffsetspertrigger", positive),
            min_offsets=options.pop_as("minoffsetspertrigger", positive),
            max_delay_ms=_default(options.pop_as("maxtriggerdelay", _duration_ms), _DEFAULT_MAX_DELAY_MS),
            splits_large_commits=_default(options.pop_as("splitlargecommits", _boolean), False),
        ),
        min_partitions=options.pop_as("minpartitions", positive),
        max_records=options.pop_as("maxrecordsperpartition", positive),
        fail_on_data_loss=_default(options.pop_as("failondataloss", _boolean), True),
        include_headers=_default(options.pop_as("includeheaders", _boolean), False),
        value_format=options.pop_as("valueformat", _value_format),
        ignores_new_fields=options.pop_as("newfields", _new_fields) or False,
        group_id=options.pop("groupid"),
    )
    options.check_empty()
    if streaming is False:
        _check_batch(found)
    elif streaming:
        _check_streaming(found, endings)
    return found


class GivenOptions:
    """The options of a query that weren't read yet, by their names in lower case."""

    def __init__(self, given: Mapping[str, str], names: Sequence[str]) -> None:
        """Args:
        given: names in any case.
        names: the options that there are, as their page spells them: Spark gives their names in lower case.
        """
        self._left = {name.lower(): value for name, value in given.items()}
        self._spellings = {name.lower(): name for name in names}

    def has(self, name: str) -> bool:
        """Was the option given, and not read yet?"""
        return name.lower() in self._left

    def pop(self, name: str) -> str | None:
        """The option's text, which is then read; None where it wasn't given."""
        return self._left.pop(name, None)

    def pop_as(self, name: str, read: Callable[[str, str], Any]) -> Any:
        """The option as ``read(name, text)`` understands it; None where it wasn't given."""
        value = self.pop(name)
        return None if value is None else read(self._spellings.get(name, name), value)

    def pop_cluster(self) -> tuple[str, Mapping[str, Any]]:
        """The cluster's root, and the settings of its store. Raises ``InvalidConfigurationError``."""
        uri = self.pop("path") or self.pop("cluster") or self.pop("kafka.bootstrap.servers")
        if not uri:
            raise InvalidConfigurationError(
                'format("sparklog") needs the cluster\'s root: load(root), or option("path", …)'
            )
        for name in ("cluster", "kafka.bootstrap.servers"):
            self.pop(name)
        return uri, self.pop_as("storageoptions", json_object) or {}

    def check_empty(self, no_effect: Collection[str] = _NO_EFFECT) -> None:
        """Raise ``InvalidConfigurationError`` if an option is left but for those, and for those of Kafka's clients."""
        unknown = sorted(name for name in self._left if name not in no_effect and not name.startswith("kafka."))
        if unknown:
            found = ", ".join(map(self._with_hint, unknown))
            raise InvalidConfigurationError(f'format("sparklog") has no option {found}')

    def _with_hint(self, unknown: str) -> str:
        alike = difflib.get_close_matches(unknown, self._spellings, n=1)
        return f"{unknown} (did you mean {self._spellings[alike[0]]}?)" if alike else unknown


def _subscription(options: GivenOptions) -> Subscription:
    given = {name: value for name in ("assign", "subscribe", "subscribepattern") if (value := options.pop(name))}
    if len(given) != 1:
        seen = f"got {' and '.join(given)}" if given else "got none"
        raise InvalidConfigurationError(f"{seen}: expected one of subscribe, subscribePattern and assign")
    if "subscribe" in given:
        names = [name.strip() for name in given["subscribe"].split(",") if name.strip()]
        if not names:
            raise bad_option("subscribe", given["subscribe"], "names of topics, separated by commas")
        return Subscription(topics=tuple(dict.fromkeys(topic_name(name) for name in names)))
    if "subscribepattern" in given:
        try:
            re.compile(given["subscribepattern"])
        except re.error as error:
            raise bad_option(
                "subscribePattern", given["subscribepattern"], f"a regular expression ({error})"
            ) from error
        return Subscription(pattern=given["subscribepattern"])
    expected = 'JSON as {"topic": [0, 1]}'
    assigned = json_object("assign", given["assign"], expected=expected)
    partitions = []
    for topic, numbers in assigned.items():
        if not isinstance(numbers, list) or not all(_is_count(number) for number in numbers):
            raise bad_option("assign", given["assign"], expected)
        partitions += [TopicPartition(topic_name(topic), number) for number in numbers]
    if not partitions:
        raise bad_option("assign", given["assign"], expected)
    return Subscription(partitions=tuple(sorted(set(partitions))))


def _limit(options: GivenOptions, side: str, default: int) -> Limit:
    timestamp = options.pop_as(f"{side}timestamp", _milliseconds)
    timestamps = options.pop_as(f"{side}offsetsbytimestamp", _numbers_by_partition)
    text = options.pop(f"{side}offsets")
    offsets: Mapping[TopicPartition, int] | None = None
    everywhere: int | None = default
    if text is not None:
        everywhere = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
        if everywhere is None:
            name = f"{side}Offsets"
            offsets = _numbers_by_partition(name, text, lowest=EARLIEST, words="earliest, latest or ")
    for partition, moment in (timestamps or {}).items():
        if moment < 0:
            raise bad_option(f"{side}OffsetsByTimestamp", f"{moment} of {partition}", "milliseconds since the epoch")
    if timestamp is not None:
        return Limit(timestamp=timestamp)
    if timestamps is not None:
        return Limit(timestamps=timestamps)
    return Limit(everywhere=everywhere, offsets=offsets)


def _strategy(options: GivenOptions) -> bool:
    strategy = (options.pop("startingoffsetsbytimestampstrategy") or "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise bad_option("startingOffsetsByTimestampStrategy", strategy, "error or latest")
    return strategy == "latest"


def _check_batch(options: SourceOptions) -> None:
    starting, ending = options.starting, options.ending
    if starting.everywhere == LATEST or LATEST in (starting.offsets or {}).values():
        raise InvalidConfigurationError(
            "startingOffsets of a batch query can't be latest: there would be nothing to read"
        )
    if ending.everywhere == EARLIEST or EARLIEST in (ending.offsets or {}).values():
        raise InvalidConfigurationError("endingOffsets can't be earliest: there would be nothing to read")
    if options.group_id is not None:
        raise InvalidConfigurationError("groupId has no meaning in a batch query, which commits no offsets")


def _check_streaming(options: SourceOptions, endings: Sequence[str]) -> None:
    limits = options.limits
    if endings:  # endingOffsets=latest, too, as Kafka's source
        raise InvalidConfigurationError(f"a streaming query has no end: got {' and '.join(endings)}, expected none")
    if limits.max_offsets is not None and limits.min_offsets is not None and limits.min_offsets > limits.max_offsets:
        raise InvalidConfigurationError(
            f"minOffsetsPerTrigger={limits.min_offsets} is more than maxOffsetsPerTrigger={limits.max_offsets}"
        )
    if limits.splits_large_commits and limits.max_offsets is None:
        raise InvalidConfigurationError("splitLargeCommits=true means nothing without maxOffsetsPerTrigger")


def _numbers_by_partition(name: str, text: str, *, lowest: int = 0, words: str = "") -> dict[TopicPartition, int]:
    expected = words + 'JSON as {"topic": {"0": 23, "1": 42}}'
    found: dict[TopicPartition, int] = {}
    for topic, numbers in json_object(name, text, expected=expected).items():
        if not isinstance(numbers, dict):
            raise bad_option(name, text, expected)
        for partition, number in numbers.items():
            if not partition.isdecimal() or isinstance(number, bool) or not isinstance(number, int) or number < lowest:
                raise bad_option(name, text, expected)
            found[TopicPartition(topic_name(topic), int(partition))] = number
    return found


def json_object(name: str, text: str, *, expected: str = "a JSON object") -> dict[str, Any]:
    """The JSON object that an option's ``text`` is. Raises ``InvalidConfigurationError``, without the text where that
    may hold a secret."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        shown = "…" if name == "storageOptions" else text  # it may hold a secret
        raise bad_option(name, shown, expected) from None
    return found


def topic_name(name: str) -> str:
    """``name``, if Kafka allows a topic to have it. Raises ``InvalidConfigurationError``."""
    try:
        return check_topic_name(name)
    except InvalidTopicError as error:
        raise InvalidConfigurationError(str(error)) from error


def positive(name: str, text: str) -> int:
    """A whole number from 1 on. Raises ``InvalidConfigurationError``."""
    if not text.strip().isdecimal() or int(text) == 0:
        raise bad_option(name, text, "a whole number from 1 on")
    return int(text)


def _milliseconds(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise bad_option(name, text, "milliseconds since the epoch")
    return int(text)


def _boolean(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise bad_option(name, text, "true or false")
    return text.strip().lower() == "true"


def _value_format(name: str, text: str) -> str:
    if text.strip().lower() not in VALUE_FORMATS:
        raise bad_option(name, text, f"one of {', '.join(VALUE_FORMATS)}")
    return text.strip().lower()


def _new_fields(name: str, text: str) -> bool:
    if text.strip().lower() not in ("fail", "ignore"):
        raise bad_option(name, text, "fail or ignore")
    return text.strip().lower() == "ignore"


def _duration_ms(name: str, text: str) -> int:
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if found is None or (found[2] or "ms") not in _UNITS_MS:
        raise bad_option(name, text, "a duration as 15m, 30s or 500ms")
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _default(value: T | None, default: T) -> T:
    return default if value is None else value


def bad_option(name: str, seen: str, expected: str) -> InvalidConfigurationError:
    """The error for an option that isn't ``expected``; it names the option and what was given."""
    return InvalidConfigurationError(f"{name}={seen!r}: expected {expected}")
