"""Share groups of processes, some of which are killed or suspended: every record is accepted, none twice by a report
that it counts, and none is delivered again after that."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from proof.processes.share_members import LIMIT, LOCK_MS, take
from proof.processes.test_group_kill import Group
from proof.processes.victims import PARTITIONS
from sparklog import Admin
from tests.depth import by_depth

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="there is no kill -9"),
]

RECORDS = by_depth(gate=1_500, nightly=6_000)


class Workers(Group):
    """Members of a share group; more of them than partitions, at times."""

    def begin(self, name: str, seed: int, **how: Any) -> multiprocessing.process.BaseProcess:
        return self._start(take, str(self.root), str(self._diary), name, seed=seed, **how)


def is_done(group: Workers) -> bool:
    [described] = Admin(str(group.root)).describe_share_groups(["g"])
    return len(described.partitions) == PARTITIONS and all(row.lag == 0 for row in described.partitions)


def test_members_that_are_killed_lose_nothing_and_accept_nothing_twice(tmp_path: Path) -> None:
    group, chance = Workers(tmp_path), random.Random(7)
    group.fill(RECORDS)
    try:
        living = [group.begin(f"m{n}", n, pause_s=0.01) for n in range(4)]
        for n in range(4, by_depth(gate=8, nightly=16)):
            time.sleep(0.7)
            victim = living.pop(chance.randrange(len(living)))
            if n % 3:
                os.kill(victim.pid or 0, signal.SIGKILL)
            else:  # it sleeps beyond its locks, and wakes up among others
                os.kill(victim.pid or 0, signal.SIGSTOP)
                time.sleep(2 * LOCK_MS / 1_000)
                os.kill(victim.pid or 0, signal.SIGCONT)
                living.append(victim)
            living.append(group.begin(f"m{n}", n, pause_s=0.01))
        deadline = time.monotonic() + 90
        while not is_done(group) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert is_done(group)
    finally:
        for process in group.started:
            process.terminate()
        for process in group.started:
            process.join(60)
            process.kill()
    check(group)


def check(group: Workers) -> None:
    accepted: dict[tuple[int, int], str] = {}
    accepting: dict[tuple[int, int], int] = {}
    deliveries: dict[tuple[int, int], list[int]] = {}
    for line in group.events():
        if line["event"] == "got":
            at = (line["at"][0], line["at"][1])
            assert at not in accepted, f"{at} was accepted by {accepted[at]}, and delivered to {line['who']} afterwards"
            deliveries.setdefault(at, []).append(line["count"])
            continue
        for number, offsets in line["offsets"].items():
            for offset in offsets:
                at = (int(number), offset)
                if line["event"] == "accepting":
                    accepting[at] = accepting.get(at, 0) + 1
                else:
                    assert at not in accepted, f"{at} was accepted by {accepted[at]} and by {line['who']}"
                    accepted[at] = line["who"]
    everything = {(n % PARTITIONS, n // PARTITIONS) for n in range(RECORDS)}
    assert deliveries.keys() == everything
    assert accepting.keys() == everything  # whose report was lost with its member has been accepted all the same
    assert len(everything - accepted.keys()) <= 20 * len(group.started)
    for at, counts in deliveries.items():
        assert counts == sorted(set(counts)), f"{at} was delivered with counts {counts}"
        assert counts[-1] <= LIMIT
    assert any(len(counts) > 1 for counts in deliveries.values())
