"""Calls of kafka-python's admin client that sparklog doesn't have: each says why. Listed by hand."""

from __future__ import annotations

from typing import Any, NoReturn

from sparklog.kafka.errors import IncompatibleBrokerVersion

__all__ = ["RefusedCalls", "refuse"]

_STORE = "access is governed by the store's credentials and policies"
_NO_BROKERS = "there are no brokers, and so no replicas, leaders or log folders"
_NO_PRODUCERS = "partitions keep no list of producers; describe_transactions says who has a transactional id"


def refuse(call: str, why: str) -> NoReturn:
    """Raise ``IncompatibleBrokerVersion``, which kafka-python raises for what its brokers don't know."""
    raise IncompatibleBrokerVersion(f"{call} is not supported: {why}")


class RefusedCalls:
    """Every call raises ``IncompatibleBrokerVersion``."""

    # Rights and users

    def describe_acls(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("describe_acls", _STORE)

    def create_acls(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("create_acls", _STORE)

    def delete_acls(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("delete_acls", _STORE)

    def alter_user_scram_credentials(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("alter_user_scram_credentials", _STORE)

    def describe_user_scram_credentials(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("describe_user_scram_credentials", _STORE)

    # Brokers

    def describe_log_dirs(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("describe_log_dirs", _NO_BROKERS)

    def alter_replica_log_dirs(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("alter_replica_log_dirs", _NO_BROKERS)

    def describe_metadata_quorum(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("describe_metadata_quorum", _NO_BROKERS)

    def get_broker_version_data(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("get_broker_version_data", _NO_BROKERS)

    def api_versions(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("api_versions", _NO_BROKERS)

    def describe_features(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("describe_features", _NO_BROKERS)

    def update_features(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("update_features", _NO_BROKERS)

    def elect_leaders(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("elect_leaders", _NO_BROKERS)

    def alter_partition_reassignments(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("alter_partition_reassignments", _NO_BROKERS)

    def list_partition_reassignments(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("list_partition_reassignments", _NO_BROKERS)

    # Producers

    def describe_producers(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("describe_producers", _NO_PRODUCERS)

    # Others

    def describe_topic_partitions(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("describe_topic_partitions", "describe_topics returns the same")
