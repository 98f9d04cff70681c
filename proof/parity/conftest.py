"""One broker for all parity tests of a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import NoReturn

import pytest

from benchmarks.kafka_broker import BRIEF_JVM_OPTIONS, Broker, BrokerUnavailableError, running_broker
from proof.parity.lacking import is_owed


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Where there can be none the tests are skipped, and fail in CI on a machine that has what it takes."""
    if find_spec("confluent_kafka") is None:
        _unavailable("confluent-kafka isn't installed: pip install 'sparklog[bench]'")
    try:
        with running_broker(jvm_options=BRIEF_JVM_OPTIONS) as broker:
            yield broker
    except BrokerUnavailableError as error:
        _unavailable(str(error))


def _unavailable(reason: str) -> NoReturn:
    if is_owed(os.environ):
        pytest.fail(f"no Kafka to compare with: {reason}", pytrace=False)
    pytest.skip(f"NOT COMPARED WITH KAFKA: {reason}")
