"""Leaks that are planted into figures are found, and noise isn't."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from proof.soak.judging import Sample, growth, judge, settled, tell


def samples(
    *,
    minutes: float = 15,
    level_mib: float = 150,
    kib_a_second: float = 0,
    noise_mib: float = 8,
    threads: Callable[[float], int] = lambda at_s: 17,
    descriptors: Callable[[float], int] = lambda at_s: 18,
    seed: int = 1,
) -> Sequence[Sample]:
    """A server whose memory rises by a third in the first minutes; buffers of up to so much come and go."""
    draw = random.Random(seed)
    found = []
    for number in range(int(minutes * 12)):
        at_s = number * 5.0
        warm = level_mib * (1 - 0.33 * max(0.0, 1 - at_s / 200))
        rss_mib = warm + noise_mib / 3 * draw.expovariate(1) + kib_a_second * at_s / 1_024
        found.append(
            Sample(
                at_s=at_s,
                rss_kib=int(rss_mib * 1_024),
                threads=threads(at_s) + draw.randrange(4),
                descriptors=descriptors(at_s) + draw.randrange(6),
            )
        )
    return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("minutes", "level_mib"), [(15, 37), (15, 165), (15, 230), (120, 150)])
def test_noise_passes(minutes: float, level_mib: float, seed: int):
    assert judge({"gateway": samples(minutes=minutes, level_mib=level_mib, seed=seed)}) == []


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("requests_a_second", "level_mib"),
    [pytest.param(50, 220, id="gateway"), pytest.param(30, 57, id="exporter"), pytest.param(30, 165, id="console")],
)
def test_a_kib_of_each_request_is_found(requests_a_second: float, level_mib: float, seed: int):
    noise_mib = 2 if requests_a_second < 50 else 8
    leaking = samples(level_mib=level_mib, kib_a_second=requests_a_second, noise_mib=noise_mib, seed=seed)
    (fault,) = judge({"server": leaking})
    assert fault.startswith("server: memory rose by ")


def test_a_slow_leak_is_found_in_two_hours():
    """Six KiB a second: in fifteen minutes it would rise by less than what is noise."""
    leaking = dict.fromkeys(["console"], samples(minutes=120, kib_a_second=6))
    assert "memory rose by" in judge(leaking)[0]
    assert judge({"console": samples(minutes=15, kib_a_second=6)}) == []


@pytest.mark.parametrize("figure", ["threads", "descriptors"])
def test_one_that_is_left_each_minute_is_found(figure: str):
    (fault,) = judge({"gateway": samples(**{figure: lambda at_s: 17 + int(at_s / 60)})})  # type: ignore[arg-type]
    assert fault.startswith(f"gateway: {figure} rose by ")


def test_what_is_given_back_is_none():
    """Each minute a buffer of 60 MiB for half of it, another each second one of 20 MiB."""
    level = samples(noise_mib=0)
    rising = [
        replace(one, rss_kib=one.rss_kib + 60_000 * (one.at_s % 60 < 30) + 20_000 * (number % 2))
        for number, one in enumerate(level)
    ]
    assert judge({"gateway": rising}) == []


def test_a_step_of_what_a_heap_keeps_is_none():
    """Of 12 MiB at the middle of the judged time, as a gateway shows it: the line rises by more than the step."""
    stepped = [replace(one, rss_kib=one.rss_kib + 12_288 * (one.at_s > 600)) for one in samples(level_mib=215)]
    assert judge({"gateway": stepped}) == []


def test_each_server_is_judged_by_its_own_figures():
    faults = judge({"gateway": samples(), "exporter": samples(level_mib=37, kib_a_second=15), "console": samples()})
    assert [fault.partition(":")[0] for fault in faults] == ["exporter"]


def test_too_few_samples_are_a_fault():
    assert judge({"gateway": samples()[:45]}) == ["gateway: 30 samples after the first third, expected 40 at least"]
    assert judge({"gateway": []}) == ["gateway: 0 samples after the first third, expected 40 at least"]


def test_the_line_is_that_of_least_squares():
    line = growth(settled(samples(noise_mib=0.001, kib_a_second=64)), lambda one: one.rss_kib)
    assert line.per_hour == pytest.approx(64 * 3_600, rel=0.01)
    assert line.over_span == pytest.approx(64 * line.span_s, rel=0.01)
    with pytest.raises(ValueError, match="got 1 samples at one time"):
        growth(samples()[:1], lambda one: one.rss_kib)


def test_a_line_of_each_server_is_told():
    told = tell("gateway", samples(level_mib=150, kib_a_second=64, noise_mib=0.001))
    assert told.startswith("gateway: memory 169, 187, 206 MiB after 5.0, 9.9, 14.9 minutes (+225 MiB an hour, ")
    assert told.endswith("threads 17 to 20; descriptors 18 to 23")
    assert tell("gateway", []) == "gateway: no sample"
    assert "not judged" in tell("gateway", samples()[:1])
