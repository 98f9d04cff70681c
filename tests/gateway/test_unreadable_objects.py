"""What the gateway may not read is told by its name, and all else is answered."""

from contextlib import closing

import sparklog.gateway
from sparklog import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from sparklog.errors import StorePermissionError
from sparklog.log import open_cluster
from sparklog.storage import MemoryStore
from sparklog.testing import WrappedStore
from tests.gateway.test_server import Wire


class RefusingStore(WrappedStore):
    """A store that refuses what lies under some prefixes."""

    refused: tuple[str, ...] = ()

    def _call(self, op, path, call):
        if path.startswith(self.refused):
            raise StorePermissionError(f"{op} {path}: refused")
        return call()


def test_what_may_not_be_read_hides_nothing_else_from_lists():
    store = RefusingStore(MemoryStore())
    cluster = open_cluster(store)
    admin = Admin(cluster)
    admin.create_topics([NewTopic("bad"), NewTopic("good")])
    for name in ("bad", "good"):
        admin.alter_group_offsets(name, {TopicPartition("good", 0): OffsetAndMetadata(0)})
        with Producer(cluster, transactional_id=name) as producer:
            producer.init_transactions()
    store.refused = ("topics/bad/", "groups/bad/", "transactions/bad/")
    with sparklog.gateway.serve(cluster) as servers, closing(Wire(servers)) as client:
        topics = client.call("Metadata", 9, {"topics": None})["topics"]
        assert {one["name"]: one["error_code"] for one in topics} == {"bad": 56, "good": 0}
        groups = client.call("ListGroups", 4, {"states_filter": []})["groups"]
        assert {one["group_id"]: one["group_state"] for one in groups} == {"bad": "Unknown", "good": "Empty"}
        listed = client.call("ListTransactions", 0, {"state_filters": [], "producer_id_filters": []})
        assert [one["transactional_id"] for one in listed["transaction_states"]] == ["good"]
