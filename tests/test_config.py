import pytest

from sparklog.config import TOPIC_SETTINGS, TopicConfig
from sparklog.errors import InvalidConfigurationError

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

# Source: Apache Kafka 4.3.0, TopicConfig and LogConfig, as its released classes print them.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": 86_400_000,
    "file.delete.delay.ms": 60_000,
    "max.compaction.lag.ms": LONG_MAX,
    "max.message.bytes": 1_048_588,
    "message.timestamp.after.max.ms": 3_600_000,
    "message.timestamp.before.max.ms": LONG_MAX,
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": 0.5,
    "min.compaction.lag.ms": 0,
    "min.insync.replicas": 1,
    "retention.bytes": -1,
    "retention.ms": 604_800_000,
    "segment.bytes": 1_073_741_824,
    "segment.jitter.ms": 0,
    "segment.ms": 604_800_000,
    "unclean.leader.election.enable": False,
}
OURS = {
    "log.retention.ms": 86_400_000,
    "foreign.gap.interval.ms": -1,
    "delay": False,
    "value.compatibility": "BACKWARD",
    "value.bytes": "drop",
    "value.format": "json",
    "value.index": "",
    "value.on.error": "reject",
}
WITHOUT_MEANING = [
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "segment.index.bytes",
]


def test_defaults_are_kafkas():
    assert TopicConfig().all() == {**KAFKA_DEFAULTS, **OURS}


def test_only_what_the_object_store_provides_is_marked_so():
    marked = {name for name, setting in TOPIC_SETTINGS.items() if setting.provided_by_store}
    assert marked == {"min.insync.replicas", "unclean.leader.election.enable"}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "86400000", 86_400_000),
        ("retention.ms", " -1 ", -1),
        ("retention.ms", 5, 5),
        ("retention.ms", str(LONG_MAX), LONG_MAX),
        ("retention.bytes", -1, -1),
        ("segment.bytes", 1_048_576, 1_048_576),
        ("max.message.bytes", INT_MAX, INT_MAX),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("min.cleanable.dirty.ratio", 1, 1.0),
        ("min.cleanable.dirty.ratio", "0", 0.0),
        ("cleanup.policy", "compact", "compact"),
        ("cleanup.policy", "delete, compact", "delete,compact"),
        ("cleanup.policy", "", ""),
        ("compression.type", "zstd", "zstd"),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
        ("unclean.leader.election.enable", "TRUE", True),
        ("unclean.leader.election.enable", False, False),
        ("log.retention.ms", 600_000, 600_000),
    ],
)
def test_values_are_read_as_text_or_as_what_they_are(name, text, value):
    assert TopicConfig.parse({name: text})[name] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "a week"),
        ("retention.ms", ""),
        ("retention.ms", "1_000"),
        ("retention.ms", "1.0"),
        ("retention.ms", 2.5),
        ("retention.ms", True),
        ("retention.ms", LONG_MAX + 1),
        ("retention.ms", None),
        ("retention.ms", [1]),
        ("retention.ms", b"1"),
        ("retention.bytes", -2),
        ("segment.bytes", 1_048_575),  # Source: Kafka 4.0 release notes, at least 1 MiB
        ("segment.bytes", INT_MAX + 1),
        ("segment.ms", 0),
        ("max.compaction.lag.ms", 0),
        ("max.message.bytes", -1),
        ("min.insync.replicas", 0),
        ("min.cleanable.dirty.ratio", 1.01),
        ("min.cleanable.dirty.ratio", -0.01),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "half"),
        ("cleanup.policy", "archive"),
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", "delete,"),
        ("compression.type", "brotli"),
        ("compression.type", "ZSTD"),
        ("message.timestamp.type", "createtime"),
        ("unclean.leader.election.enable", "yes"),
        ("unclean.leader.election.enable", 1),
        ("log.retention.ms", 599_999),  # protocol rule L3: ten times tail_trust_ms
    ],
)
def test_a_value_that_is_not_allowed_is_refused_by_name(name, value):
    with pytest.raises(InvalidConfigurationError, match=name.replace(".", r"\.")) as caught:
        TopicConfig.parse({name: value})
    assert "expected" in str(caught.value)


