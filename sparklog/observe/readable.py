"""A look at whether topics, groups and transactional ids can be read, for a bounded number of requests."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparklog.errors import is_no_topic
from sparklog.groups.admin.inspection import group_folders
from sparklog.groups.membership.generations import generation_log
from sparklog.groups.offsets.offset_state import look_once, offset_log
from sparklog.log.cluster import Cluster
from sparklog.log.state import open_state
from sparklog.paths import TOPICS_FOLDER
from sparklog.storage.each_alone import each_alone, one_alone
from sparklog.txn.entries import open_transaction_log
from sparklog.txn.overview import transactional_ids

__all__ = ["MOST_LOOKED_AT", "Readable", "look_whether_readable"]

MOST_LOOKED_AT = 100
"""The most of each kind; of more, so many are chosen by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """The result of a look."""

    topic_count: int
    """The folders of topics."""
    is_sample: bool
    """Are there more than were looked at?"""
    unread: dict[str, Exception]
    """Why some can't be read, each by what it is: ``topic orders``, say."""


def look_whether_readable(cluster: Cluster) -> Readable:
    """Look at the newest commit of topics, the newest entries of groups and of transactional ids: up to 100 of each.

    Three LISTs, and two to six requests for each, 32 at a time. Raises ``StoreError``: the store can't be read, or the
    folder of topics.
    """
    unread: dict[str, Exception] = {}
    topics = cluster.store.list_names(TOPICS_FOLDER)
    is_sample = _look(cluster, "topic", topics, lambda name: open_state(cluster.topic_log(name)), unread)
    others: list[tuple[str, Callable[[], Sequence[str]], Callable[[str], object]]] = [
        ("group", lambda: group_folders(cluster), lambda name: _look_at_group(cluster, name)),
        (
            "transactional id",
            lambda: transactional_ids(cluster),
            lambda name: open_transaction_log(cluster, name).open_newest(),
        ),
    ]
    for kind, listing, look in others:
        names = one_alone(cluster.store, listing)
        if isinstance(names, Exception):
            unread[f"{kind}s"] = names
        elif names:
            is_sample = _look(cluster, kind, names, look, unread) or is_sample
    return Readable(topic_count=len(topics), is_sample=is_sample, unread=unread)


def _look(
    cluster: Cluster,
    kind: str,
    names: Sequence[str],
    look: Callable[[str], object],
    unread: dict[str, Exception],
) -> bool:
    """Look at things of a kind, and note why some can't be read. True: not at all of them."""
    is_sample = len(names) > MOST_LOOKED_AT
    wanted = sorted(random.sample(names, MOST_LOOKED_AT)) if is_sample else names
    for name, found in zip(wanted, each_alone(cluster.store, look, wanted), strict=True):
        if isinstance(found, Exception) and not is_no_topic(found):
            unread[f"{kind} {name}"] = found
    return is_sample


def _look_at_group(cluster: Cluster, group: str) -> None:
    generation_log(cluster, group).open_newest()
    look_once(offset_log(cluster, group))
