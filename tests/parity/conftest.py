"""One broker for all parity tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.kafka_broker import Broker, BrokerUnavailableError, running_broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    pytest.importorskip("confluent_kafka", reason="confluent-kafka isn't installed: pip install 'sparklog[bench]'")
    try:
        with running_broker() as broker:
            yield broker
    except BrokerUnavailableError as error:
        pytest.skip(f"no Kafka to compare with: {error}")
