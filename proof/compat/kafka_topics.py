"""Kafka's ``kafka-topics.sh`` as far as librdkafka's suite calls it, for machines without Kafka."""

from __future__ import annotations

import argparse

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

_WAIT_S = 30


def main() -> None:
    """Create a topic, let it grow, or delete it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server", required=True)
    for action in ("--create", "--alter", "--delete"):
        parser.add_argument(action, action="store_true")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--replication-factor", type=int, default=1)
    parser.add_argument("--config", action="append", default=[])
    asked = parser.parse_args()
    admin = AdminClient({"bootstrap.servers": asked.bootstrap_server})
    if asked.create:
        config = dict(one.split("=", 1) for one in asked.config)
        new = NewTopic(asked.topic, asked.partitions, asked.replication_factor, config=config)
        futures = admin.create_topics([new])
    elif asked.alter:
        futures = admin.create_partitions([NewPartitions(asked.topic, asked.partitions)])
    else:
        futures = admin.delete_topics([asked.topic])
    for future in futures.values():
        future.result(_WAIT_S)


if __name__ == "__main__":
    main()
