"""``kill -9`` of a streaming query of Spark between the upload of a micro-batch and its decision, on a faulty store.

The proxy stops the create of the entry by which the sink decides; all processes of the query are killed; then the
request is lost, or reaches the store: before the next driver starts, while it starts, or once that one is about to
decide the same batch anew, whose entry has another number by then. The next driver goes on from the checkpoint.

It is played with Spark, and without a JVM by a process that does the same with the sink's own objects.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from proof.torture.life import Place
from proof.torture.proxy import FaultyProxy, ProxiedRequest, StoppedRequest
from proof.torture.rounds import opened_server, place_of
from proof.torture.servers import find_azurite, find_versitygw
from sparklog.integrity import check_cluster
from tests.spark.sink.draining import Driver, check, create_topics, make_checkpoint, write_inputs
from tests.spark_session import need_java

FILES = 14
SEED = 1
ENDS_WITHIN_S = 600.0
STARTS_WITHIN_S = 8.0
"""About as long a driver takes until it asks the store for something."""
CREATED, EXISTS = range(200, 300), (409, 412)
"""What a store answers to a create."""
UPLOADED = re.compile(rb'"([^"]+\.parquet)"')

Settle = Callable[[StoppedRequest], None]


def decision(number: int) -> Callable[[ProxiedRequest], bool]:
    """Is a request the create of the entry that decides a micro-batch, the ``number``-th of a driver?"""
    seen: set[str] = set()

    def is_wanted(request: ProxiedRequest) -> bool:
        path = urlsplit(request.path).path
        if request.method != "PUT" or "/transactions/" not in path or b'"PrepareCommit"' not in request.body:
            return False
        seen.add(path)
        return len(seen) >= number

    return is_wanted


def is_uploaded(place: Place, entry: ProxiedRequest) -> bool:
    """Are the files that a decision names in the store?"""
    named = {unquote(path.decode()).rpartition("/")[2] for path in UPLOADED.findall(entry.body)}
    there = {one.path.rpartition("/")[2] for one in place.cluster().store.list("topics/")}
    return bool(named) and named <= {unquote(path) for path in there}


@pytest.mark.deep  # in each run test_sink_kill.py: thirty kills between any two steps, on a store that loses no request
@pytest.mark.s3
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["s3", "azurite"])
def test_a_batch_whose_decision_was_under_way_as_its_driver_was_killed_is_there_once(tmp_path: Path, store: str):
    play(tmp_path, store, has_spark=False)


@pytest.mark.deep  # as the one before
@pytest.mark.spark
@pytest.mark.s3
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("store", ["s3", "azurite"])
def test_a_batch_of_spark_whose_driver_was_killed_as_it_decided_is_there_once(tmp_path: Path, store: str):
    need_java()
    play(tmp_path, store, has_spark=True)


@pytest.mark.deep  # as the one without the fault
@pytest.mark.s3
@pytest.mark.timeout(900)
def test_a_sink_that_forgets_its_batches_is_found(tmp_path: Path):
    with pytest.raises(AssertionError, match=r"topic t has \d+ rows twice"):
        play(tmp_path, "s3", has_spark=False, forgets=True)


def play(folder: Path, store: str, *, has_spark: bool, forgets: bool = False) -> None:
    """Kill five drivers as they decide, and let a sixth do what is left. ``forgets``: with a planted fault."""
    pytest.importorskip("obstore")
    if (find_versitygw if store == "s3" else find_azurite)() is None:
        pytest.skip("there is no such server")
    draw = random.Random(SEED)
    statuses: dict[str, int] = {}
    with opened_server(folder, store) as server:
        proxy = FaultyProxy(server.endpoint, SEED)
        past_proxy, place = place_of(folder, store, server), place_of(folder, store, server, endpoint=proxy.url)
        cluster = past_proxy.cluster()
        create_topics(cluster)
        if has_spark:
            write_inputs(folder, FILES, padded=20_000)
        else:
            make_checkpoint(folder)

        @contextmanager
        def a_driver(amount: int) -> Iterator[Driver]:
            driver = Driver(place.root, folder, amount, place.storage_options, has_spark=has_spark, forgets=forgets)
            try:
                yield driver
            finally:
                driver.kill()

        def stopped_and_killed(meanwhile: Callable[[], None] = lambda: None) -> StoppedRequest:
            """Start a driver, and kill it as it decides; ``meanwhile`` is called before it is killed."""
            stopped = proxy.stop(decision(draw.randint(1, 2)))
            with a_driver(1 if has_spark else FILES - 1) as driver:
                entry = None
                while entry is None and driver.is_running:
                    entry = stopped.wait(1.0)
                assert entry is not None, driver.said
                assert is_uploaded(past_proxy, entry)
                meanwhile()
            return stopped

        stopped_and_killed().drop()
        statuses["before the next driver"] = stopped_and_killed().carry_out()
        as_it_starts = stopped_and_killed()

        def arrive_as_it_starts() -> None:
            statuses["as the next driver starts"] = as_it_starts.carry_out()

        timer = threading.Timer(draw.uniform(0, STARTS_WITHIN_S), arrive_as_it_starts)
        timer.start()
        behind = stopped_and_killed(timer.join)

        def arrive_behind() -> None:
            statuses["as the next driver decides"] = behind.carry_out()

        stopped_and_killed(arrive_behind).drop()
        with a_driver(FILES if has_spark else FILES - 1) as last:
            assert last.wait(ENDS_WITHIN_S) == 0, last.said
        proxy.close()
        assert statuses["before the next driver"] in CREATED, statuses
        assert statuses["as the next driver starts"] in (*CREATED, *EXISTS), statuses
        assert statuses["as the next driver decides"] in EXISTS, statuses
        assert sum(proxy.counts.values()) > 0
        check(cluster, FILES)
        report = check_cluster(cluster, deep=True)
        assert not report.errors, report
