"""The driver's side of the sink: it commits the files that tasks have uploaded, once.

A micro-batch of a stream is one transaction, named by the query and the batch's number. A batch query is one commit
where it wrote to one topic, and one transaction of an id of its own where it wrote to several. A batch query that its
application has numbered is one transaction, carried out once.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from sparklog.errors import CommitStateUnknownError, SparklogError, UnknownTopicOrPartitionError
from sparklog.log.announced.plan import OwnFlush
from sparklog.log.append import TopicWriter
from sparklog.log.append_plan import plan_append
from sparklog.log.cluster import Cluster
from sparklog.log.commit import Commit, UploadedSince, commit
from sparklog.log.data.data_files import UploadedFile
from sparklog.log.maintenance import Checkpoints
from sparklog.log.producer_state import ProducerEntry, new_producer_id
from sparklog.log.state import TopicState
from sparklog.log.uploads import check_uploads
from sparklog.spark.sink.sink_options import NumberedWrite
from sparklog.spark.sink.sink_writing import TaskFiles, withdraw
from sparklog.storage.retrying import Patience
from sparklog.txn.committing import UploadCommitter
from sparklog.txn.entries import BatchTarget, QueryBatch, TopicFiles

__all__ = ["QueryRun", "commit_batch", "commit_job", "commit_numbered", "gathered", "small_files"]

_LOGGER = logging.getLogger("sparklog.spark")
TIMEOUT_MS = 120_000
"""The time-out of a commit. Source: Kafka's ``delivery.timeout.ms``."""
_MANY_FILES = 8
"""For each partition that a job wrote to, on average."""
_SMALL_FILE_BYTES = 4 * 2**20
"""An average file of so much is no small one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRun:
    """A streaming query, and one run of it, as Spark names them."""

    query_id: str
    """The query's id, the same as long as its checkpoint is there."""
    run_id: str
    """From one start to the next."""


def gathered(uploads: Iterable[TaskFiles]) -> dict[str, TopicFiles]:
    """The files of all tasks, by topic, in the order of tasks.

    Raises ``UnknownTopicOrPartitionError`` where a topic was deleted and created again between two tasks."""
    files: dict[str, list[UploadedFile]] = {}
    ids: dict[str, str] = {}
    for upload in uploads:
        if ids.setdefault(upload.topic, upload.topic_id) != upload.topic_id:
            raise UnknownTopicOrPartitionError(
                f"topic {upload.topic!r} was deleted and created again while records were written to it"
            )
        files.setdefault(upload.topic, []).extend(upload.files)
    return {topic: TopicFiles(topic_id=ids[topic], files=tuple(found)) for topic, found in files.items() if found}


def commit_batch(
    committer: UploadCommitter, run: QueryRun, batch_id: int, uploads: Iterable[TaskFiles], *, topic: str | None
) -> bool:
    """Commit a micro-batch: all of it in all of its topics, once. False: it was there already.

    Raises as :meth:`UploadCommitter.commit`. Whatever is raised: the same query with the same checkpoint may be started
    again, and goes on where it was.

    Args:
        topic: the option; None: each row names its topic.
    """
    topics = gathered(uploads)
    if not topics:
        return True
    batch = QueryBatch(query_id=run.query_id, batch_id=batch_id, target=_target(topic, topics))
    is_new = committer.commit(topics, batch=batch, timeout_ms=TIMEOUT_MS)
    if not is_new:
        _LOGGER.info("micro-batch %d of query %s is committed already", batch_id, run.query_id)
    return is_new


def commit_numbered(
    cluster: Cluster,
    committer: UploadCommitter,
    write: NumberedWrite,
    uploads: Iterable[TaskFiles],
    *,
    topic: str | None,
) -> bool:
    """Commit a batch write that its application has numbered, once. False: it was there already, or one with a greater
    number, and the files of this one are deleted.

    Args:
        committer: of the application's writes to this target, see :meth:`NumberedWrite.transactional_id`.
        topic: the option; None: each row names its topic.
    Raises:
        As :meth:`UploadCommitter.commit`. Whatever is raised: the write may be repeated with the same number.
    """
    files = list(uploads)
    topics = gathered(files)
    if not topics:
        return True
    batch = QueryBatch(query_id=write.app_id, batch_id=write.version, target=_target(topic, topics))
    try:
        is_new = committer.commit(topics, batch=batch, skip_older=True, timeout_ms=TIMEOUT_MS)
    except CommitStateUnknownError:
        raise
    except SparklogError:
        if not committer.may_be_committed:
            withdraw(cluster, files)
        raise
    if not is_new:
        _LOGGER.info("txnVersion %d of txnAppId %r is committed already: skipped", write.version, write.app_id)
        withdraw(cluster, files)
    return is_new


