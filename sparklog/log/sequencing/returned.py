"""Files without offsets whose records had some already: another engine's ``RESTORE`` brought them back, to a version
before they were sequenced (rule F2, sequencing).

Their records keep their offsets: the copies that the sequencing commit published come back in place of the file, as far
as they aren't live. What the sequencing was is read from the log: a ``RESTORE`` needs the entries from the restored
version on, so the sequencing, which came later, was in the log as well. Where the copies are gone, the file is refused
by name: new offsets would let groups read its records twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sparklog.delta.actions import AddFile, Entry, RemoveFile
from sparklog.delta.removed import remaining_entries
from sparklog.log.commit import Commit
from sparklog.log.data.segments import Segment, SegmentIndex, segment_of_add
from sparklog.log.head import TopicHead, is_unsequenced
from sparklog.log.returning import Returning, prepare_return
from sparklog.log.state import TopicState

__all__ = ["SEQUENCED_INFO", "Returned", "plan_return", "returned_files", "with_copies"]

SEQUENCED_INFO = "sequenced"
"""In ``commitInfo.sparklog`` of a commit that sequences several files: by path of each, the paths of its copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A waiting file that was sequenced before."""

    segment: Segment
    delta_version: int
    """The version that sequenced it."""
    topic_id: str
    copies: tuple[AddFile, ...] | None
    """The copies that were published of it; None: it can't be told from other files' copies."""
    refused: str = ""
    """Why its records can't have their offsets again."""


def returned_files(state: TopicState, waiting: Sequence[Segment]) -> list[Returned]:
    """The waiting files that were sequenced before.

    A file that a commit of another engine added lately is looked for only if that commit is a ``RESTORE``, or removed
    files with offsets; of older ones nobody knows. Costs nothing where there is none to look for, else what reading the
    log costs.
    """
    doubtful = _doubtful(state, waiting)
    if not doubtful:
        return []
    sequenced: dict[str, Entry] = {}
    added: dict[str, dict[int, Entry]] = {}
    for entry in remaining_entries(state.log, state.position.version):
        is_sequencing = entry.info is not None and entry.commit_info.get("operation") == "SEQUENCE"
        for action in entry.actions:
            if isinstance(action, AddFile) and action.path in doubtful:
                added.setdefault(action.path, {})[entry.version] = entry
            if is_sequencing and isinstance(action, RemoveFile) and action.path in doubtful:
                sequenced[action.path] = entry  # the newest
    found = [_returned(doubtful[path], entry, {*doubtful}) for path, entry in sorted(sequenced.items())]
    for path, entries in sorted(added.items()):
        newest_entry = entries[max(entries)]
        if path not in sequenced and len(entries) == 1 and _is_restore(newest_entry):  # what came before was cleaned
            found.append(_unknown(doubtful[path], newest_entry))
    return found


def with_copies(state: TopicState, files: Sequence[Returned]) -> tuple[list[Returned], Returning]:
    """The files with the reason of each that can't come back, and the copies of the others, ready to be named."""
    index, head = state.require_whole().index, state.head
    wanted = [
        add
        for file in files
        if not _refusal(file, head)
        for add in file.copies or ()
        if add.path not in index.by_path and not _is_below_start(add, head)
    ]
    returning = prepare_return(state, wanted)
    return [replace(file, refused=_refusal(file, head) or _gone(file, returning)) for file in files], returning


