"""What a round's applications may do wrong is found, and a short round of them; ``make torture APPS=1`` plays more."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from proof.torture.app_conclusion import judge_apps
from proof.torture.life import Place
from proof.torture.plan import APP_ROLES, Planted, draw_plan
from proof.torture.rounds import play
from sparklog.testing.history import Recorder
from tests.histories import note_promised

pytest.importorskip("sqlalchemy")
real = pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="there is no kill -9")

NOTES = [
    ("shared", "tasks 0 0 1 900 t1"),  # given back, then accepted
    ("shared", "tasks 0 0 2 950 t1"),
    ("accepting", "tasks 0 0 2"),
    ("accepted", "tasks 0 0 2"),
    ("shared", "later 0 0 1 1000 l1@1000"),
    ("accepting", "later 0 0 1"),  # and the member was killed
    ("delivered", "1000 l1@1000"),
]
THERE = {
    "jobs": ["well j1", "never j2"],
    "done": ["done well j1"],
    "dlq.jobs": ["letter of never j2"],
    "orders": ["a:1", "a:2"],
    "tasks": ["t1"],
    "later": ["l1@1000"],
}
SENT = {"jobs": THERE["jobs"], "tasks": THERE["tasks"], "later": THERE["later"]}
PROMISED = {"done": THERE["done"], "dlq.jobs": THERE["dlq.jobs"], "orders": THERE["orders"]}


def judged(folder: Path, *, there: dict[str, list[str]], notes: list[tuple[str, str]]) -> list[str]:
    """What is wrong with that, but for how little it is."""
    place = Place(folder=folder, root=str(folder / "cluster"))
    place.app_histories.mkdir(parents=True)
    place.notes.write_text("".join(f"{what}\tsomebody\t{text}\n" for what, text in notes))
    with Recorder("final", path=place.app_histories / "final.jsonl") as recorder:
        for topic, values in {**SENT, **PROMISED}.items():
            for value in [values] if topic == "orders" else [[value] for value in values]:
                note_promised(recorder, f"{topic} {value}", topic, value)
        for topic, values in {**THERE, **there}.items():
            count = len(values)
            recorder.final_read((topic, 0), log_start=0, log_end=count, offsets=range(count), values=values)
    counts, faults = judge_apps(place)
    assert counts["app rows"] == len({**THERE, **there}["orders"])
    return [fault for fault in faults if "too little was checked" not in fault]


def test_applications_that_keep_their_promises_are_let_through(tmp_path: Path):
    assert judged(tmp_path, there={}, notes=NOTES) == []


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ({"done": []}, "done well j1"),  # a job without an effect
        ({"done": ["done well j1", "done well j1"]}, "done well j1"),  # twice
        ({"done": ["done well j1", "done never j2"]}, "done never j2"),  # an output beside the letter
        ({"dlq.jobs": []}, "letter of never j2"),
        ({"orders": ["a:2", "a:1"]}, "a:"),  # the wrong order
        ({"orders": ["a:1"]}, "a:2"),
        ({"orders": ["a:1", "a:2", "a:2"]}, "a:2"),
        ({"later": ["l1@1000", "l1@1000"]}, "l1@1000"),
        ({"later": []}, "l1@1000"),
    ],
)
def test_an_effect_that_is_lost_repeated_or_out_of_order_is_found(there, wanted: str, tmp_path: Path):
    notes = NOTES if len({**THERE, **there}["later"]) < 2 else [*NOTES, ("accepting", "later 0 1 1")]
    [fault] = judged(tmp_path, there=there, notes=notes)
    assert wanted in fault


@pytest.mark.parametrize(
    ("left_out", "added", "wanted"),
    [
        ([2, 3], [], "tasks 0 0 was accepted by nobody"),
        ([], [("shared", "tasks 0 0 3 999 t1")], "accepted at delivery 2, and delivered again"),
        ([], [("accepted", "tasks 0 0 2")], "was accepted twice"),
        ([6], [("delivered", "999 l1@1000")], "l1@1000 was delivered at 999, before its time"),
        ([4], [("shared", "later 0 0 1 999 l1@1000")], "l1@1000 was shared at 999, before its time"),
    ],
)
def test_what_members_of_a_share_group_saw_is_judged(left_out, added, wanted: str, tmp_path: Path):
    notes = [note for number, note in enumerate(NOTES) if number not in left_out]
    [fault] = judged(tmp_path, there={}, notes=[*notes, *added])
    assert wanted in fault


def test_plans_without_applications_are_what_they_were():
    without, plan = (
        draw_plan(4, span_ms=9_000, is_small=True, has_server=True, has_apps=each) for each in (False, True)
    )
    assert not {job.role for job in without.jobs} & set(APP_ROLES)
    assert {job.role for job in plan.jobs} >= set(APP_ROLES)
    assert {torment.job for torment in plan.torments} & {job.name for job in plan.jobs if job.role in APP_ROLES}


@real
@pytest.mark.deep  # in each run what is judged above
@pytest.mark.timeout(600)
def test_a_relay_that_settles_rows_outside_of_its_transaction_is_found(tmp_path: Path):
    planted = [Planted.LOOSE_ROWS, Planted.SELF_KILL]
    outcome = play(1, tmp_path / "round", "folder", span_s=4, planted=planted, has_apps=True)
    assert any("duplicate" in fault and "orders" in fault for fault in outcome.faults), str(outcome.faults)


@real
@pytest.mark.deep  # in each run the tests above, and those of tests/ that kill a worker, a relay and a mover
@pytest.mark.timeout(600)
def test_applications_that_are_killed_and_suspended_keep_every_promise(tmp_path: Path):
    outcome = play(7, tmp_path / "round", "folder", span_s=12, has_apps=True)
    assert outcome.faults == (), str(outcome)
    assert outcome.torments["kills"] >= 1, str(outcome)
