"""What a writer notes of its topic's entries, and learns from later."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.delta.actions import Entry, SetTransaction
from sparklog.log.announced import notes
from sparklog.log.announced.notes import Notes
from sparklog.log.commit import GROUP_COMMIT_TOOK_INFO
from sparklog.log.producer_state import announcer_app_id, app_id

OWN = announcer_app_id(7)
APP_IDS = st.sampled_from([OWN, announcer_app_id(8), app_id(5), app_id(6), "sparklog.end.0"])
TOOK = st.none() | st.tuples(st.floats(0.0, 2_000.0), st.floats(0.0, 2_000.0)).map(list) | st.just(["garbled"])
STEPS = st.lists(
    st.tuples(st.just("entry"), st.lists(APP_IDS), TOOK, st.none() | st.floats(0.0, 100.0), st.booleans())
    | st.tuples(st.just("took"), st.floats(0.0, 2_000.0), st.floats(0.0, 2_000.0)),
    max_size=80,
)


def an_entry(version: int, app_ids: list[str], took: Any) -> Entry:
    actions = tuple(SetTransaction(app_id=one, version=version, last_updated_ms=0) for one in app_ids)
    info = {} if took is None else {GROUP_COMMIT_TOOK_INFO: took}
    return Entry(version=version, token=f"{version}", actions=actions, info=info)


def play(steps: list[Any], *, at_once: bool) -> Notes:
    made = Notes(lambda: frozenset([OWN]))
    for number, (what, *given_to) in enumerate(steps):
        if what == "took":
            made.note_took(*given_to)
        else:
            app_ids, took, age_ms, is_own = given_to
            made.note_entry(an_entry(number, app_ids, took), 10.0 * number, age_ms)
            if at_once:
                made.learn()
            if is_own:
                made.note_created(number)
        if at_once:
            made.learn()
    return made


def known(made: Notes) -> dict[str, Any]:
    return {name: value for name, value in vars(made.turns).items() if name != "_random"}


@settings(max_examples=60)
@given(STEPS)
def test_who_learns_later_has_learned_the_same(steps: list[Any]) -> None:
    later, at_once = play(steps, at_once=False), play(steps, at_once=True)
    assert known(later) == known(at_once)
    assert later.company_ticks_ms == at_once.company_ticks_ms


def test_a_writer_that_never_asks_keeps_few_notes() -> None:
    made = play([("entry", [app_id(5)], None, None, True), ("took", 0.0, 5.0)] * 1_000, at_once=False)
    assert len(made._unlearned) <= notes._MOST_NOTES


def test_an_entry_of_many_actions_is_not_kept() -> None:
    made = play([("entry", [app_id(number) for number in range(20)], None, None, False)], at_once=False)
    assert not made._unlearned
    assert made.company_ticks_ms == 0
