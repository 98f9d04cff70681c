from __future__ import annotations

import pytest

from sparklog import Admin, NewTopic
from sparklog.log import open_cluster
from tests.cli.support import a_cluster, done, failure, json_lines, run
from tests.processing.support import sent_letters, texts


@pytest.fixture
def cluster():
    uri = a_cluster()
    with Admin(uri) as admin:
        admin.create_topics([NewTopic(topic) for topic in ("orders", "dlq.orders", "other")])
    sent_letters(open_cluster(uri), 4)
    return uri


def sent(uri, topic):
    return texts(open_cluster(uri), topic)


def test_list_counts_what_lies_there(cluster):
    assert done("dlq", "list", cluster=cluster).split() == [
        "topic",
        "letters",
        "not",
        "replayed",
        "dlq.orders",
        "4",
        "4",
    ]
    [found] = json_lines(done("dlq", "list", "--json", cluster=cluster).replace("\n", ""))
    assert found == [{"topic": "dlq.orders", "letters": 4, "not_replayed": 4}]


def test_show_says_where_each_came_from_and_why(cluster):
    shown = done("dlq", "show", "dlq.orders", "--where", "exception = 'ValueError'", "--stacktrace", cluster=cluster)
    assert "orders-0@1" in shown
    assert "orders-0@3" in shown
    assert "orders-0@2" not in shown
    assert "0, 1:\nValueError: odd" in shown
    rows = json_lines(done("dlq", "show", "dlq.orders", "--max", "1", "--json", cluster=cluster))
    assert [(row["topic"], row["source_offset"], row["attempts"]) for row in rows] == [("orders", 0, 3)]


def test_replay_shows_first_and_does_it_when_told(cluster):
    result = run("dlq", "replay", "dlq.orders", cluster=cluster)
    assert (result.exit_code, result.stdout.split()) == (0, ["to", "records", "orders", "4"])
    assert result.stderr == "nothing was changed: --execute does it\n"
    assert sent(cluster, "orders") == []
    where = ["--where", "decode(value) in ('1', '2')"]
    for _ in range(2):
        done("dlq", "replay", "dlq.orders", "--to", "other", *where, "--execute", cluster=cluster)
    assert sent(cluster, "other") == ["1", "2"]
    assert '"done":true' in done("dlq", "replay", "dlq.orders", "--execute", "--json", cluster=cluster).replace(" ", "")
    assert sent(cluster, "orders") == ["0", "3"]
    assert done("dlq", "list", cluster=cluster).split()[-2:] == ["4", "0"]


def test_purge_shows_first_and_asks(cluster):
    assert "would delete 4 letters" in done("dlq", "purge", "dlq.orders", cluster=cluster)
    assert "give --yes" in failure("dlq", "purge", "dlq.orders", "--execute", code=2, cluster=cluster)
    assert len(sent(cluster, "dlq.orders")) == 4
    done("dlq", "purge", "dlq.orders", "--execute", "--yes", cluster=cluster)
    assert sent(cluster, "dlq.orders") == []


def test_what_is_wrong_is_told_in_one_line(cluster):
    assert "unknown topic: 'none'" in failure("dlq", "show", "none", cluster=cluster)
    assert "nonsense" in failure("dlq", "show", "dlq.orders", "--where", "nonsense = 1", cluster=cluster)
    both = ["--execute", "--dry-run"]
    assert "not both" in failure("dlq", "replay", "dlq.orders", *both, code=2, cluster=cluster)
