"""What is left out of garbage collections while tests run."""

from __future__ import annotations

import gc

__all__ = ["exempt_what_is_there"]


def exempt_what_is_there() -> None:
    """Leave what was imported and collected out of later garbage collections: it lives as long as the run.

    It is millions of objects, which each whole collection would look at, those that tests ask for among them: two
    seconds of CPU for each. A test that has ended the exemption, or exempted more, calls this at its end.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
