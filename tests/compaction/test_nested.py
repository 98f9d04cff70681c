"""What lies in the folders of a cluster and is another's is neither deleted nor taken for the cluster's own."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from sparklog import Consumer, Producer
from sparklog.compaction import maintain
from sparklog.compaction.report_format import report_as_plain
from sparklog.compaction.vacuum import vacuum_topic
from sparklog.delta.others_folders import OthersFolders
from sparklog.integrity import Code, check_cluster
from sparklog.log import create_topic, open_cluster
from sparklog.paths import CLUSTER_FILE
from sparklog.storage import MemoryStore
from sparklog.txn.orphans import others_folders

DAY_S = 86_400
PLACES = [
    "topics",
    "topics/t",
    "topics/t/inner",
    "topics/t/partition=0",
    "topics/t/ingest-x",
    "groups",
    "groups/g",
    "groups/g/offsets",
    "groups/g/offsets/0",
    "transactions/x",
    "transactions/x/-inner",
    "inner",
]


def used(root: Path) -> None:
    """A cluster with a topic, a group and a transactional id."""
    create_topic(open_cluster(root).topic_log("t"), "t")
    with Producer(root, linger_ms=0) as producer:
        for number in range(3):
            producer.send("t", value=b"%d" % number).get(10)
    with Producer(root, transactional_id="x") as producer:
        producer.init_transactions()
        for _ in range(3):
            producer.begin_transaction()
            producer.send("t", value=b"in a transaction")
            producer.commit_transaction()
    with Consumer("t", cluster=root, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        for _ in range(2):
            while not consumer.poll(timeout_ms=1_000, max_records=1):
                pass
            consumer.commit()


def age(root: Path, days: int) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            changed = path.stat().st_mtime - days * DAY_S
            os.utime(path, (changed, changed))


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("built") / "cluster"
    used(root)
    return root


def nest(built: Path, outer: Path, place: str) -> set[str]:
    """Lay a cluster into another one's folder, as clients could make it once; the names of its files."""
    shutil.copytree(built, outer)
    for path in sorted(built.rglob("*")):
        if path.is_file() and "/_probe/" not in str(path):
            target = outer / place / path.relative_to(built)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    (outer / place / CLUSTER_FILE).write_text(json.dumps({"cluster_id": "1" * 32, "format_version": 1}))
    return {str(Path(place) / name) for name in files(built)}


@pytest.mark.parametrize("place", PLACES)
def test_maintenance_deletes_nothing_of_a_cluster_within_another(tmp_path: Path, built: Path, place: str) -> None:
    outer = tmp_path / "outer"
    inner = nest(built, outer, place)
    (outer / "topics/t/partition=0/orphan.parquet").write_bytes(b"an orphan of the outer one")
    age(outer, 40)
    before = {name: data for name, data in files(outer).items() if name in inner}
    reports = [maintain(open_cluster(outer)) for _ in range(2)]
    vacuumed = vacuum_topic(open_cluster(outer), "t", timeout_ms=60_000)
    after = files(outer)
    assert {name for name in before if name not in after} == set()
    if place != "topics/t/partition=0":  # there the orphan is a stranger's, too
        assert not (outer / "topics/t/partition=0/orphan.parquet").exists()
    if place.startswith("topics/t/"):
        assert vacuumed.spared_folders == (f"{place}/",)
        assert f"{place}/" in json.dumps(report_as_plain(reports[0]))
    assert check_cluster(outer / place).errors == ()


@pytest.mark.parametrize("place", PLACES)
def test_check_reports_it_and_counts_nothing_of_it(tmp_path: Path, built: Path, place: str) -> None:
    outer = tmp_path / "outer"
    alone = check_cluster(built).counts
    nest(built, outer, place)
    report = check_cluster(outer)
    found = {finding.subject.path for finding in report.findings if finding.code is Code.NESTED_FOLDER}
    if place == "inner":  # beside everything of the outer one
        assert found == set()
    elif place == "topics/t":  # whose own folder has parts of both
        assert found == {"topics/t/topics/t/", "topics/t/groups/g/offsets/"}
    else:
        assert found == {f"{place}/"}
    assert report.counts.groups == alone.groups
    assert report.errors == ()


def test_another_engines_table_in_a_topics_folder_is_spared(tmp_path: Path) -> None:
    create_topic(open_cluster(tmp_path).topic_log("t"), "t")
    stranger = tmp_path / "topics/t/reports/of/today"
    deltalake.write_deltalake(str(stranger), pa.table({"a": [1, 2]}))
    age(tmp_path, 40)
    report = vacuum_topic(open_cluster(tmp_path), "t", timeout_ms=60_000)
    assert (report.files_deleted, report.spared_folders) == (0, ("topics/t/reports/of/today/",))
    assert deltalake.DeltaTable(str(stranger)).to_pyarrow_table().num_rows == 2


def test_a_folder_of_an_ingest_is_no_strangers() -> None:
    log = open_cluster(MemoryStore()).topic_log("t")
    others = others_folders(log)
    own = f"topics/t/ingest-{'0' * 32}"
    for path in (f"{own}/_delta_log/0.json", f"{own}/partition=0/a.parquet", "topics/t/_delta_log/_cleaned/below-1"):
        others.note(path)
    assert others.found() == ()
    others.note(f"{own}/x/_delta_log/0.json")
    others.note(f"topics/t/ingest-{'0' * 31}/_delta_log/0.json")
    again = others_folders(log)
    again.note(f"{own}/x/_delta_log/0.json")
    again.note(f"topics/t/ingest-{'0' * 31}/_delta_log/0.json")
    assert again.found() == (f"topics/t/ingest-{'0' * 31}/", f"{own}/x/")


def test_a_cluster_json_that_is_none_spares_nothing() -> None:
    store = MemoryStore()
    store.put("topics/t/a/cluster.json", b"{}")
    store.put("topics/t/b/cluster.json", b'{"cluster_id": "x", "format_version": 1}')
    others = OthersFolders(store, "topics/t/")
    for found in store.list("topics/t/"):
        others.note(found.path)
    assert others.found() == ("topics/t/b/",)
    assert others.spares("topics/t/b/c/d.parquet")
    assert not others.spares("topics/t/a/c.parquet")
    assert not others.spares("topics/t/bc.parquet")
