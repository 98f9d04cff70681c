"""Requests to an object store by what is charged for them, and the prices that are assumed. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_PRICES", "Prices", "Requests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dollars for 1,000 requests of a kind."""

    put: float
    get: float
    list: float


DEFAULT_PRICES = Prices(put=0.005, get=0.0004, list=0.005)
"""The prices of S3 Standard in us-east-1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests by kind: what is charged for as a PUT, a GET, a LIST."""

    puts: float = 0.0
    gets: float = 0.0
    lists: float = 0.0

    def times(self, factor: float) -> Requests:
        """So many times as many."""
        return Requests(puts=self.puts * factor, gets=self.gets * factor, lists=self.lists * factor)

    def plus(self, other: Requests) -> Requests:
        """These and others."""
        return Requests(puts=self.puts + other.puts, gets=self.gets + other.gets, lists=self.lists + other.lists)

    def dollars(self, prices: Prices = DEFAULT_PRICES) -> float:
        """The dollars that they cost."""
        return (self.puts * prices.put + self.gets * prices.get + self.lists * prices.list) / 1_000
