"""How figures are shown: requests and dollars beside times; targets beside what was reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.harness import print_table
from benchmarks.stores.prices import Prices, dollars, prices_of

__all__ = ["COST_HEADING", "TARGETS", "Target", "cost_cells", "print_targets"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A bound of a figure."""

    figure: str
    bound: float
    unit: str
    is_least: bool = False
    """Is the bound the least that is to be reached? Else the most."""

    def verdict(self, reached: float | None) -> list[str]:
        """Cells of the table of targets."""
        bound = f"{'≥' if self.is_least else '≤'} {self.bound:g} {self.unit}"
        if reached is None:
            return [self.figure, bound, "", "not measured"]
        is_met = reached >= self.bound if self.is_least else reached <= self.bound
        return [self.figure, bound, f"{reached:,.4g} {self.unit}", "met" if is_met else "NOT MET"]


TARGETS = (
    Target(figure="20/50 ms: send, share of the folder's rate", bound=80, unit="%", is_least=True),
    Target(figure="20/50 ms: send_batch, share of the folder's rate", bound=80, unit="%", is_least=True),
    Target(figure="20/50 ms: 32 producers on a topic, p50", bound=200, unit="ms"),
    Target(figure="20/50 ms: 32 producers on a topic, p99", bound=500, unit="ms"),
    Target(figure="20/50 ms: 32 producers on a topic, least of a producer to most", bound=50, unit="%", is_least=True),
    Target(figure="20/50 ms: 32 producers on a topic, requests of a flush", bound=3, unit=""),
    Target(figure="20/50 ms: end to end at 50/s, p50", bound=150, unit="ms"),
    Target(figure="20/50 ms: end to end at 50/s, p99", bound=350, unit="ms"),
    Target(figure="20/50 ms: transaction over two topics, p50", bound=400, unit="ms"),
    Target(figure="0 ms: CPU of a small commit", bound=2.5, unit="ms"),
    Target(figure="0 ms: CPU of send_batch to the folder's", bound=1.2, unit="×"),
    Target(figure="20/50 ms: CPU of an idle consumer", bound=2, unit="%"),
    Target(figure="20/50 ms: GETs a second of an idle consumer", bound=10, unit=""),
)
"""That nobody starves has no number of its own: half of what the luckiest gets is taken for it."""


def print_targets(figures: Mapping[str, float], *, quick: bool) -> None:
    """Each target beside the figure that was measured."""
    print("Targets; a quick run is too short to judge by" if quick else "Targets")
    print_table(
        ["", "target", "reached", "verdict"], [target.verdict(figures.get(target.figure)) for target in TARGETS]
    )
