"""Producers in a forked child: their threads aren't there, so whatever was sent fails, and nothing can be sent."""

from __future__ import annotations

import os
import weakref

from sparklog.errors import IllegalStateError
from sparklog.producer.topic_pipelines import TopicPipelines

__all__ = ["ForkedError", "end_after_fork"]

_FORKED = (
    "this producer was made before the process was forked, and its threads are not in the child: make a new one there"
)
_LIVE: weakref.WeakSet[TopicPipelines] = weakref.WeakSet()
"""The topics of producers, which outlive a producer that is forgotten while its records are being sent."""


class ForkedError(IllegalStateError):
    """Why a producer can't be used in a forked child."""


def end_after_fork(pipelines: TopicPipelines) -> None:
    """End a producer's pipelines in each child that is forked from now on."""
    _LIVE.add(pipelines)


def _after_fork_in_child() -> None:
    for pipelines in list(_LIVE):
        pipelines.fail_after_fork(ForkedError(_FORKED))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
