"""kafka-python's ``KafkaAdminClient``: its calls and the shapes of its answers, over sparklog's admin."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, ClassVar, NoReturn

from sparklog.admin import Admin, NewPartitions, NewTopic, TopicDescription
from sparklog.admin.many import listed
from sparklog.clock import Clock, SystemClock
from sparklog.config import AdminConfig
from sparklog.kafka.admin.older import OlderGroupCalls
from sparklog.kafka.admin.refused import RefusedCalls
from sparklog.kafka.admin.requests import ConfigResource, changes_of, each, new_topics_of, raise_first, topics_of
from sparklog.kafka.admin.transactions import TransactionCalls
from sparklog.kafka.admin.values import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    config_answer,
    created_answer,
    is_shown,
    topic_answer,
    unknown_topic_answer,
)
from sparklog.kafka.bootstrap import check_root, reaching
from sparklog.kafka.enums import ConfigFilterType, ConfigResourceType, IsolationLevel, OffsetSpec
from sparklog.kafka.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidTopicError,
    KafkaTimeoutError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    code_of,
)
from sparklog.kafka.settings import admin_settings, config_of
from sparklog.log import Cluster, open_cluster
from sparklog.model import OffsetAndTimestamp, TopicPartition
from sparklog.parallel import parallel_map

__all__ = ["KafkaAdminClient"]

_POLL_MS = 100.0
_ConfigAnswers = dict[str, dict[str, dict[str, Any]]]


class KafkaAdminClient(OlderGroupCalls, TransactionCalls, RefusedCalls):
    """Creates, describes, changes and deletes topics; describes, sets and deletes consumer groups; describes and aborts
    transactions.

    As with kafka-python a call about several topics tries each, and then raises the first error, or with
    ``raise_errors=False`` returns all of them in its answer. :meth:`create_topics` creates a missing cluster.
    A call about groups returns the outcome of each in its answer.

    Args:
        bootstrap_servers: root URI of a cluster, or a list of exactly one. The first call looks for it.
        storage_options: access to its store.
        configs: kafka-python's settings, see docs/kafka_python.md. ``request_timeout_ms`` bounds a call that has no
            ``timeout_ms`` of its own.
    Attributes:
        config: every setting by name, as given or with its default; a dict of this client's own, that changes nothing.
            ``DEFAULT_CONFIG`` has the defaults.
    Raises:
        NoBrokersAvailable: by a call: there is no cluster, or its store doesn't answer.
        KafkaConfigurationError: an unknown setting, or one that isn't allowed; named.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = config_of(None, AdminConfig.parse({}), {})

    def __init__(
        self,
        *,
        bootstrap_servers: object = None,
        storage_options: Mapping[str, Any] | None = None,
        **configs: object,
    ) -> None:
        self._root = check_root(bootstrap_servers)
        self._storage_options = storage_options
        self._settings = admin_settings(configs)
        parsed = AdminConfig.parse(self._settings)
        self.config = config_of(self._root, parsed, configs)
        self._timeout_ms = parsed.request_timeout_ms
        self._clock: Clock = SystemClock()
        self._reached: tuple[Cluster, Admin] | None = None
        self._is_closed = False

    def list_topics(self) -> list[str]:
        """The names of the topics, sorted."""
        return self._admin().list_topics()

    def describe_topics(self, topics: Iterable[str | uuid.UUID] | None = None) -> list[dict[str, Any]]:
        """Topics by name or id, or all. One that isn't there has an ``error_code`` and no partitions."""
        if topics is None:
            return [topic_answer(topic) for topic in self._admin().describe_topics()]
        asked = listed(topics)
        describe = self._describing(asked)

        def answer(one: str | uuid.UUID) -> dict[str, Any]:
            try:
                return topic_answer(describe(one))
            except (UnknownTopicOrPartitionError, InvalidTopicError) as error:
                return unknown_topic_answer(one, error)

        return parallel_map(answer, asked)

    def create_topics(
        self,
        new_topics: Mapping[str, Mapping[str, Any]] | Iterable[str | NewTopic],
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> dict[str, Any]:
        """Create topics: names, ``NewTopic`` objects, or a dict of names to ``num_partitions``, ``configs``, ….

        ``wait_for_metadata`` has no effect: whoever looks for a topic that was created finds it.

        Returns:
            ``{"topics": [{"name": …, "topic_id": …, "error_code": 0, "num_partitions": …, "configs": …, …}]}``
        """
        if validate_only and wait_for_metadata:
            raise IllegalArgumentError("validate_only and wait_for_metadata exclude one another")
        asked = new_topics_of(new_topics)
        admin, bound_ms = self._admin(create=not validate_only), self._bound_ms(timeout_ms)
        outcomes = each(
            asked,
            lambda topic: admin.create_topics([topic], timeout_ms=bound_ms, validate_only=validate_only).get(
                topic.name
            ),
        )
        answers = [created_answer(*outcome) for outcome in outcomes]
        raise_first(outcomes, raise_errors)
        return {"topics": answers}

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: float = 10_000) -> None:
        """Wait until all of these topics are there. Raises ``KafkaTimeoutError``."""
        names = listed(topic_names)
        deadline = self._clock.deadline_in(timeout_ms)
        while missing := [topic["name"] for topic in self.describe_topics(names) if topic["error_code"]]:
            if deadline.has_passed:
                raise KafkaTimeoutError(f"topics are not there after {timeout_ms:g} ms: {', '.join(missing)}")
            self._clock.sleep_ms(_POLL_MS)

    def delete_topics(
        self, topics: Iterable[str | uuid.UUID], timeout_ms: float | None = None, raise_errors: bool = True
    ) -> dict[str, Any]:
        """Delete topics by name or id.

        Returns:
            ``{"topics": [{"name": …, "topic_id": …, "error_code": 0, "error_message": None}]}``
        """
        admin, bound_ms, wanted = self._admin(), self._bound_ms(timeout_ms), listed(topics)
        describe = self._describing(wanted)

        def delete(asked: str | uuid.UUID) -> TopicDescription:
            topic = describe(asked)
            admin.delete_topics([topic.name], timeout_ms=bound_ms)
            return topic

        outcomes = each(wanted, delete)
        raise_first(outcomes, raise_errors)
        return {
            "topics": [
                {
                    "name": topic.name if topic else asked if isinstance(asked, str) else None,
                    "topic_id": uuid.UUID(topic.topic_id) if topic else asked if isinstance(asked, uuid.UUID) else None,
                    "error_code": code_of(error) if error else 0,
                    "error_message": str(error) if error else None,
                }
                for asked, topic, error in outcomes
            ]
        }

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | Mapping[str, Any] | NewPartitions],
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> CreatePartitionsResponse:
        """Let topics grow to a total number of partitions: a number, ``NewPartitions``, or a dict with ``count``."""
        admin, bound_ms = self._admin(), self._bound_ms(timeout_ms)

        def grow(item: tuple[str, int | Mapping[str, Any] | NewPartitions]) -> object:
            name, asked = item
            count: Any = asked.get("count") if isinstance(asked, Mapping) else asked
            return admin.create_partitions({name: count}, timeout_ms=bound_ms, validate_only=validate_only)

        outcomes = each(list(topic_partitions.items()), grow)
        raise_first(outcomes, raise_errors)
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name, code_of(error) if error else 0, str(error) if error else None)
                for (name, _), _, error in outcomes
            ]
        )

    def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: ConfigFilterType | str | int = "modified",
    ) -> _ConfigAnswers:
        """Settings of topics; by default those that somebody set.

        Returns:
            ``{"topic": {name of the topic: {name of the setting: {"value": …, "config_source": …, …}}}}``
        Raises:
            UnknownTopicOrPartitionError.
        """
        resources, shown = topics_of("describe_configs", config_resources), ConfigFilterType.build_from(config_filter)
        described = self._admin().describe_configs([resource.name for resource in resources])
        return {
            "topic": {
                resource.name: {
                    name: config_answer(name, entry, include_synonyms=include_synonyms)
                    for name, entry in described[resource.name].items()
                    if is_shown(entry, shown) and (resource.configs is None or name in resource.configs)
                }
                for resource in resources
            }
        }

    def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str | int] | None = None
    ) -> dict[str, list[str]]:
        """The resources that have settings: the topics."""
        asked = [ConfigResourceType.build_from(one) for one in resource_types or ()]
        return {"topic": self.list_topics()} if not asked or ConfigResourceType.TOPIC in asked else {}

    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Set some settings of topics, or with ``(AlterConfigOp.DELETE, None)`` take them back to their defaults.

        What isn't named stays as it is, whatever ``incremental`` says.

        Returns:
            ``{"topic": {name of the topic: "OK" or what is wrong}}``
        Raises:
            IllegalArgumentError: an unknown setting, if ``raise_on_unknown``.
        """
        changes = {resource.name: changes_of(resource) for resource in topics_of("alter_configs", config_resources)}
        return self._alter(changes, validate_only, raise_on_unknown)

    def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Take settings of topics back to their defaults: those that are named, or all. Else :meth:`alter_configs`."""
        changes: dict[str, dict[str, object]] = {}
        for resource in topics_of("reset_configs", config_resources):
            names = resource.configs or self._admin().describe_topics([resource.name])[0].config.explicit
            changes[resource.name] = dict.fromkeys(names)
        return self._alter(changes, validate_only, raise_on_unknown)

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: float | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, int]]:
        """Delete the records below an offset of each partition; -1 for all. ``partition_leader_id`` has no effect.

        Returns:
            ``{partition: {"partition_index": …, "low_watermark": …, "error_code": 0}}``
        """
        done = self._admin().delete_records(records_to_delete, timeout_ms=self._bound_ms(timeout_ms))
        return {
            at: {"partition_index": at.partition, "low_watermark": offset, "error_code": 0}
            for at, offset in done.items()
        }

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        isolation_level: IsolationLevel | str | int = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets by place or by time (ms); -1 where there is no such record. ``timeout_ms`` has no effect."""
        IsolationLevel.build_from(isolation_level)
        local = OffsetSpec.EARLIEST_LOCAL
        specs = {at: int(OffsetSpec.EARLIEST if spec == local else spec) for at, spec in topic_partition_specs.items()}
        return self._admin().list_offsets(specs)

    def describe_cluster(self) -> dict[str, Any]:
        """The cluster's id. There are no brokers, and no controller (-1)."""
        self._admin()
        cluster_id = self._reached[0].cluster_id if self._reached else None
        return {"cluster_id": cluster_id, "controller_id": -1, "brokers": [], "authorized_operations": None}

    def close(self) -> None:
        """End the client; again does nothing."""
        self._is_closed = True
        if self._reached is not None:
            cluster, admin = self._reached
            self._reached = None
            admin.close()
            cluster.store.close()

    def __enter__(self) -> KafkaAdminClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a KafkaAdminClient can't be pickled: make one in each process")

    def _bound_ms(self, timeout_ms: float | None) -> float:
        """The bound of a call. 0 is one: what isn't done at once fails."""
        return self._timeout_ms if timeout_ms is None else timeout_ms

    def _admin(self, *, create: bool = False) -> Admin:
        if self._is_closed:
            raise IllegalStateError("the admin client is closed")
        if self._reached is None:
            with reaching(self._root, self._storage_options):
                cluster = open_cluster(self._root, storage_options=self._storage_options, create=create)
            self._reached = cluster, Admin(cluster, **self._settings)
        return self._reached[1]

    def _describing(self, topics: Iterable[str | uuid.UUID]) -> Callable[[str | uuid.UUID], TopicDescription]:
        """A function that describes each of these topics. To find ids all topics are described, once.

        It raises ``UnknownTopicOrPartitionError``, ``InvalidTopicError``."""
        admin = self._admin()
        has_ids = any(isinstance(name_or_id, uuid.UUID) for name_or_id in topics)
        by_id = {topic.topic_id: topic for topic in admin.describe_topics()} if has_ids else {}

        def describe(name_or_id: str | uuid.UUID) -> TopicDescription:
            if isinstance(name_or_id, str):
                return admin.describe_topics([name_or_id])[0]
            if name_or_id.hex not in by_id:
                raise UnknownTopicIdError(f"unknown topic id: {name_or_id}")
            return by_id[name_or_id.hex]

        return describe

    def _alter(
        self, changes: Mapping[str, Mapping[str, object]], validate_only: bool, raise_on_unknown: bool
    ) -> dict[str, dict[str, str]]:
        admin = self._admin()
        if raise_on_unknown:
            for name, known in admin.describe_configs(changes).items():
                unknown = sorted(changes[name].keys() - known.keys())
                if unknown:
                    raise IllegalArgumentError(f"unrecognized settings of topic {name!r}: {', '.join(unknown)}")
        outcomes = each(
            list(changes), lambda name: admin.alter_configs({name: changes[name]}, validate_only=validate_only)
        )
        return {"topic": {name: str(error) if error else "OK" for name, _, error in outcomes}}
