"""What the model says of a numbered batch is what the code says, in every world that the model reaches."""

from __future__ import annotations

import pytest

from proof.model.numbering import Batch, Bounds, Gateway, Numbering, Verdict, World
from proof.model.search import replay
from sparklog.delta.actions import Entry
from sparklog.errors import DuplicateSequenceError
from sparklog.log import producer_batches
from sparklog.log.data.producer_batch import PlacedBatch, ProducerBatch
from sparklog.log.producer_batches import ProducerBatches, batch_actions, batch_info

TOPIC, PRODUCER = "topic", 7


def code_batch(batch: Batch) -> ProducerBatch:
    return ProducerBatch(producer_id=PRODUCER, producer_epoch=batch.epoch, base_sequence=batch.sequence, count=1)


def entry(version: int, batch: Batch, *, has_offset: bool = True) -> Entry:
    stored = code_batch(batch)
    return Entry(
        version=version,
        token="",
        actions=tuple(batch_actions([(0, stored)], topic_id=TOPIC, now_ms=0)),
        info={"topic_id": TOPIC, **batch_info([(0, stored, version)] if has_offset else [])},
    )


def judged(world: World, gateway: Gateway, batch: Batch) -> Verdict:
    """By the code."""
    known = ProducerBatches(TOPIC)
    known.is_complete = True
    if gateway.first is not None:
        known.note_seen(0, [PlacedBatch(batch=code_batch(gateway.first), start=0)])
    for version in range(gateway.since, gateway.known):
        known.note_entry(entry(version, world.log[version], has_offset=version >= gateway.offsets_from))
    (verdict,) = known.judge([(0, code_batch(batch))], knows_all=lambda partition: True)
    is_stored = isinstance(verdict.error, DuplicateSequenceError)
    return Verdict(
        offset=-1 if verdict.offset is None else verdict.offset,
        is_refused=verdict.error is not None and not is_stored,
        is_stored=is_stored,
    )


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(batches=3, moves=1, gives_up=1),
        Bounds(moves=1, faults=1, gives_up=1),
        Bounds(moves=1, epochs=2),
        Bounds(under_way=1, moves=1, deaths=1, faults=1, cleanings=1),
    ],
    ids=["three batches", "lost answers", "epochs", "cleaned logs"],
)
def test_the_code_judges_as_the_model_does(bounds: Bounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_batches, "_KEPT", 2 * bounds.under_way)
    model = Numbering(bounds=bounds)
    seen, level, compared = set(), [world for _, world in model.starts()], set()
    while level:
        for world in level:
            for gateway in world.gateways:
                for request in gateway.queue if gateway.is_loaded else ():
                    log = world.log[gateway.since : gateway.known]
                    facts = (log, gateway.offsets_from, gateway.first, request.batch)
                    if facts not in compared:
                        compared.add(facts)
                        by_model = model.verdict(world, gateway, request.batch)
                        assert judged(world, gateway, request.batch) == by_model, facts
        seen.update(level)
        level = [*{after for world in level for _, after in model.moves(world)} - seen]
    assert len(compared) >= 8


def test_a_batch_that_was_given_up_is_known_behind_a_whole_window() -> None:
    """Found by the search: with as many batches known again as may be under way, the last step refused batch 0."""
    model = Numbering(bounds=Bounds(batches=3, moves=2, faults=1, gives_up=1))
    steps = (
        "an empty topic",
        "the client sends batch 0",
        "the client sends batch 1",
        "a loads the topic",
        "a creates entry 0: batch 0, and the answer is lost",
        "a reads the tail",
        "a gives up batch 0",
        "a creates entry 1: batch 1",
        "the client sends batch 2",
        "the connection breaks; the client sends 2 again to a",
        "a answers batch 0, which is there",
        "a creates entry 2: batch 2",
        "a answers batch 0, which is there",
    )
    assert [*model.broken(replay(model, steps))] == []
