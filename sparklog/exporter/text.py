"""Prometheus' text format, version 0.0.4, as bytes that are kept compressed: a thousand topics make megabytes of it."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from sparklog.exporter.metrics import Metric

__all__ = ["BOUND_METRIC", "CONTENT_TYPE", "compressed", "lines"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LINES_AT_ONCE = 2_000
_LEVEL = 1

T = TypeVar("T")

BOUND_METRIC: Metric[Mapping[str, int]] = Metric(
    "sparklog_exporter_left_out_series",
    "Series of a metric that aren't shown, by --most-series.",
    ("metric",),
    lambda left_out: (((name,), count) for name, count in left_out.items()),
)
"""By metrics' names: how many series of them were left out of the newest look."""


def lines(
    metrics: Iterable[Metric[T]], value: T, *, most_series: int = 0, left_out: dict[str, int] | None = None
) -> Iterator[str]:
    """The lines of metrics, each with its end; a metric without rows has no lines. Source: Prometheus, "Exposition
    formats".

    Args:
        most_series: of one metric; 0: as many as it has. The first ones stay, which are those of the same topics and
            groups in all metrics.
        left_out: gets the number of the others, by the metric's name.
    """
    for metric in metrics:
        is_begun = False
        rows = iter(metric.rows(value))
        names = [f'{name}="' for name in metric.labels]
        for labels, number in islice(rows, most_series or None):
            if not is_begun:
                yield f"# HELP {metric.name} {_escaped(metric.help, quotes=False)}\n"
                yield f"# TYPE {metric.name} {metric.kind}\n"
                is_begun = True
            pairs = ",".join(f'{name}{_escaped(label)}"' for name, label in zip(names, labels, strict=True))
            yield f"{metric.name}{{{pairs}}} {number!r}\n" if pairs else f"{metric.name} {number!r}\n"
        more = sum(1 for _ in rows) if most_series else 0
        if more and left_out is not None:
            left_out[metric.name] = more


def compressed(texts: Iterator[str]) -> bytes:
    """Lines as one member of a gzip file: members that follow each other are one file, too."""
    sink = io.BytesIO()
    with gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=_LEVEL, mtime=0) as file:
        while some := "".join(islice(texts, _LINES_AT_ONCE)):
            file.write(some.encode())
    return sink.getvalue()


def _escaped(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text
