"""The versions of everything that ``make compat`` downloads, in one place."""

from __future__ import annotations

__all__ = [
    "FLINK_JARS",
    "FRANZ_GO",
    "JAVA_CLIENT_JARS",
    "KAFKAJS",
    "KAFKA_GO",
    "KAFKA_TOOLS_JARS",
    "LIBRDKAFKA",
    "LIBRDKAFKA_INTEGRITY",
    "MIRROR_MAKER_JARS",
    "PLATFORMATIC",
    "SARAMA",
    "STREAMS_39_JARS",
    "STREAMS_43_JARS",
]

_KAFKA = "4.3.1"
_CONSOLE = "org.slf4j:slf4j-simple:1.7.36"
"""Without a logger behind it, a Java program that fails couldn't say why."""

KAFKA_TOOLS_JARS = (
    f"org.apache.kafka:kafka-tools:{_KAFKA}",
    f"org.apache.kafka:kafka_2.13:{_KAFKA}",
    f"org.apache.kafka:connect-runtime:{_KAFKA}",
    f"org.apache.kafka:connect-file:{_KAFKA}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3",
)
STREAMS_39_JARS = ("org.apache.kafka:kafka-streams:3.9.1", _CONSOLE)
STREAMS_43_JARS = (f"org.apache.kafka:kafka-streams:{_KAFKA}", _CONSOLE)
MIRROR_MAKER_JARS = (
    f"org.apache.kafka:connect-mirror:{_KAFKA}",
    f"org.apache.kafka:connect-runtime:{_KAFKA}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3",
)
JAVA_CLIENT_JARS = ("org.apache.kafka:kafka-clients:2.8.2", _CONSOLE)
FLINK_JARS = (
    "org.apache.flink:flink-connector-kafka:4.0.1-2.0",
    "org.apache.flink:flink-connector-base:2.0.0",
    "org.apache.flink:flink-streaming-java:2.0.0",
    "org.apache.flink:flink-clients:2.0.0",
    _CONSOLE,
)

FRANZ_GO = "github.com/twmb/franz-go@v1.21.5"
SARAMA = "github.com/IBM/sarama@v1.61.1"
KAFKA_GO = "github.com/segmentio/kafka-go@v0.4.51"

KAFKAJS = ("kafkajs@2.2.4", "kafkajs-snappy@1.1.0")
PLATFORMATIC = ("@platformatic/kafka@1.35.0",)
LIBRDKAFKA = "@confluentinc/kafka-javascript@1.10.1"
"""A package of npm with the sources and the tests of librdkafka 2.15.1, which librdkafka's own packages lack."""
LIBRDKAFKA_INTEGRITY = "sha512-KVePUBn21EqCVP9mfxzEuM3SYJHHEF7X+iiC2e43QQgDSyEaksInmCGooT3w5q+cNAdkSCrK71j0ICfqoSqZLw=="
