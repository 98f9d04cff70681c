"""A few rounds of real processes under kill -9 and SIGSTOP; ``make torture`` plays a hundred, and longer ones."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from proof.torture.__main__ import sum_up
from proof.torture.crew import OTHER_VERSION, THIS_VERSION
from proof.torture.life import Place, Told, identify
from proof.torture.plan import COMPACTED, TOPICS, Act, Planted, Role, draw_plan
from proof.torture.rounds import Outcome, play
from proof.torture.versions import BEFORE, REPOSITORY, NoVersionError, OtherVersion, check_out
from sparklog.testing.history import AnomalyKind, Recorder, check, load, record_final
from tests.depth import by_depth

real = pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="there is no kill -9")


def test_a_seed_gives_the_same_plan_each_time_and_seeds_differ():
    plans = [
        draw_plan(seed, span_ms=60_000, is_small=False, has_server=True, gateways=2, has_apps=True)
        for seed in (1, 1, 2)
    ]
    assert plans[0] == plans[1] != plans[2]
    assert {torment.act for torment in plans[0].torments} == set(Act)
    assert {job.role for job in plans[0].jobs} == set(Role)


def test_rounds_in_which_nobody_is_tormented_are_not_enough(capsys: pytest.CaptureFixture[str]):
    quiet = Outcome(seed=1, faults=(), judged=None, torments=Counter(), took_s=1.0, worked_s=1.0, ended_s=1.0)
    busy = replace(quiet, torments=Counter(kills=1, stops=1))
    assert sum_up([quiet], 1.0) == 1
    assert capsys.readouterr().err == "never met: kills, stops\n"
    assert sum_up([busy, *[quiet] * 8], 9.0) == 0
    assert sum_up([busy, *[quiet] * 8], 9.0, kills_server=True) == 1
    assert capsys.readouterr().err == "never met: server kills\n"
    assert sum_up([busy, *[quiet] * 9], 10.0) == 1
    assert "never met: log cleaning, fenced" in capsys.readouterr().err
    assert sum_up([busy, *[quiet] * 8], 9.0, is_mixed=True) == 1
    assert "never met: processes of the other version, processes of this version" in capsys.readouterr().err
    assert sum_up([busy, *[quiet] * 8], 9.0, has_apps=True) == 0
    assert sum_up([busy, *[quiet] * 9], 10.0, has_apps=True) == 1
    assert "taken over" in capsys.readouterr().err


def test_a_version_that_is_not_here_is_told_with_what_to_do(tmp_path: Path):
    with pytest.raises(NoVersionError, match=r"there is no nowhere in .* git fetch --unshallow|no git checkout"):
        check_out("nowhere", tmp_path)


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
@pytest.mark.s3
@pytest.mark.deep  # in each run tests/integration/test_s3_bad_days.py, whose store does the same
@pytest.mark.timeout(400)
def test_a_store_that_loses_delays_refuses_and_repeats_requests_keeps_every_promise(tmp_path: Path):
    pytest.importorskip("obstore")
    pytest.importorskip("moto.server")
    outcome = play(6, tmp_path / "round", "moto", span_s=12, is_faulty=True)
    clean(outcome)
    assert {name for name in outcome.torments if name.startswith("fault: ")} >= {
        "fault: lost answer",
        "fault: refused",
        "fault: repeated",
    }


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


@pytest.mark.slow
def test_a_process_of_another_version_works_in_the_cluster_and_its_history_is_read(tmp_path: Path):
    """The other version is this one, started as another is, with a fault of its own."""
    place = Place(folder=tmp_path, root=str(tmp_path / "cluster"))
    place.histories.mkdir()
    told = Told(
        place=place,
        seed=1,
        job="transact0",
        number=0,
        role=Role.TRANSACT,
        planted=[Planted.EARLY_ACKNOWLEDGEMENT, Planted.SELF_KILL],
    )
    with OtherVersion(REPOSITORY) as other:
        other.create_topics(place)
        process = other.start(told)
        process.join(60)
    assert process.exitcode == -signal.SIGKILL, place.errors.read_text()
    [path] = place.histories.glob("transact0.0.jsonl")
    with Recorder("final", path=place.histories / "final.jsonl") as recorder:
        record_final(recorder, place.cluster(), topics=[each.name for each in TOPICS], groups=(), identify=identify)
    verdict = check(load(path, place.histories / "final.jsonl"), compacted=COMPACTED)
    assert AnomalyKind.LOST_WRITE in verdict.by_kind()


@real
@pytest.mark.deep  # in each run the test above
@pytest.mark.timeout(900)
def test_a_fault_that_only_the_other_version_has_is_found(tmp_path: Path):
    """The other version is this one, started as another is; its processes alone have the planted faults."""
    wanted = {AnomalyKind.LOST_WRITE, AnomalyKind.OUT_OF_STEP, AnomalyKind.SKIPPED_POLL}
    found: set[AnomalyKind] = set()
    for seed in range(8):
        place = tmp_path / f"{seed}"
        outcome = play(seed, place, "folder", span_s=4, is_small=True, planted=[*Planted], mixed=REPOSITORY)
        assert outcome.judged is not None, str(outcome)
        assert outcome.torments[OTHER_VERSION] >= 1 <= outcome.torments[THIS_VERSION], str(outcome)
        found |= set(outcome.judged.verdict.by_kind())
        if wanted & found:
            break
    assert wanted & found


@real
@pytest.mark.deep  # in each run the first of these tests; `make proof` plays three rounds
@pytest.mark.timeout(900)
def test_two_versions_on_one_cluster_keep_every_promise(tmp_path: Path):
    try:
        check_out(BEFORE, tmp_path / "other")
    except NoVersionError as error:
        pytest.skip(str(error))
    clean(play(5, tmp_path / "round", "folder", span_s=12, mixed=tmp_path / "other"))
