"""How figures are shown: requests and dollars beside times; targets beside what was reached."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.report import add_target
from benchmarks.stores.prices import Prices, dollars, prices_of

__all__ = ["COST_HEADING", "TARGETS", "add_targets", "cost_cells"]

COST_HEADING = ("PUT", "GET", "LIST", "$")


def cost_cells(requests: Mapping[str, float] | None, units: float, prices: Prices) -> list[str]:
    """PUT (with POST), GET, LIST and dollars for each of ``units``; empty without an object store."""
    if requests is None:
        return [""] * len(COST_HEADING)
    counts = [requests.get("PUT", 0) + requests.get("POST", 0), requests.get("GET", 0), requests.get("LIST", 0)]
    cost = dollars(requests, prices_of(prices)) / units
    return [*(_short(count / units) for count in counts), f"{cost:.2g}" if cost < 0.01 else f"{cost:.2f}"]


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.2f}"


MOST, LEAST = True, False
TARGETS = (
    ("20/50 ms: send, share of the folder's rate", 80, "%", LEAST),
    ("20/50 ms: send_batch, share of the folder's rate", 80, "%", LEAST),
    ("20/50 ms: 32 producers on a topic, p50", 200, "ms", MOST),
    ("20/50 ms: 32 producers on a topic, p99", 500, "ms", MOST),
    ("20/50 ms: 32 producers on a topic, least of a producer to most", 50, "%", LEAST),
    ("20/50 ms: 32 producers on a topic, requests of a flush", 3, "", MOST),
    ("20/50 ms: end to end at 50/s, p50", 150, "ms", MOST),
    ("20/50 ms: end to end at 50/s, p99", 350, "ms", MOST),
    ("20/50 ms: transaction over two topics, p50", 400, "ms", MOST),
    ("0 ms: CPU of a small commit", 2.5, "ms", MOST),
    ("0 ms: CPU of send_batch to the folder's", 1.2, "×", MOST),
    ("20/50 ms: CPU of an idle consumer", 2, "%", MOST),
    ("20/50 ms: GETs a second of an idle consumer", 10, "", MOST),
    ("folder, 20/50 ms later: send, share of the folder's rate", 80, "%", LEAST),
    ("folder, 20/50 ms later: send_batch, share of the folder's rate", 80, "%", LEAST),
)
"""A figure, its bound and unit, and whether that is the most or the least. That nobody starves has no number of its
own: half of what the luckiest gets is taken for it. One producer's rate is judged twice: by a folder that only answers
later, and by the server and the proxy, which take about as much CPU of the same cores as the producer itself."""


def add_targets(figures: Mapping[str, float], *, quick: bool) -> None:
    """Each target beside the figure that was measured, for the table at the end of the run."""
    if quick:
        print("A quick run is too short to judge its targets by")
    for figure, bound, unit, is_at_most in TARGETS:
        reached = figures.get(figure, float("nan"))
        add_target(f"{figure}, {unit}" if unit else figure, bound, reached, is_at_most=is_at_most)
