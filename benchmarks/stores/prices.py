"""What requests cost, in US dollars: the list prices of S3 in us-east-1, without storage and traffic out of the region.

Source: https://aws.amazon.com/s3/pricing/ (S3 Express One Zone since April 2025), as of November 2026. Other prices
come from the environment: ``SPARKLOG_BENCH_PRICES='{"S3 standard": {"put_per_1000": 0.0055}}'``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

__all__ = ["EXPRESS", "STANDARD", "Prices", "dollars", "prices_of"]

_VARIABLE = "SPARKLOG_BENCH_PRICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dollars for requests. Deletions are free."""

    name: str
    put_per_1000: float
    """Of PUT, COPY, POST and LIST."""
    get_per_1000: float
    """Of GET and HEAD."""
    upload_per_gib: float = 0.0
    retrieval_per_gib: float = 0.0


STANDARD = Prices(name="S3 standard", put_per_1000=0.005, get_per_1000=0.0004)
EXPRESS = Prices(
    name="S3 Express One Zone",
    put_per_1000=0.00113,
    get_per_1000=0.00003,
    upload_per_gib=0.0032,
    retrieval_per_gib=0.0006,
)


def prices_of(default: Prices) -> Prices:
    """These prices, with what the environment says instead. Raises TypeError where it names what isn't a price."""
    given = json.loads(os.environ.get(_VARIABLE, "{}"))
    return replace(default, **given.get(default.name, {}))


def dollars(requests: Mapping[str, float], prices: Prices) -> float:
    """What these requests cost: counts by operation, and ``uploaded_bytes`` and ``retrieved_bytes``."""
    puts = sum(requests.get(operation, 0) for operation in ("PUT", "POST", "LIST"))
    return (
        puts / 1000 * prices.put_per_1000
        + requests.get("GET", 0) / 1000 * prices.get_per_1000
        + requests.get("uploaded_bytes", 0) / 2**30 * prices.upload_per_gib
        + requests.get("retrieved_bytes", 0) / 2**30 * prices.retrieval_per_gib
    )