def plan_return(
    head: TopicHead, index: SegmentIndex, files: Sequence[Returned], returning: Returning, *, now_ms: int
) -> tuple[Commit | None, Mapping[str, str]]:
    """Put the copies of files in their place; None where nothing is left to do. Pure.

    Returns:
        Also the path and the reason of each file that stays, as offsets of it are in other files now.
    """
    refused: dict[str, str] = {}
    removes: list[RemoveFile] = []
    adds: dict[str, AddFile] = {}
    for file in files:
        now = index.by_path.get(file.segment.path)
        if now is None or now.base_offset is not None or file.refused:
            continue
        mine = {
            add.path: returning.adds[add.path]
            for add in file.copies or ()
            if add.path in returning.adds and add.path not in index.by_path and not _is_below_start(add, head)
        }
        mine = {path: add for path, add in mine.items() if add.path not in index.by_path}
        taken = next((one for add in mine.values() for one in _in_the_way(index, add)), None)
        if taken is not None:
            refused[file.segment.path] = f"{_was(file)}, and {taken.path} has offsets of them now"
            continue
        adds.update(mine)
        path, values = file.segment.path, file.segment.partition_values()
        removes.append(
            RemoveFile(path=path, deletion_ms=now_ms, partition_values=values, size_bytes=file.segment.size_bytes)
        )
    if not removes:
        return None, refused
    after = replace(
        head,
        live_file_count=max(0, head.live_file_count + len(adds) - len(removes)),
        unsequenced_count=max(0, len(index.unsequenced()) - len(removes)),
    )
    return Commit(actions=[*removes, *adds.values()], head=after, operation="SEQUENCE"), refused


def _doubtful(state: TopicState, waiting: Sequence[Segment]) -> dict[str, Segment]:
    tail = {entry.version: entry for entry in state.require_whole().tail}
    found: dict[str, Segment] = {}
    for segment in waiting:
        version = segment.delta_version
        entry = (tail.get(version) or state.log.read_entry(version)) if version >= 0 else None
        if entry is None or _may_return(entry):
            found[segment.path] = segment
    return found


def _may_return(entry: Entry) -> bool:
    if _is_restore(entry):
        return True
    removed = (action for action in entry.actions if isinstance(action, RemoveFile))
    return any(action.partition_values.get("base_offset") not in (None, "") for action in removed)


def _is_restore(entry: Entry) -> bool:
    return entry.info is None and str(entry.commit_info.get("operation", "")).upper() == "RESTORE"


def _unknown(segment: Segment, entry: Entry) -> Returned:
    return Returned(
        segment=segment,
        delta_version=entry.version,
        topic_id="",
        copies=None,
        refused=f"version {entry.version}, a foreign RESTORE, brought it back, and the log doesn't tell any more "
        "whether its records had offsets before: UPDATE its rows, if they are to get new ones",
    )


def _returned(segment: Segment, entry: Entry, waiting: set[str]) -> Returned:
    adds = [action for action in entry.actions if isinstance(action, AddFile) and not is_unsequenced(action)]
    removed = {action.path for action in entry.actions if isinstance(action, RemoveFile)}
    told = (entry.info or {}).get(SEQUENCED_INFO)
    if isinstance(told, dict) and isinstance(told.get(segment.path), list):
        adds = [add for add in adds if add.path in told[segment.path]]
    is_known = isinstance(told, dict) or removed <= waiting
    return Returned(
        segment=segment,
        delta_version=entry.version,
        topic_id=str((entry.info or {}).get("topic_id")),
        copies=tuple(adds) if is_known else None,
    )


def _refusal(file: Returned, head: TopicHead) -> str:
    if file.refused:
        return file.refused
    if file.topic_id != head.topic_id:
        return f"{_was(file)}, of the topic with id {file.topic_id} that had this name"
    if file.copies is None:
        return f"{_was(file)} together with others that aren't back, and nothing tells its records from theirs"
    return ""


def _gone(file: Returned, returning: Returning) -> str:
    lost = [add.path for add in file.copies or () if add.path in returning.gone]
    return f"{_was(file)}, as {lost[0]}, which doesn't exist any more" if lost else ""


def _was(file: Returned) -> str:
    return (
        f"its records were given offsets by version {file.delta_version} already, so groups may have read them: it "
        "came back by another engine's RESTORE, and gets no offsets again"
    )


def _is_below_start(add: AddFile, head: TopicHead) -> bool:
    segment = segment_of_add(add, -1)
    partition = segment.partition or 0
    return partition >= head.partition_count or segment.last_offset < head.log_start_offsets[partition]


def _in_the_way(index: SegmentIndex, add: AddFile) -> Iterable[Segment]:
    segment = segment_of_add(add, -1)
    for one in index.from_offset(segment.partition or 0, segment.first_offset):
        if one.first_offset > segment.last_offset:
            break
        yield one
