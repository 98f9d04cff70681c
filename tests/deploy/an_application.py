"""An application that does what the lines of its standard input say, and serves its clients' metrics to Prometheus.

Each line is Python as a JSON string; ``done`` is printed after each, or what it raised. First of all the port is
printed.
"""

from __future__ import annotations

import json
import sys

from prometheus_client import start_http_server

from sparklog import Consumer, ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition  # noqa: F401
from sparklog.errors import SparklogError  # noqa: F401 - the lines use these
from sparklog.prometheus import collect


def records_of(consumer: Consumer, *, commits: bool) -> None:
    """Poll until something comes, as a handler that takes one record after the other."""
    while not consumer.poll(timeout_ms=1_000):
        pass
    if commits:
        consumer.commit()


def join(consumer: Consumer) -> None:
    """Poll until the consumer has partitions."""
    while not consumer.assignment():
        consumer.poll(timeout_ms=100)


if __name__ == "__main__":
    names = {**globals(), "cluster": sys.argv[1], "producer": Producer(sys.argv[1], client_id="shop", linger_ms=0)}
    collect(names["producer"])
    server, _ = start_http_server(0, addr="127.0.0.1")
    print(server.server_port, flush=True)
    for line in sys.stdin:
        try:
            exec(json.loads(line), names)
            print("done", flush=True)
        except Exception as error:
            print(repr(error), flush=True)
