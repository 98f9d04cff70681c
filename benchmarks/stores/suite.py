"""All figures of object stores, and the targets beside them."""

from __future__ import annotations

from benchmarks.extent import Extent
from benchmarks.stores.delayed_s3 import EXPRESS_5, STANDARD_20_50, STANDARD_TAIL, s3_or_none
from benchmarks.stores.end_to_end import groups, records_end_to_end, transactions_end_to_end
from benchmarks.stores.figures import add_targets
from benchmarks.stores.prices import EXPRESS, STANDARD, prices_of
from benchmarks.stores.producing import one_producer, shared_topic, small_commits
from benchmarks.stores.reading import consuming, idle_consumers, opening

__all__ = ["stores"]

PARTS = (one_producer, small_commits, shared_topic, records_end_to_end, transactions_end_to_end, idle_consumers)
WITHOUT_TARGETS = (consuming, opening, groups)


def stores(extent: Extent) -> None:
    """versitygw, as it is and as late as S3 and S3 Express answer; all delays and parts only in a full run."""
    with s3_or_none() as s3:
        if s3 is None:
            return
        for profile in (EXPRESS_5, STANDARD_TAIL) if extent.is_full else (STANDARD_20_50,):
            s3.use(profile)
            print(f"{profile.name}: {s3.own_cost(profile, extent.of(20, 40, 200))}")
        for prices in map(prices_of, (STANDARD, EXPRESS)):
            print(f"$ of {prices.name}: 1,000 PUT or LIST {prices.put_per_1000:g}, 1,000 GET {prices.get_per_1000:g}")
        figures: dict[str, float] = {}
        for part in (*PARTS, *(() if extent is Extent.USUAL else WITHOUT_TARGETS)):
            print()
            figures |= part(s3, extent)
        print()
        add_targets(figures, quick=extent.is_quick)
