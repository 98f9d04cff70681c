"""docs/operations.md, Copying a cluster: its program copies a cluster in use, and the copies are whole."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparklog import Admin, Consumer, NewTopic, Producer, ShareConsumer, TopicPartition
from sparklog.integrity import Report, Severity, check_cluster
from sparklog.log import open_cluster
from tests.depth import by_depth

PAGE = Path(__file__).parent.parent.parent / "docs" / "operations.md"
COPIES = by_depth(gate=2, nightly=20)
_LONG_S = 60.0


def the_program() -> Callable[[str, str], None]:
    """The page's ``copy_cluster``."""
    [code] = re.findall(
        r"^```py\n(.*?)^```$", PAGE.read_text().split("## Copying a cluster")[1], re.MULTILINE | re.DOTALL
    )[:1]
    found: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), found)
    copy_cluster: Callable[[str, str], None] = found["copy_cluster"]
    return copy_cluster


class Work:
    """Plain producers, groups and a share group, each in a thread, until it is over."""

    def __init__(self, root: Path) -> None:
        self.cluster = open_cluster(root)
        self.is_over = threading.Event()
        self.counts = {"sent": 0, "committed": 0, "shared": 0}
        self.errors: list[BaseException] = []
        with Admin(self.cluster) as admin:
            admin.create_topics([NewTopic("t", 2), NewTopic("s", 1)])
            with Producer(self.cluster, transactional_id="finished") as producer:
                producer.init_transactions()
                producer.begin_transaction()
                producer.send("t", b"of a transaction")
                producer.commit_transaction()

    def produce(self, acks: Any) -> None:
        with Producer(self.cluster, acks=acks) as producer:
            while not self.is_over.is_set():
                for topic in ("t", "s"):
                    producer.send(topic, b"%d" % self.counts["sent"]).get(_LONG_S)
                self.counts["sent"] += 1
                time.sleep(0.1)  # each copy is checked as a whole

    def consume(self) -> None:
        """A member that leaves now and then, so that there are new generations."""
        while not self.is_over.is_set():
            with Consumer(
                "t",
                cluster=self.cluster,
                group_id="g",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=6_000,  # in a copy, members that are away are waited for
            ) as consumer:
                for _ in range(60):
                    if self.is_over.is_set():
                        return
                    if consumer.poll(timeout_ms=20):
                        consumer.commit()
                        self.counts["committed"] += 1

    def share(self) -> None:
        with ShareConsumer(
            "s", cluster=self.cluster, group_id="shared", share_auto_offset_reset="earliest"
        ) as consumer:
            while not self.is_over.is_set():
                consumer.poll(timeout_ms=20, max_records=5)
                self.counts["shared"] += 1

    @contextmanager
    def going_on(self) -> Iterator[None]:
        works = [lambda: self.produce("all"), lambda: self.produce(1), self.consume, self.share]
        threads = [threading.Thread(target=self._run, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.is_over.set()
            for thread in threads:
                thread.join(_LONG_S)
        assert self.errors == []

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.errors.append(error)

    def wait(self, *, committed: int) -> None:
        until, target = time.monotonic() + _LONG_S, self.counts["committed"] + committed
        while self.counts["committed"] < target and not self.errors:
            assert time.monotonic() < until, self.counts
            time.sleep(0.01)


def errors_of(report: Report) -> list[str]:
    return [str(found) for found in report.findings if found.severity is Severity.ERROR]


def check(root: Path) -> Report:
    return check_cluster(open_cluster(root, create=False), deep=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_copies_beside_plain_producers_and_groups_are_whole(tmp_path: Path) -> None:
    copy_cluster, work = the_program(), Work(tmp_path / "data")
    copies = [tmp_path / f"copy-{number}" for number in range(COPIES)]
    with work.going_on():
        for copy in copies:
            work.wait(committed=1)
            copy_cluster(str(tmp_path / "data"), str(copy))
    reports = [check(copy) for copy in copies]
    assert [errors_of(report) for report in reports] == [[]] * COPIES
    assert [report.counts.records for report in reports] == sorted({report.counts.records for report in reports})
    goes_on(copies[-1])
    assert errors_of(check(copies[-1])) == []


def goes_on(copy: Path) -> None:
    """Producers, the group and the transactional id go on in the copy from where they were in it."""
    cluster = open_cluster(copy, create=False)
    with Producer(cluster, transactional_id="finished") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"new", partition=0)
        producer.commit_transaction()
    with (
        Consumer("t", cluster=cluster, group_id="g", auto_offset_reset="none", enable_auto_commit=False) as consumer,
        Admin(cluster) as admin,
    ):
        committed = {at: found.offset for at, found in admin.list_group_offsets("g").items()}
        ends = admin.end_offsets([TopicPartition("t", 0), TopicPartition("t", 1)])
        found: dict[TopicPartition, list[int]] = {at: [] for at in ends}
        while any(len(found[at]) < end - committed[at] for at, end in ends.items()):
            for at, records in consumer.poll(timeout_ms=500).items():
                found[at] += [record.offset for record in records]
        assert found == {at: [*range(committed[at], end)] for at, end in ends.items()}
        consumer.commit()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_copy_in_another_order_is_torn_and_check_says_so(tmp_path: Path) -> None:
    work, found = Work(tmp_path / "data"), set[str]()
    with work.going_on():
        work.wait(committed=5)
        for number in range(10):
            copy = tmp_path / f"copy-{number}"
            for folder in ("topics", "transactions", "groups", "share-groups"):
                shutil.copytree(tmp_path / "data" / folder, copy / folder, ignore_dangling_symlinks=True)
                work.wait(committed=3)
            shutil.copy2(tmp_path / "data" / "cluster.json", copy / "cluster.json")
            found |= {one.code.value for one in check(copy).findings if one.severity is Severity.ERROR}
            if "committed-above-end" in found:
                break
    assert "committed-above-end" in found
