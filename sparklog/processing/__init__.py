"""Patterns of applications over topics: handlers with retries and dead letters (:class:`App`), delayed
records (:class:`DelayMover`), and the inbox.

A name is imported when it is first used: the inbox needs none of the others. See docs/processing.md.
"""

from typing import TYPE_CHECKING

from sparklog.lazy_imports import import_on_use

if TYPE_CHECKING:
    from sparklog.processing.app import App
    from sparklog.processing.delayed import DelayedError, DelayMover, MoverTakenOverError
    from sparklog.processing.health import Health, State
    from sparklog.processing.messages import Batch, Record, Send
    from sparklog.processing.moves import DeadLetter, Origin, letter_of
    from sparklog.processing.retries import Exponential, Fixed, Retry
    from sparklog.processing.work import Limits
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "sparklog.processing.app": ("App",),
            "sparklog.processing.delayed": ("DelayMover", "DelayedError", "MoverTakenOverError"),
            "sparklog.processing.health": ("Health", "State"),
            "sparklog.processing.messages": ("Batch", "Record", "Send"),
            "sparklog.processing.moves": ("DeadLetter", "Origin", "letter_of"),
            "sparklog.processing.retries": ("Exponential", "Fixed", "Retry"),
            "sparklog.processing.work": ("Limits",),
        },
    )

__all__ = [
    "App",
    "Batch",
    "DeadLetter",
    "DelayMover",
    "DelayedError",
    "Exponential",
    "Fixed",
    "Health",
    "Limits",
    "MoverTakenOverError",
    "Origin",
    "Record",
    "Retry",
    "Send",
    "State",
    "letter_of",
]