def test_an_unknown_setting_is_refused_by_name():
    with pytest.raises(InvalidConfigurationError, match=r"unknown topic setting 'retention\.hours'"):
        TopicConfig.parse({"retention.ms": 1, "retention.hours": 1})


@pytest.mark.parametrize("name", WITHOUT_MEANING)
def test_a_setting_without_meaning_here_is_refused_by_name_and_told_why(name):
    with pytest.raises(InvalidConfigurationError, match=rf"{name} is not supported: \w+"):
        TopicConfig.parse({name: "1"})


def test_a_setting_may_be_named_as_its_table_property_is():
    config = TopicConfig.parse({"sparklog.delay": "true", "retention.ms": 5})
    assert config.explicit == {"delay": True, "retention.ms": 5}
    assert config.with_changes({"sparklog.retention.ms": None}).explicit == {"delay": True}
    with pytest.raises(InvalidConfigurationError, match=r"delay and sparklog\.delay are one setting"):
        TopicConfig.parse({"sparklog.delay": True, "delay": False})
    with pytest.raises(InvalidConfigurationError, match="unknown topic setting 'x'"):
        TopicConfig.parse({"sparklog.x": 1})


def test_every_topic_setting_of_kafka_is_either_known_or_refused():
    assert set(KAFKA_DEFAULTS).isdisjoint(WITHOUT_MEANING)
    assert set(TOPIC_SETTINGS) == set(KAFKA_DEFAULTS) | set(OURS)


# Source: Kafka LogConfig.validateValues
@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({"min.compaction.lag.ms": 11, "max.compaction.lag.ms": 10}, False),
        ({"min.compaction.lag.ms": 10, "max.compaction.lag.ms": 10}, True),
        ({"min.compaction.lag.ms": LONG_MAX}, True),
    ],
)
def test_the_least_compaction_lag_is_not_greater_than_the_greatest(given, allowed):
    if allowed:
        TopicConfig.parse(given)
        return
    with pytest.raises(InvalidConfigurationError, match=r"min\.compaction\.lag\.ms=11.*max\.compaction\.lag\.ms=10"):
        TopicConfig.parse(given)


def test_a_change_keeps_the_other_settings():
    config = TopicConfig.parse({"retention.ms": 1, "segment.ms": 2})
    assert config.with_changes({"segment.ms": 3}) == TopicConfig.parse({"retention.ms": 1, "segment.ms": 3})
    assert config["segment.ms"] == 2


def test_a_change_to_none_takes_a_setting_back_to_its_default():
    config = TopicConfig.parse({"retention.ms": 1}).with_changes({"retention.ms": None, "segment.ms": None})
    assert config == TopicConfig()
    assert config["retention.ms"] == KAFKA_DEFAULTS["retention.ms"]


@pytest.mark.parametrize("changes", [{"retention.hours": None}, {"retention.hours": 1}, {"flush.ms": None}])
def test_a_change_of_a_setting_that_is_none_is_refused_by_name(changes):
    with pytest.raises(InvalidConfigurationError, match=next(iter(changes)).replace(".", r"\.")):
        TopicConfig().with_changes(changes)


def test_a_change_is_checked_beside_the_settings_that_stay():
    config = TopicConfig.parse({"max.compaction.lag.ms": 10})
    with pytest.raises(InvalidConfigurationError, match=r"min\.compaction\.lag\.ms=11"):
        config.with_changes({"min.compaction.lag.ms": 11})


