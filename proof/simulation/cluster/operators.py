"""Faults that are planted for worlds of operators: a client that doesn't look beneath it, or that believes what another
engine, or another topic's client, has written."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

from sparklog.groups.membership import generation_numbers
from sparklog.log import commit, loaded_files, shape_evidence, state
from sparklog.log.confirming import Confirmation
from sparklog.storage.entry_log import EntryLog

__all__ = [
    "a_consumer_ignores_the_ground",
    "a_producer_checks_only_after_its_create",
    "an_emptied_generation_log_begins_at_1",
    "entries_of_another_topic_are_accepted",
    "files_are_named_unseen",
    "foreign_rewrites_are_not_judged",
    "opening_accepts_a_shrunk_topic",
]


def _nothing(*_: object, **__: object) -> None:
    return None


def _all(*patches: Any) -> AbstractContextManager[object]:
    stack = ExitStack()
    for patch in patches:
        stack.enter_context(patch)
    return stack


def a_producer_checks_only_after_its_create() -> AbstractContextManager[object]:
    """Rule L17: who wakes up creates its entry, and looks beneath it afterwards."""
    return mock.patch.object(EntryLog, "_grounded_first", lambda self, position, confirm: position)


def files_are_named_unseen() -> AbstractContextManager[object]:
    """Rule L17: who wakes up looks beneath it, but not for what it has uploaded before."""
    return mock.patch.object(Confirmation, "confirm", _nothing)


def a_consumer_ignores_the_ground() -> AbstractContextManager[object]:
    """Rule L17: who finds nothing new takes it for the end of the log, whatever is there by now."""
    look_of = EntryLog.look_of

    def look(self: Any, *given: Any, **kwargs: Any) -> Any:
        return look_of(replace(self, checks_ground=False), *given, **kwargs)

    return mock.patch.object(EntryLog, "look_of", look)


def entries_of_another_topic_are_accepted() -> AbstractContextManager[object]:
    """Rule L8: nobody compares the topic's id of an entry with that of its log."""
    return _all(
        mock.patch.object(state, "other_topic_id", return_value=None),
        mock.patch.object(state, "may_be_of_another_topic", return_value=False),
        mock.patch.object(commit, "check_opened", _nothing),
    )


def foreign_rewrites_are_not_judged() -> AbstractContextManager[object]:
    """Rule F: records that another engine put under other offsets are read there."""

    def judge(known: Any, *_: object) -> Any:
        return known

    return _all(mock.patch.object(state, "judge", judge), mock.patch.object(loaded_files, "judge", judge))


def opening_accepts_a_shrunk_topic() -> AbstractContextManager[object]:
    """Who opens a topic believes its properties, though its entries know of more."""
    return mock.patch.object(shape_evidence, "check_shape", _nothing)


def an_emptied_generation_log_begins_at_1() -> AbstractContextManager[object]:
    """Rule L8: generations that were deleted are begun anew, below the stamps of their partitions."""
    return _all(
        mock.patch.object(generation_numbers, "first_position", lambda log, position, used: position),
        mock.patch.object(generation_numbers, "not_to_be_taken", _nothing),
    )
