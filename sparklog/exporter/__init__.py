"""A cluster's figures for Prometheus, over HTTP."""

from sparklog.exporter.app import ExporterApp, Response
from sparklog.exporter.metrics import CLUSTER_METRICS, EXPORTER_METRICS, Metric
from sparklog.exporter.server import ExporterServer, parse_address
from sparklog.exporter.store_metrics import STORE_METRICS, metric_names

__all__ = [
    "CLUSTER_METRICS",
    "EXPORTER_METRICS",
    "STORE_METRICS",
    "ExporterApp",
    "ExporterServer",
    "Metric",
    "Response",
    "metric_names",
    "parse_address",
]
