"""``sparklog check``: a table or JSON, exit codes, and repairing."""

import json
from pathlib import Path

import pytest

from sparklog.integrity import SEVERITIES, Code
from sparklog.storage import open_store
from tests.cli.support import a_cluster, done, failure, run


@pytest.fixture
def cluster():
    uri = a_cluster()
    done("topics", "create", "orders", "clicks", "--partitions", "2", cluster=uri)
    done("produce", "orders", "--partition", "0", cluster=uri, input="one\ntwo\n")
    return uri


def data_file(cluster):
    store = open_store(cluster)
    return store, next(one.path for one in store.list("topics/orders/") if one.path.endswith(".parquet"))


def test_a_healthy_cluster(cluster):
    assert done("check", cluster=cluster).splitlines() == [
        "checked 2 topics, 3 log entries, 1 files, 2 records, 0 groups, 0 committed offsets, 0 transactional ids, "
        "0 transactions",
        "0 errors, 0 warnings",
    ]
    assert done("check", "--topics", "clicks", "--deep", cluster=cluster).startswith("checked 1 topics, 1 log entries")


def test_errors_make_the_exit_code_1(cluster):
    store, path = data_file(cluster)
    store.delete([path])
    result = run("check", cluster=cluster)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["severity", "code", "of", "seen", "expected"]
    assert lines[1].startswith("error     file-missing  topic orders-0, topics/orders/partition=0/")
    assert lines[-1] == "1 errors, 0 warnings"
    assert result.stderr == ""
    assert run("check", "--topics", "clicks", cluster=cluster).exit_code == 0


def test_warnings_leave_it_0(cluster):
    open_store(cluster).put("topics/orders/_delta_log/_last_checkpoint", b"garbled")
    result = run("check", "--json", cluster=cluster)
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert (report["errors"], report["warnings"], report["counts"]["topics"]) == (0, 1, 2)
    [finding] = report["findings"]
    assert finding == {
        "severity": "warning",
        "code": "hint-wrong",
        "topic": "orders",
        "path": "topics/orders/_delta_log/_last_checkpoint",
        "seen": "it can't be understood",
        "expected": "a checkpoint that is there: none is",
    }


def test_repair_tells_what_it_did_and_checks_again(cluster):
    open_store(cluster).put("topics/orders/_delta_log/_last_checkpoint", b"garbled")
    lines = done("check", "--repair", cluster=cluster).splitlines()
    assert lines[0] == "repaired: topic orders: wrote a checkpoint of version 1"
    assert lines[-1] == "0 errors, 0 warnings"
    report = json.loads(done("check", "--repair", "--json", cluster=cluster))
    assert (report["repaired"], report["not_repaired"]) == ([], [])


def test_wrong_usage(cluster):
    assert "unknown topic" in failure("check", "--topics", "nosuch", cluster=cluster)
    assert "no sparklog cluster" in failure("check", cluster=a_cluster())
    failure("check", "--depp", cluster=cluster, code=2)


def test_every_code_is_on_its_page():
    page = (Path(__file__).parent.parent.parent / "docs" / "integrity.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    told = {cells[1].strip().strip("`"): cells[2].strip() for cells in rows if len(cells) == 5}
    assert told == {code.value: severity.value for code, severity in SEVERITIES.items()}
    assert len(told) == len(Code)


def test_a_list_of_topics_that_is_empty_is_refused(cluster: str) -> None:
    refused = run("check", "--topics", "", cluster=cluster)
    assert refused.exit_code == 2
    assert "--topics" in refused.stderr