def test_properties_hold_the_explicit_settings_and_read_back_as_the_same():
    config = TopicConfig.parse(
        {
            "retention.ms": -1,
            "min.cleanable.dirty.ratio": 0.1,
            "unclean.leader.election.enable": True,
            "cleanup.policy": "",
            "compression.type": "lz4",
            "max.compaction.lag.ms": LONG_MAX,
        }
    )
    properties = config.to_properties()
    assert properties == {
        "sparklog.retention.ms": "-1",
        "sparklog.min.cleanable.dirty.ratio": "0.1",
        "sparklog.unclean.leader.election.enable": "true",
        "sparklog.cleanup.policy": "",
        "sparklog.compression.type": "lz4",
        "sparklog.max.compaction.lag.ms": "9223372036854775807",
    }
    assert TopicConfig.from_properties(properties) == config


def test_properties_of_others_and_of_a_newer_sparklog_are_passed_over():
    properties = {
        "sparklog.retention.ms": "7",
        "sparklog.tiering.of.tomorrow": "x",
        "sparklog.partitions": "3",
        "delta.appendOnly": "false",
        "retention.ms": "9",
    }
    assert TopicConfig.from_properties(properties) == TopicConfig.parse({"retention.ms": 7})


@pytest.mark.parametrize(
    ("name", "garbled"),
    [
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("retention.ms", ""),
        ("cleanup.policy", "delete;compact"),
        ("log.retention.ms", "1"),  # protocol rule L3: too short
    ],
)
def test_a_property_that_someone_garbled_is_named_and_not_used(name, garbled, caplog):
    properties = {"sparklog.segment.ms": "5", f"sparklog.{name}": garbled, "sparklog.retention.bytes": "6"}
    others = {"segment.ms": 5, "retention.bytes": 6}
    assert TopicConfig.from_properties(properties) == TopicConfig(others)
    (told,) = caplog.messages
    assert f"sparklog.{name}" in told
    assert repr(garbled) in told
    earlier = TopicConfig.parse({name: TopicConfig()[name], "segment.ms": 4, "segment.jitter.ms": 3})
    kept = TopicConfig({**others, name: earlier[name]})
    assert TopicConfig.from_properties(properties, before=earlier) == kept
    assert TopicConfig.from_properties(properties, before=TopicConfig({"segment.ms": 4})) == TopicConfig(others)


@pytest.mark.parametrize("names", [(0, 1), (1, 0)], ids=["low first", "high first"])
@pytest.mark.parametrize(
    ("low", "high", "used"),
    [
        ("20", "10", {"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 15}),
        ("20", "much", {"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 15}),  # 20 doesn't go with 15
        ("12", "much", {"min.compaction.lag.ms": 12, "max.compaction.lag.ms": 15}),
        ("20", "30", {"min.compaction.lag.ms": 20, "max.compaction.lag.ms": 30}),
    ],
)
def test_properties_that_contradict_one_another_are_named_and_not_used(low, high, used, names, caplog):
    lags = [("min.compaction.lag.ms", low), ("max.compaction.lag.ms", high)]
    properties = {"sparklog.segment.ms": "7", **{f"sparklog.{lags[n][0]}": lags[n][1] for n in names}}
    before = TopicConfig.parse({"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 15})
    config = TopicConfig.from_properties(properties, before=before)
    config.check()
    assert config == TopicConfig({**used, "segment.ms": 7})
    if high != "30":
        assert "sparklog.max.compaction.lag.ms" in caplog.text
    TopicConfig.from_properties(properties).check()


def test_settings_do_not_change_with_the_mapping_they_were_made_of():
    given = {"retention.ms": 1}
    config = TopicConfig(given)
    given["retention.ms"] = 2
    assert config.integer("retention.ms") == 1


def test_a_newer_sparklogs_setting_stays_when_another_is_changed() -> None:
    config = TopicConfig({"retention.ms": 1, "from.the.future": "kept"}).with_changes({"retention.ms": None})
    assert dict(config.explicit) == {"from.the.future": "kept"}
