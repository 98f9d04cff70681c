"""Prometheus' text format, version 0.0.4, as bytes that are kept compressed: a thousand topics make megabytes of it."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from sparklog.exporter.metrics import Metric

__all__ = ["CONTENT_TYPE", "compressed", "lines"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LINES_AT_ONCE = 2_000
_LEVEL = 1

T = TypeVar("T")


def lines(metrics: Iterable[Metric[T]], value: T) -> Iterator[str]:
    """The lines of metrics, each with its end; a metric without rows has no lines. Source: Prometheus, "Exposition
    formats"."""
    for metric in metrics:
        is_begun = False
        names = [f'{name}="' for name in metric.labels]
        for labels, number in metric.rows(value):
            if not is_begun:
                yield f"# HELP {metric.name} {_escaped(metric.help, quotes=False)}\n"
                yield f"# TYPE {metric.name} {metric.kind}\n"
                is_begun = True
            pairs = ",".join(f'{name}{_escaped(label)}"' for name, label in zip(names, labels, strict=True))
            yield f"{metric.name}{{{pairs}}} {number!r}\n" if pairs else f"{metric.name} {number!r}\n"


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
