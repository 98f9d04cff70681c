"""One transaction of files that other processes have uploaded: to several topics at once, and once for each
micro-batch of a streaming query (rule T7, micro-batches).

Between any two store calls here the process may die or sleep. Before the ``PrepareCommit`` entry is created nothing
counts, and the files are orphans; afterwards all of it does, whoever carries it out. A batch that is run again finds
its number in the log's newest entry.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sparklog.clock import Deadline
from sparklog.errors import (
    ConcurrentTransactionsError,
    IllegalStateError,
    InvalidArgumentError,
    ProducerFencedError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.append import TopicWriter
from sparklog.log.catch_up import catch_up
from sparklog.log.cluster import Cluster
from sparklog.log.data.object_paths import object_path
from sparklog.log.publishing import Marker, PublishResult, newest_marker
from sparklog.logs import about
from sparklog.parallel import parallel_results
from sparklog.paths import topic_table
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.retrying import Patience
from sparklog.txn.batches import is_committed
from sparklog.txn.entries import QueryBatch, TopicFiles, open_transaction_log
from sparklog.txn.session import TransactionSession

__all__ = ["UploadCommitter", "delete_uploads", "learn"]

_LOGGER = logging.getLogger("sparklog.txn")
_SESSION_TIMEOUT_MS = 900_000
"""``transaction_timeout_ms``: how long the commit of one batch may take, and a process be silent within one."""
_TAKEOVERS = 3
"""So often one commit takes the id back from other processes of its own holder."""
_CLEANUP_MS = 10_000


class UploadCommitter:
    """Commits under one transactional id. Owned by one thread at a time.

    Kept between batches it costs, beside the topics' commits, two creates for each batch, and a GET for each topic.
    The first batch of a process begins an epoch, which finishes what an earlier process has left and fences it off.

    After an error other than one of the arguments make a new one: it looks at the log anew.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, *, holder: str = "") -> None:
        """Reads nothing yet. Raises ``InvalidArgumentError`` for an id that none may have.

        Args:
            holder: the same for all processes that commit for one driver, one after the other: they may take the id
                from each other. Empty: no other process commits for this driver.
        """
        self.transactional_id = transactional_id
        self.holder = holder
        self._cluster = cluster
        self._log = open_transaction_log(cluster, transactional_id)
        self._session: TransactionSession | None = None
        self._writers: dict[str, TopicWriter] = {}
        self._may_be_committed = False
        self._is_decided = False

    @property
    def may_be_committed(self) -> bool:
        """After an error: may the files be part of a decided transaction? Then they must stay."""
        return self._may_be_committed

    @property
    def is_decided(self) -> bool:
        """Is what the newest commit was for decided, though perhaps not visible everywhere yet?"""
        return self._is_decided

    def commit(
        self,
        topics: Mapping[str, TopicFiles],
        *,
        batch: QueryBatch | None = None,
        skip_older: bool = False,
        timeout_ms: float = 120_000,
    ) -> bool:
        """Make files readable in all topics, or in none.

        Args:
            topics: each with one file or more.
            batch: of a streaming query; committed once, however often it is tried.
            skip_older: a batch before the newest counts as committed, see
                :func:`~sparklog.txn.batches.is_committed`.
            timeout_ms: a commit that won is success however late.
        Returns:
            False: the batch was committed before, and these files are nowhere.
        Raises:
            IllegalStateError: a later batch of the query is committed, or the query has written to other topics.
            UnknownTopicOrPartitionError: a topic was deleted since its files were uploaded.
            TransactionTimedOutError: a file was uploaded so long ago that it may be swept, or is gone.
            ProducerFencedError: another driver has taken the id.
            KafkaTimeoutError: not decided, and it won't be; or decided, and not carried out everywhere
                (:attr:`is_decided`).
            CommitStateUnknownError: the same; or perhaps decided. For a query: run the batch again, and it is known.
            CorruptLogError, UnsupportedVersionError, StoreError.
        """
        if not topics or not all(named.files for named in topics.values()):
            raise IllegalStateError(f"a transaction of topics {sorted(topics)}: expected one file or more for each")
        clock = self._cluster.clock
        began = clock.ticks_ms()  # before the age of the files is looked at: the session bounds what comes after it
        deadline = Deadline(clock, began + timeout_ms)
        self._may_be_committed = self._is_decided = False
        with self._cluster.store.patience(Patience(deadline=deadline)):
            for _ in range(_TAKEOVERS):
                try:
                    return self._commit(topics, batch, skip_older, began_ticks_ms=began, deadline=deadline)
                except ProducerFencedError:
                    if not self._is_held_by_own():
                        raise
                    self._session = None
        raise ConcurrentTransactionsError(
            f"transactional id {self.transactional_id!r}: within one commit other processes of {self.holder!r} took it "
            f"{_TAKEOVERS} times"
        )

    def close(self) -> None:
        """Say that no transaction is open, and wait for maintenance that is under way. Errors of the store are logged:
        what is left says no more than that one may be open."""
        try:
            if self._session is not None:
                self._session.close()
                self._session.wait_for_maintenance()
        except SparklogError as error:
            _LOGGER.info("the marker of transactional id %r could not be deleted: %s", self.transactional_id, error)
        for writer in self._writers.values():
            writer.close()

    def _commit(
        self,
        topics: Mapping[str, TopicFiles],
        batch: QueryBatch | None,
        skip_older: bool,
        *,
        began_ticks_ms: float,
        deadline: Deadline,
    ) -> bool:
        if batch is not None and self._session is None and self._is_done(batch, skip_older):
            return False
        session = self._begun(deadline)
        if batch is not None and is_committed(session.batches, batch, skip_older=skip_older):
            return False
        # before the decision: what a topic got since then, it is asked (rule L5, opening)
        for topic, named in topics.items():
            self._check_topic(topic, named)
            self._writers[topic].check_uploads(named.files)
        known = {topic: self._writers[topic].version for topic in topics}
        session.begin(ticks_ms=began_ticks_ms)
        if session.is_marker_old():
            session.refresh_marker()
        try:
            used = [newest_marker(self._writers[topic].state, self.transactional_id) for topic in topics]
            marker = session.commit(topics, batch=batch, deadline=deadline, used=used)
        finally:
            self._may_be_committed = session.may_be_committed
        self._is_decided = True
        self._publish(topics, known, marker, deadline)
        try:
            session.complete(deadline=deadline)
        except SparklogError as error:  # all is done and readable: the next process completes it
            _LOGGER.info(
                "entry %d of transactional id %r could not be completed; another process does it: %s",
                marker.number,
                self.transactional_id,
                error,
            )
            self._session = None
        return True

    def _publish(
        self, topics: Mapping[str, TopicFiles], known: Mapping[str, int], marker: Marker, deadline: Deadline
    ) -> None:
        """Publish in all topics, side by side; an error of one hinders no other. Raises the first error once all were
        tried.

        Args:
            known: a version of each topic that was known before the decision.
        """

        def publish_in(topic: str) -> PublishResult:
            return self._writers[topic].publish(
                topics[topic].files, marker, known_version=known[topic], deadline=deadline
            )

        results = parallel_results(publish_in, topics)
        for topic, result in zip(topics, results, strict=True):
            if isinstance(result, PublishResult) and result.is_skipped:
                _LOGGER.warning(
                    "topic %s was deleted: records of a committed transaction are not stored",
                    topic,
                    extra=about(topic=topic),
                )
        for result in results:
            if isinstance(result, Exception):
                raise result

    def _begun(self, deadline: Deadline) -> TransactionSession:
        if self._session is None:
            session = TransactionSession(
                self._cluster, self.transactional_id, timeout_ms=_SESSION_TIMEOUT_MS, holder=self.holder
            )
            session.begin_epoch(deadline=deadline)
            self._session = session
        return self._session

    def _is_done(self, batch: QueryBatch, skip_older: bool) -> bool:
        """Is the batch committed, and carried out? Then there is nothing to take the id for: who did it may be at work,
        and the one that asks have slept. Raises ``IllegalStateError`` as :meth:`commit`."""
        newest, _ = self._log.open_newest()
        if newest is None or not newest.state.is_open:
            return False
        return is_committed(newest.batches, batch, skip_older=skip_older)

    def _is_held_by_own(self) -> bool:
        """Was the id taken by another process of the same driver? Spark hands batches to whichever is free."""
        newest, _ = self._log.open_newest()
        return bool(self.holder) and newest is not None and newest.header.holder == self.holder

    def _check_topic(self, topic: str, named: TopicFiles) -> None:
        """Open a topic, or learn what is new in it; raise unless the files can be published in it."""
        writer = self._writers.get(topic)
        if writer is not None and writer.topic_id == named.topic_id:
            learn(writer)
            if writer.state.unwritable is not None:
                raise writer.state.unwritable.with_traceback(None)
        else:
            writer = TopicWriter(self._cluster.topic_log(topic), topic, sync=True)
        if writer.topic_id != named.topic_id:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} with id {named.topic_id} was deleted while records were written to it"
            )
        self._writers[topic] = writer
        known = writer.head.partition_count
        for file in named.files:
            if not 0 <= file.partition < known:
                raise InvalidArgumentError(f"{file.path} is of partition {file.partition}; {topic!r} has {known}")


def learn(writer: TopicWriter) -> None:
    """Learn what others committed to a topic. One GET where nothing is new, eight and more otherwise.

    Raises ``UnknownTopicOrPartitionError`` once the topic was deleted."""
    try:
        is_new = bool(catch_up(writer.state, ahead=1))
    except PositionLost:
        is_new = True
    if is_new or writer.head.deleted:
        writer.refresh()


def delete_uploads(cluster: Cluster, paths: Mapping[str, list[str]]) -> None:
    """Delete files that no log will ever name; what the store refuses is left to the sweep of orphans.

    Args:
        paths: by topic, relative to its table.
    """
    doomed = [
        object_path(topic_table(topic), path) for topic, paths_of_topic in paths.items() for path in paths_of_topic
    ]
    patience = Patience(deadline=cluster.clock.deadline_in(_CLEANUP_MS))
    try:
        with cluster.store.patience(patience):
            cluster.store.delete(doomed)
    except SparklogError as error:
        _LOGGER.info("%d unused files could not be deleted and are orphans: %s", len(doomed), error)
