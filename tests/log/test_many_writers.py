"""Eight processes, one topic: dense offsets, none lost, each writer's order kept."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sparklog.log.cluster import open_cluster
from sparklog.log.topic import create_topic
from tests.depth import by_depth
from tests.log.writer_process import write
from tests.support import contents

PROCESSES = 8
METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


def check_many_writers(uri: str, options: dict[str, Any] | None, commits: int) -> None:
    log = open_cluster(uri, storage_options=options).topic_log("t")
    create_topic(log, "t")
    context = multiprocessing.get_context(METHOD)
    if METHOD == "forkserver":
        context.set_forkserver_preload(["tests.log.writer_process"])  # imported once, before any process has a client
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        results = list(
            pool.map(write, *zip(*[(uri, options, f"w{n}", commits) for n in range(PROCESSES)], strict=True))
        )

    seen = contents(log)[0]
    assert [offset for offset, _ in seen] == list(range(PROCESSES * commits))
    assert sorted(pair for acknowledged in results for pair in acknowledged) == seen
    for acknowledged in results:
        assert acknowledged == sorted(acknowledged)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_eight_processes_append_to_one_topic_in_a_local_folder(tmp_path: Path) -> None:
    check_many_writers(str(tmp_path), None, by_depth(gate=15, nightly=120))


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_eight_processes_append_to_one_topic_on_s3(s3_uri: str, s3_options: dict[str, Any]) -> None:
    check_many_writers(s3_uri, s3_options, by_depth(gate=3, nightly=20))  # the server takes them one after the other