def commit_job(cluster: Cluster, transactional_id: str | None, uploads: Iterable[TaskFiles]) -> None:
    """Commit what a batch query has written: all of it, or nothing.

    Args:
        transactional_id: None: none is needed for one topic, and a new one is made for several.
    Raises:
        CommitStateUnknownError: it is, or may be, committed: look before it is run again.
        SparklogError: nothing of it is committed; its files are deleted.
    """
    files = list(uploads)
    topics = gathered(files)
    if not topics:
        return
    if transactional_id is None and len(topics) == 1:
        [(topic, named)] = topics.items()
        try:
            _append(cluster, topic, named)
        except CommitStateUnknownError:
            raise
        except SparklogError:
            withdraw(cluster, files)
            raise
        return
    committer = UploadCommitter(cluster, transactional_id or f"spark-job-{uuid.uuid4().hex}")
    try:
        committer.commit(topics, timeout_ms=TIMEOUT_MS)
    except SparklogError as error:
        if committer.is_decided:
            raise CommitStateUnknownError(
                f"transactional id {committer.transactional_id!r} has committed this job, but it isn't visible in all "
                f'of its topics yet; "sparklog transactions recover" makes it so. Don\'t run the job again: {error}'
            ) from error
        if isinstance(error, CommitStateUnknownError):
            raise
        if committer.may_be_committed:
            raise CommitStateUnknownError(
                f"whether transactional id {committer.transactional_id!r} has committed this job is unknown: {error}"
            ) from error
        withdraw(cluster, files)
        raise
    finally:
        committer.close()


def small_files(uploads: Iterable[TaskFiles]) -> str | None:
    """Says that a job wrote many small files for each partition, and what to do; None where it didn't."""
    files = [(upload.topic, file) for upload in uploads for file in upload.files]
    partitions = {(topic, file.partition) for topic, file in files}
    if len(files) <= _MANY_FILES * len(partitions):
        return None
    average_bytes = sum(file.size_bytes for _, file in files) // len(files)
    if average_bytes >= _SMALL_FILE_BYTES:
        return None
    return (
        f"{len(files)} files of {average_bytes // 1024} KiB on average for {len(partitions)} partitions: each task "
        "wrote a file for each partition that it has rows for. sparklog.spark.by_partition(frame, cluster, topic) "
        "brings the rows of a partition to one task, which writes one file"
    )


def _target(topic: str | None, topics: Iterable[str]) -> BatchTarget:
    return BatchTarget(topics=frozenset(topics)) if topic is None else BatchTarget(topic=topic)


def _append(cluster: Cluster, topic: str, named: TopicFiles) -> None:
    """An ordinary append by a producer id that is used once: its counter identifies it after a lost answer."""
    clock = cluster.clock
    deadline = clock.deadline_in(TIMEOUT_MS)
    producer_id, entry = new_producer_id(), ProducerEntry(producer_epoch=0, counter=0)
    tokens: set[str] = set()
    decided_on: TopicState

    def decide(now: TopicState) -> Commit | None:
        nonlocal decided_on
        decided_on = now
        planned = plan_append(
            now.head,
            now.producer(producer_id),
            [OwnFlush(announcer=None, number=0, files=tuple(named.files))],
            topic=topic,
            topic_id=named.topic_id,
            producer_id=producer_id,
            entry=entry,
            now_ms=clock.now_ms(),
        )
        return None if planned is None else planned.commit

    def check() -> bool:
        try:
            retention_ms = decided_on.head.deleted_file_retention_ms
            check_uploads(decided_on.log, named.files, decided_on.vacuums, retention_ms=retention_ms)
        except SparklogError as error:
            if tokens:
                raise CommitStateUnknownError(
                    f"whether an earlier attempt was carried out is unknown: {error}"
                ) from error
            raise
        return False

    with cluster.store.patience(Patience(deadline=deadline)):
        checkpoints = Checkpoints()
        decided_on = TopicWriter(cluster.topic_log(topic), topic, sync=True, checkpoints=checkpoints).state
        done = commit(
            decided_on,
            decide,
            tokens=tokens,
            deadline=deadline,
            sync=True,
            prepare=check,
            uploads=UploadedSince(-math.inf),  # by executors
        )
    checkpoints.after_commit(done.state)
    checkpoints.close()
