"""Metrics of producers and consumers for Prometheus, in the process that uses them: a collector for prometheus-client.

Names are those that Micrometer gives Kafka's clients, which dashboards know: ``kafka_producer_record_send_total``,
``kafka_consumer_fetch_manager_records_lag``, … What Kafka has no name for begins with ``sparklog_``, as the exporter's:
``sparklog_store_requests_total``, … The extra ``prometheus`` installs prometheus-client.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, count
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from sparklog.errors import InvalidTypeError
from sparklog.metrics import ClientMetrics, MetricGroup

__all__ = ["collect", "forget"]

_OF_PARTS = frozenset(
    f"kafka_consumer_fetch_manager_{name}"
    for name in (
        "bytes_consumed_rate",
        "bytes_consumed_total",
        "records_consumed_rate",
        "records_consumed_total",
        "records_lag_max",
        "records_lead_min",
    )
)
"""Names that a consumer and its topics or partitions have: the consumer's own are left out, as a sum would count them
twice. Source: Micrometer ``KafkaMetrics.checkAndBindMetrics``."""
_OWN = "sparklog-"
"""How groups begin of which Kafka has nothing."""


def collect(*clients: Any, registry: CollectorRegistry = REGISTRY) -> None:
    """Show the metrics of clients whenever ``registry`` is scraped, until they are closed or nobody uses them.

    A scrape asks no store. Clients are distinguished by the label ``client_id``: that of their settings, with ``-2``, …
    where others here have the same; ``producer-1``, ``consumer-1``, … where none is set.

    Args:
        clients: producers, consumers and share consumers, also those of ``sparklog.aio`` and ``sparklog.kafka``, and
            listeners of ``sparklog.spark.LagListener``. Again does nothing.
        registry: prometheus-client's own by default.
    Raises:
        InvalidTypeError: another object; none of ``clients`` is shown then.
        ValueError: another collector of the registry has metrics of these names.
    """
    for client in clients:
        if not hasattr(client, "_client_metrics"):
            raise InvalidTypeError(f"collect: got {type(client).__name__}, expected producers and consumers")
    with _CHANGING:
        collector = _COLLECTORS.get(registry)
        if collector is None:
            collector = _Clients(registry)
            registry.register(collector)
            _COLLECTORS[registry] = collector
        for client in clients:
            collector.add(client)


def forget(*clients: Any, registry: CollectorRegistry = REGISTRY) -> None:
    """Show clients no more, before they are closed. One that isn't shown is passed over."""
    with _CHANGING:
        collector = _COLLECTORS.get(registry)
        if collector is not None:
            collector.remove(*clients)


class _Clients(Collector):
    """The clients of one registry, which keeps this as long as there are any."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._clients: dict[weakref.ref[Any], str] = {}
        """With the number that each got among those of its kind, as a text."""
        self._numbers: Counter[str] = Counter()

    def add(self, client: Any) -> None:
        known = weakref.ref(client)
        if known not in self._clients:
            kind = client._client_metrics().kind
            self._numbers[kind] += 1
            self._clients[known] = f"{kind}-{self._numbers[kind]}"

    def remove(self, *clients: Any) -> None:
        for client in clients:
            self._clients.pop(weakref.ref(client), None)
        self._leave_if_empty()

    def describe(self) -> Iterable[Metric]:
        """Nothing: which metrics there are depends on the clients."""
        return ()

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for client_id, metrics in self._seen():
            for group in metrics.groups:
                labels = {"client_id": client_id, **group.labels}
                if group.name.startswith(_OWN):  # of producers and consumers, which may have one id
                    labels["client"] = metrics.kind
                for name, value in group.values.items():
                    _add(families, labels, group, name, value)
        yield from families.values()

    def _seen(self) -> list[tuple[str, ClientMetrics]]:
        """Each client's id, no two alike, and its metrics; what is closed or gone is forgotten."""
        with _CHANGING:
            found = []
            taken: set[tuple[str, str]] = set()
            for reference, number in [*self._clients.items()]:
                client = reference()
                metrics = None if client is None else client._client_metrics()
                if metrics is None or metrics.is_closed:
                    del self._clients[reference]
                    continue
                client_id = _free(metrics.client_id or number, {name for kind, name in taken if kind == metrics.kind})
                taken.add((metrics.kind, client_id))
                found.append((client_id, metrics))
            self._leave_if_empty()
        return found

    def _leave_if_empty(self) -> None:
        if not self._clients and _COLLECTORS.get(self._registry) is self:
            del _COLLECTORS[self._registry]
            self._registry.unregister(self)


_CHANGING = threading.Lock()
_COLLECTORS: weakref.WeakKeyDictionary[CollectorRegistry, _Clients] = weakref.WeakKeyDictionary()


def _free(name: str, taken: Collection[str]) -> str:
    """A name that isn't taken: ``name``, or ``name-2``, …"""
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(each for each in names if each not in taken)


def _add(families: dict[str, Metric], labels: Mapping[str, str], group: MetricGroup, name: str, value: float) -> None:
    """Add a value to the metric of its name, if it has one. NaN, of which Kafka says "nothing yet", is left out."""
    full = _full_name(group.name, name)
    if math.isnan(value) or (not group.labels and full in _OF_PARTS):
        return
    family = families.get(full)
    if family is None:
        kind = CounterMetricFamily if full.endswith("_total") else GaugeMetricFamily
        family = families[full] = kind(full, _help(group.name, name), labels=[*labels])
    family.add_metric([*labels.values()], value)  # type: ignore[attr-defined]


def _full_name(group: str, name: str) -> str:
    own = f"{group.removesuffix('-metrics')}_{name}".replace("-", "_")
    return own if group.startswith(_OWN) else f"kafka_{own}"


def _help(group: str, name: str) -> str:
    return f"{group}, {name}." if group.startswith(_OWN) else f"Kafka's {group}, {name}."
