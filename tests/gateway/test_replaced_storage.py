"""Clients of a gateway whose cluster's folder is replaced, or whose topic another engine shrank."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

import sparklog.gateway
from sparklog import Admin, NewTopic
from sparklog.errors import CorruptLogError, StoreReplacedError, TopicShrunkError
from sparklog.gateway.error_codes import ErrorCode, code_of
from tests.gateway.test_idempotence import sent
from tests.gateway.test_server import Wire


def test_a_replaced_store_a_corrupt_log_and_a_shrunk_topic_are_a_log_that_is_offline():
    assert code_of(StoreReplacedError("x")) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(CorruptLogError("x")) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(TopicShrunkError("x")) is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("what", ["the cluster", "the topic"])
def test_an_idempotent_batch_that_is_repeated_once_its_folder_is_back_is_stored_once(tmp_path: Path, what: str) -> None:
    root = tmp_path / "c"
    Admin(str(root)).create_topics([NewTopic("jobs", 2)])
    folder = root if what == "the cluster" else root / "topics/jobs"
    with sparklog.gateway.serve(str(root)) as servers:
        client = Wire(servers)
        try:
            assert sent(client, b"a", sequence=0) == 0
            folder.rename(tmp_path / "away")
            found = [sent(client, b"b", sequence=1) for _ in range(2)]
            assert found[-1] == ErrorCode.KAFKA_STORAGE_ERROR, found
            assert not folder.exists()
            (tmp_path / "away").rename(folder)
            assert sent(client, b"b", sequence=1) == 1
            assert sent(client, b"b", sequence=1) == 1
            assert sent(client, b"c", sequence=2) == 2
        finally:
            client.close()


def test_a_shrunk_topic_is_a_log_that_is_offline_until_it_is_put_back(tmp_path: Path) -> None:
    root = str(tmp_path / "c")
    Admin(root).create_topics([NewTopic("jobs", 2)])
    table = DeltaTable(f"{root}/topics/jobs")
    with sparklog.gateway.serve(root) as servers:
        client = Wire(servers)
        try:
            assert sent(client, b"a", sequence=0) == 0
            table.update_incremental()
            table.alter.set_table_properties({"sparklog.partitions": "1"}, raise_if_not_exists=False)
            assert sent(client, b"b", sequence=1) == ErrorCode.KAFKA_STORAGE_ERROR
            table.update_incremental()
            table.alter.set_table_properties({"sparklog.partitions": "2"}, raise_if_not_exists=False)
            assert sent(client, b"b", sequence=1) == 1
        finally:
            client.close()


def test_an_idempotent_batch_is_stored_once_a_corrupt_log_is_repaired(tmp_path: Path) -> None:
    root = str(tmp_path / "c")
    Admin(root).create_topics([NewTopic("jobs", 2)])
    log = tmp_path / "c/topics/jobs/_delta_log"
    with sparklog.gateway.serve(root) as servers:
        client = Wire(servers)
        try:
            assert sent(client, b"a", sequence=0) == 0
            damaged = log / f"{len([*log.glob('*.json')]):020d}.json"
            damaged.write_bytes(b"{")
            assert sent(client, b"b", sequence=1) == ErrorCode.KAFKA_STORAGE_ERROR
            damaged.unlink()
            assert sent(client, b"b", sequence=1) == 1
            assert sent(client, b"b", sequence=1) == 1
        finally:
            client.close()
