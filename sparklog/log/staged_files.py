"""Files of an append before its commit: they get names, are uploaded, and are checked to be this writer's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparklog.delta.log import DeltaLog
from sparklog.errors import IllegalStateError
from sparklog.log.announced.writing import GroupWriting
from sparklog.log.data.data_files import StagedFile, UploadedFile
from sparklog.log.data.encode import EncodedBatch
from sparklog.log.data.object_paths import object_path
from sparklog.paths import new_data_file

__all__ = ["check_appendable", "put_staged", "stage_encoded", "upload_encoded"]


def stage_encoded(
    log: DeltaLog, batches: Sequence[tuple[int, EncodedBatch]], *, topic_version: int
) -> list[StagedFile]:
    """Name batches of (partition, records) before their upload. ``topic_version``: one that is known now."""
    now_ms, began = log.clock.now_ms(), log.clock.ticks_ms()
    return [
        StagedFile(
            facts=UploadedFile.of(
                new_data_file(partition),
                partition,
                batch,
                uploaded_ms=now_ms,
                topic_version=topic_version,
                staged_ticks_ms=began,
            ),
            batch=batch,
            uploaded_ticks_ms=began,
        )
        for partition, batch in batches
    ]


def upload_encoded(
    log: DeltaLog, batches: Sequence[tuple[int, EncodedBatch]], *, topic_version: int, sync: bool
) -> list[StagedFile]:
    """Upload batches of (partition, records) under fresh names.

    Args:
        topic_version: one that is known now.
        sync: fsync them.
    Raises:
        StoreError.
    """
    files = stage_encoded(log, batches, topic_version=topic_version)
    put_staged(log, files, sync=sync)
    ended = log.clock.ticks_ms()
    return [file.uploaded(ended) for file in files]


def put_staged(log: DeltaLog, files: Sequence[StagedFile], *, sync: bool) -> None:
    """Upload files under the names that they have. ``sync``: fsync them. Raises ``StoreError``."""
    log.store.put_many({object_path(log.table, file.facts.path): file.batch.data for file in files}, sync=sync)


def check_appendable(
    files: Sequence[StagedFile], *, topic: str, writing: GroupWriting, staged: Mapping[str, int]
) -> None:
    """Raises ``IllegalStateError`` unless each file is there once, and isn't appended or withdrawn.

    Args:
        staged: ordinary uploads that aren't settled.
    """
    paths = [file.facts.path for file in files]
    unknown, withdrawn = [], []
    for path in paths:
        flush = writing.flush_of(path)
        if flush is None and path not in staged:
            unknown.append(path)
        elif flush is not None and flush.is_withdrawn:
            withdrawn.append(path)
    if not files or unknown or withdrawn or len(set(paths)) < len(paths):
        raise IllegalStateError(
            f"append to {topic!r} of {unknown or withdrawn or paths}: expected one or more files that this "
            "writer uploaded, each once, and hasn't appended or withdrawn; after CommitStateUnknownError they may "
            "be in the log already"
        )
