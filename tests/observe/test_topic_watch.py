"""What a watch keeps of a topic from look to look."""

from __future__ import annotations

import gc

import pytest

from sparklog.delta import checkpoint_writing
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.producer_states import CheckpointStates
from sparklog.log.state import load_state
from sparklog.observe.topic_watch import TopicWatch
from tests.observe.support import watched
from tests.support import a_writer


def test_a_watch_keeps_no_states_of_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """✗ The console kept those of the checkpoint by which it had loaded a topic, up to all bytes of it."""
    monkeypatch.setattr(checkpoint_writing, "LEAST_STATES", 2)
    here = watched()
    here.topic("t")
    log = here.cluster.topic_log("t")
    for number in range(8):
        here.append(a_writer(log), f"v{number}")
    write_checkpoint(log)
    assert load_state(log).states
    watch = TopicWatch(here.cluster, "t")
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, CheckpointStates)]
    assert sum(one.file_count for one in watch.figures.partitions) == 8
