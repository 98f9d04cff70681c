"""A cluster's figures for Prometheus, over HTTP."""

from sparklog.exporter.app import ExporterApp, Response
from sparklog.exporter.metrics import CLUSTER_METRICS, EXPORTER_METRICS, Metric, metric_names
from sparklog.exporter.server import ExporterServer, parse_address

__all__ = [
    "CLUSTER_METRICS",
    "EXPORTER_METRICS",
    "ExporterApp",
    "ExporterServer",
    "Metric",
    "Response",
    "metric_names",
    "parse_address",
]
