"""``sparklog transactions``, and ``sparklog produce --transactional-id``."""

import json

import click
import pytest

from sparklog import OffsetAndMetadata, Producer, TopicPartition
from sparklog.cli.options import complete_transactional_ids
from sparklog.cli.transactions import transactions
from sparklog.errors import CommitStateUnknownError, KafkaTimeoutError
from sparklog.log import open_cluster
from sparklog.model import ConsumerGroupMetadata
from sparklog.paths import transaction_entry
from sparklog.producer.transaction_uploads import TransactionUploads
from tests.cli.support import a_cluster, done, failure, run


@pytest.fixture
def cluster():
    uri = a_cluster()
    done("topics", "create", "orders", cluster=uri)
    return uri


@pytest.fixture
def producer(cluster):
    with Producer(cluster, transactional_id="tx", linger_ms=0) as one:
        one.init_transactions()
        one.begin_transaction()
        one.send("orders", b"x")
        yield one


def lines(*arguments, cluster):
    return done("transactions", *arguments, cluster=cluster).splitlines()


def consumed(cluster):
    return done("consume", "orders", "--from-beginning", cluster=cluster).splitlines()


# produce --transactional-id


def test_all_lines_are_stored_or_none(cluster):
    how = ("produce", "orders", "--format", "json")
    result = run(*how, "--transactional-id", "load", cluster=cluster, input='{"value": "a"}\n{"value": "b"}\n')
    assert (result.exit_code, result.stderr) == (0, "produced 2 records to orders\n")
    result = run(*how, "-X", "transactional.id=load", cluster=cluster, input='{"value": "c"}\nd\n')
    assert result.exit_code == 1
    assert result.stderr.startswith("produced 0 records to orders\nsparklog: error: stdin, line 2: no JSON")
    assert consumed(cluster) == ["a", "b"]
    result = run(*how, "--transactional-id", "load", cluster=cluster, input="")
    assert (result.exit_code, result.stderr) == (0, "produced 0 records to orders\n")
    [found] = json.loads(done("transactions", "describe", "load", "--json", cluster=cluster))
    assert (found["state"], found["producer_epoch"]) == ("Empty", 2)


@pytest.mark.parametrize("error", [KafkaTimeoutError, CommitStateUnknownError])
def test_where_nobody_knows_it_says_so(cluster, monkeypatch, error):
    def commit(producer):
        raise error("lost")

    monkeypatch.setattr(Producer, "commit_transaction", commit)
    result = run("produce", "orders", "--transactional-id", "load", cluster=cluster, input="a\n")
    assert result.exit_code == 1
    assert result.stderr == "whether 1 record will be stored in orders isn't known\nsparklog: error: lost\n"


def test_a_transaction_into_a_topic_that_is_not_there(cluster):
    told = failure("produce", "nosuch", "--transactional-id", "load", cluster=cluster, input="a\n")
    assert "unknown topic" in told
    assert "acks=0 contradicts transactional_id" in failure(
        "produce", "orders", "--transactional-id", "load", "--acks", "0", cluster=cluster, input="a\n"
    )


# transactions


def test_transactions_are_listed_and_described(cluster, producer):
    header, row = lines("list", cluster=cluster)
    assert header.split() == ["transactional", "id", "state", "producer", "id"]
    name, state, producer_id = row.split()
    assert (name, state) == ("tx", "Ongoing")
    assert json.loads(done("transactions", "list", "--json", cluster=cluster)) == [
        {"transactional_id": "tx", "state": "Ongoing", "producer_id": int(producer_id)}
    ]
    assert lines("list", "--state", "Ongoing", "--producer-id", producer_id, cluster=cluster)[1:] == [row]
    assert lines("list", "--state", "Empty", cluster=cluster)[1:] == []
    assert "expected one of" in failure("transactions", "list", "--state", "ongoing", cluster=cluster)
    first, second = lines("describe", cluster=cluster)
    assert first == "tx: Ongoing"
    assert second.startswith(f"  producer {producer_id}, epoch 0, time-out 60000 ms, entry 1 of 20")
    assert second.endswith("Z")


def test_a_commit_that_was_left_is_shown_and_recovered(cluster, producer, monkeypatch):
    def fails(uploads, transaction):
        transaction.published.set_exception(KafkaTimeoutError("not now"))

    offsets = {TopicPartition("orders", 0): OffsetAndMetadata(0)}
    producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("g"))
    with monkeypatch.context() as patch:
        patch.setattr(TransactionUploads, "_publish_transaction", fails)
        with pytest.raises(KafkaTimeoutError):
            producer.commit_transaction()
    assert consumed(cluster) == []
    state, _, *changes = lines("describe", "tx", cluster=cluster)
    assert state == "tx: PrepareCommit"
    assert changes == [
        "changes  group  topic   partition",
        "records         orders          0",
        "offset   g      orders          0",
    ]
    [found] = json.loads(done("transactions", "describe", "--json", cluster=cluster))
    assert (found["topic_partitions"], found["groups"]) == ({"orders": [0]}, {"g": {"orders": [0]}})
    assert "is committed" in failure("transactions", "abort", "tx", cluster=cluster)
    assert lines("recover", cluster=cluster) == [
        "transactional id  state before   action",
        "tx                PrepareCommit  committed",
    ]
    assert consumed(cluster) == ["x"]
    assert json.loads(done("transactions", "recover", "--json", cluster=cluster)) == [
        {"transactional_id": "tx", "state": "CompleteCommit", "action": "nothing", "error": None}
    ]


def test_a_transaction_is_aborted(cluster, producer):
    assert done("transactions", "abort", "tx", cluster=cluster) == ""
    assert lines("describe", "tx", cluster=cluster)[0] == "tx: CompleteAbort, aborted: an administrator aborted it"
    for command in ("describe", "abort"):
        told = failure("transactions", command, "nosuch", cluster=cluster)
        assert told == "sparklog: error: unknown transactional id: 'nosuch'"


def test_an_id_that_can_not_be_understood_is_shown_beside_the_others(cluster, producer):
    open_cluster(cluster).store.put(transaction_entry("bad", 1), b"{")
    listed, described = (run("transactions", command, cluster=cluster) for command in ("list", "describe"))
    rows = listed.stdout.splitlines()[1:]
    assert [row.split()[:2] for row in rows] == [["bad", "Unknown"], ["tx", "Ongoing"]]
    for result in (listed, described):
        assert result.exit_code == 3
        assert result.stderr.startswith("sparklog: error: transactional id bad: corrupt transaction entry ")
    bad, _, good, _ = described.stdout.splitlines()
    assert bad.startswith("bad: Unknown, corrupt transaction entry ")
    assert good == "tx: Ongoing"
    assert "corrupt transaction entry" in failure("transactions", "describe", "bad", "tx", cluster=cluster)
    result = run("transactions", "recover", cluster=cluster)
    assert result.exit_code == 1
    assert [row.split() for row in result.stdout.splitlines()[1:]] == [
        ["bad", "Unknown", "failed"],
        ["tx", "Empty", "nothing"],
    ]
    assert "corrupt transaction entry" in result.stderr


def test_names_are_completed(cluster, producer, monkeypatch):
    context, name = click.Context(transactions), transactions.commands["abort"].params[0]
    monkeypatch.setenv("SPARKLOG_CLUSTER", cluster)
    assert complete_transactional_ids(context, name, "t") == ["tx"]
    assert complete_transactional_ids(context, name, "u") == []
    monkeypatch.setenv("SPARKLOG_CLUSTER", "memory://nosuch")
    assert complete_transactional_ids(context, name, "t") == []
