"""A few rounds of real processes under kill -9 and SIGSTOP; ``make torture`` plays a hundred, and longer ones."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from proof.torture.__main__ import sum_up
from proof.torture.plan import Act, Planted, Role, draw_plan
from proof.torture.rounds import Outcome, play
from sparklog.testing.history import AnomalyKind
from tests.depth import by_depth

real = pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="there is no kill -9")


def test_a_seed_gives_the_same_plan_each_time_and_seeds_differ():
    plans = [draw_plan(seed, span_ms=60_000, is_small=False, has_server=True, gateways=2) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert {torment.act for torment in plans[0].torments} == set(Act)
    assert {job.role for job in plans[0].jobs} == set(Role)


def test_rounds_in_which_nobody_is_tormented_are_not_enough(capsys: pytest.CaptureFixture[str]):
    quiet = Outcome(seed=1, faults=(), judged=None, torments=Counter(), took_s=1.0, worked_s=1.0, ended_s=1.0)
    busy = replace(quiet, torments=Counter(kills=1, stops=1))
    assert sum_up([quiet], 1.0) == 1
    assert capsys.readouterr().err == "never met: kills, stops\n"
    assert sum_up([busy, *[quiet] * 8], 9.0) == 0
    assert sum_up([busy, *[quiet] * 8], 9.0, store="s3") == 1
    assert capsys.readouterr().err == "never met: server kills\n"
    assert sum_up([busy, *[quiet] * 9], 10.0) == 1
    assert "never met: log cleaning, fenced" in capsys.readouterr().err


def clean(outcome: Outcome) -> None:
    assert outcome.faults == (), str(outcome)
    assert outcome.torments["kills"] >= 2, str(outcome)
    assert outcome.torments["stops"] >= 1, str(outcome)


@real
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_folder_keeps_every_promise(tmp_path: Path):
    outcome = play(1, tmp_path / "round", "folder", span_s=7, is_small=True)
    clean(outcome)
    assert outcome.judged is not None
    assert outcome.judged.counts["log cleaning"] >= 1


@real
@pytest.mark.s3
@pytest.mark.deep  # in each run test_a_folder_keeps_every_promise, and test_s3_bad_days.py beside a server of S3
@pytest.mark.timeout(400)
def test_s3_keeps_every_promise(tmp_path: Path):
    pytest.importorskip("obstore")
    pytest.importorskip("moto.server")
    clean(play(2, tmp_path / "round", "moto", span_s=12))


@real
@pytest.mark.deep  # in each run the tests of tests/gateway with gateways that are killed and replaced
@pytest.mark.timeout(400)
def test_gateways_that_are_killed_and_suspended_keep_every_promise(tmp_path: Path):
    pytest.importorskip("confluent_kafka")
    clean(play(3, tmp_path / "round", "folder", span_s=12, gateways=2))


@real
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_planted_faults_are_found(tmp_path: Path):
    """It takes a kill at the wrong moment: in the gate the workers do it themselves, at night luck has to."""
    found: set[AnomalyKind] = set()
    wanted = {AnomalyKind.LOST_WRITE, AnomalyKind.OUT_OF_STEP, AnomalyKind.SKIPPED_POLL}
    planted = [fault for fault in Planted if by_depth(gate=True, nightly=fault is not Planted.SELF_KILL)]
    span_s = by_depth(gate=3, nightly=8)
    for seed in range(5):
        outcome = play(seed, tmp_path / f"{seed}", "folder", span_s=span_s, is_small=True, planted=planted)
        assert outcome.judged is not None, str(outcome)
        found |= set(outcome.judged.verdict.by_kind())
        if wanted <= found:
            break
    assert wanted <= found
