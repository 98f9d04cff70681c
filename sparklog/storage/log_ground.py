"""The ground of a log: is what lies under its path still what this process has read (protocol rule L17, ground)?

A prefix may be emptied and used again, a bucket be made anew, a backup be put back, under a client whose own creates
keep its trust in the position young (rule L1, trust). So it looks beneath it, every ``tail_trust_ms`` however busy it
is, and before the first create after a silence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sparklog.errors import CommitStateUnknownError, StoreError, StoreReplacedError, StoreUnavailableError
from sparklog.storage.position import Checked, Position, PositionLost, ground_is_due, last_check

if TYPE_CHECKING:
    from sparklog.storage.entry_log import EntryLog

__all__ = [
    "check_follows",
    "check_ground",
    "check_place",
    "check_still_there",
    "delete_listed",
    "is_check_due",
    "no_log",
    "unknown_outcome",
    "verify_created",
]

_SUFFIX = ".json"
_ENTRY = re.compile(r"([0-9]{20})\.json")


def check_ground(log: EntryLog[Any], position: Position) -> Position:
    """Is the log still the one that was read: are the entry at ``position`` and the one of the check before the same,
    and is none missing between? A GET for each, a LIST for each 1,000 objects since then, and that of the cluster where
    it is due.

    Returns:
        The position, checked now; where nothing follows it yet, its anchor has moved to this check, too.
    Raises:
        PositionLost: no, or a cleanup has deleted since. The log as it is loaded anew decides: :func:`check_follows`.
        StoreReplacedError: the cluster is gone, or another one is there.
        CorruptLogError, UnsupportedVersionError, StoreError.
    """
    log.check_cluster()
    began = log.clock.ticks_ms()
    missing, beyond = _list_since(log, position)
    known = _known(log, position)
    for (version, token), entry in zip(known.items(), log.read_raw_entries([*known]), strict=True):
        if entry is None or entry[0].token != token:
            raise PositionLost(log.path_of(version))
    if not log.cleanup_marks:  # a cleanup without marks deletes in any order: of what lies behind, nothing is known
        missing = None
    if missing is None and beyond is not None and beyond > position.version + 1:  # its successor was deleted
        missing = position.version + 1
    # A listing isn't atomic: of what is created meanwhile, it may miss an entry and show a later one.
    if missing is not None and log.store.read_many([log.path_of(missing)])[0] is None:
        raise PositionLost(log.path_of(missing))
    return Position(
        version=position.version,
        token=position.token,
        # The newest entry is never deleted: of a log that went on, the listing shows an entry beyond.
        anchor_ticks_ms=began if beyond is None else position.anchor_ticks_ms,
        is_durable=position.is_durable,
        checked=Checked(position.version, position.token, began),
    )


def is_check_due(log: EntryLog[Any], position: Position, now_ticks_ms: float) -> bool:
    """Was the log's ground, or ``cluster.json``, last checked so long ago, or did the store say since then that there
    is no such bucket, so that there may be another by now? No request.

    ``cluster.json``, too: a log that was opened since it was compared may be the one of another cluster.
    """
    if ground_is_due(position, now_ticks_ms=now_ticks_ms, tail_trust_ms=log.tail_trust_ms):
        return True
    ground = log.store.ground
    if ground is None:
        return False
    is_doubtful = ground.doubted_ticks_ms >= last_check(position).ticks_ms
    return is_doubtful or ground.is_due(now_ticks_ms, tail_trust_ms=log.tail_trust_ms)


def _known(log: EntryLog[Any], position: Position) -> dict[int, str]:
    """The tokens of the entries that must be there as long as no cleanup says otherwise, by version."""
    before = last_check(position)
    known = {before.version: before.token} if log.cleanup_marks else {}
    known[position.version] = position.token
    return {version: token for version, token in known.items() if token}


def _list_since(log: EntryLog[Any], position: Position) -> tuple[int | None, int | None]:
    """The first version that a listing lacks from the newest check on to ``position``, and the first that it shows
    beyond that, to which it is read."""
    expected = max(log.first_version, last_check(position).version)
    missing: int | None = None
    beyond: int | None = None
    folder = log.folder
    for listed in log.store.list(folder, after=log.path_of(expected).removesuffix(_SUFFIX)):
        found = _ENTRY.fullmatch(listed.path, len(folder))
        if found is None:
            continue
        version = int(found[1])
        if version > position.version:
            beyond = version
            break
        if version > expected and missing is None:
            missing = expected
        expected = version + 1
    if expected <= position.version and missing is None:
        missing = expected
    return missing, beyond


def verify_created(log: EntryLog[Any], position: Position, token: str) -> None:
    """Verify ``position`` after a create that ended so late that this is due, and look whether the entry is there, too:
    since then another log may have been put there, or this one be put back, or set back. A LIST and two GETs then.

    Args:
        position: before the entry.
        token: of the entry.
    Raises:
        PositionLost: the log as it is loaded anew decides.
    """
    if not log.must_verify(position):
        return
    log.verify(position)
    created = log.read_entry(position.version + 1)
    if created is None or created.token != token:
        raise PositionLost(log.path_of(position.version + 1))


def grounded_again(log: EntryLog[Any], position: Position, confirm: Callable[[float], None]) -> Position:
    """The position, between attempts at the next entry: its ground, and what confirms that the entry may be created,
    checked where that is due. Where it may not, but its name is taken, nothing will be created: whose entry that is,
    the next attempt finds out. Raises as :func:`check_ground` and ``confirm``."""
    position = log.grounded(position)
    try:
        confirm(last_check(position).ticks_ms)
    except StoreError as error:
        if error.retriable or not log.store.exists(log.path_of(position.version + 1)):
            raise
    return position


def check_follows(log: EntryLog[Any], lost: Position, found: Position) -> None:
    """Does the log, opened anew at ``found`` because ``lost`` was lost, go on from there? Two GETs and a LIST at most.

    What was cleaned is followed by newer entries. A log that ends before what this process knew of it, or has another
    entry there that no cleanup explains, was set back, emptied or made again: whoever went on in it would give numbers
    and offsets a second time.

    Raises:
        StoreReplacedError: it doesn't.
        CorruptLogError, UnsupportedVersionError: the entry can't be read.
        StoreError.
    """
    if found.version < lost.version:
        raise (
            no_log(log, lost)
            if found.version < log.first_version
            else StoreReplacedError(
                f"the log {log.store.uri}/{log.folder} ends at entry {found.version}, but this process knows its entry "
                f"{lost.version}: it was set back to an older state"
            )
        )
    if lost.version < log.first_version:
        return
    if found.version == lost.version and found.token != lost.token:  # the newest entry is never cleaned
        raise _other_entry(log, lost.version, expected=lost.token, seen=found.token)
    if not log.cleanup_marks:
        return
    known = _known(log, lost)
    for (version, token), entry in zip(known.items(), log.read_raw_entries([*known]), strict=True):
        if entry is not None and entry[0].token != token and log.cleaned_below() <= version:
            raise _other_entry(log, version, expected=token, seen=entry[0].token)


def _other_entry(log: EntryLog[Any], version: int, *, expected: str, seen: str) -> StoreReplacedError:
    return StoreReplacedError(
        f"entry {version} of the log {log.store.uri}/{log.folder} is another one than this process knows (token "
        f"{seen}, expected {expected}): the log was deleted and made again, or set back to an older state"
    )


def no_log(log: EntryLog[Any], lost: Position) -> StoreReplacedError:
    """The error for a log that has no entry any more."""
    return StoreReplacedError(
        f"the log {log.store.uri}/{log.folder} is gone: it has no entry, but this process knows its entry "
        f"{lost.version}"
    )


def check_place(log: EntryLog[Any], position: Position) -> None:
    """Check that the log under this one's name is the one whose entry at ``position`` is known, and of this cluster.
    That there is an entry of a number proves nothing.

    Raises:
        StoreReplacedError: it isn't.
        PositionLost: rule L3, cleanup: what is known may have been deleted.
        CorruptLogError, UnsupportedVersionError, StoreError.
    """
    if log.store.ground is not None:
        log.store.ground.check()
    entries = {position.version: position.token}
    if log.foothold.known is not None:
        entries.setdefault(*log.foothold.known)
    for number, token in entries.items():
        if token:
            _check_known(log, number, token, is_own=number != position.version)


def check_still_there(log: EntryLog[Any], version: int, token: str) -> None:
    """Check, before something is deleted or written because of a listing, that the entry is still there by which that
    was planned: another log may have been put in its place since then, and the listing be of that one. Two GETs.

    Args:
        version: of the newest entry by which the plan was made, or of a later one.
        token: of that entry.
    Raises:
        StoreReplacedError: the entry isn't there any more.
        StoreUnavailableError: the entry was cleaned meanwhile: plan again.
        CorruptLogError, UnsupportedVersionError, StoreError.
    """
    try:
        check_place(log, Position(version=version, token=token, anchor_ticks_ms=0))
    except PositionLost as lost:
        raise StoreUnavailableError(
            f"{log.store.uri}/{log.folder} went on for so long that {lost} was cleaned: nothing was deleted; try again"
        ) from lost


def delete_listed(log: EntryLog[Any], version: int, token: str, paths: Iterable[str]) -> None:
    """Delete objects that a listing of the log, or of its table, showed, once :func:`check_still_there` has said so; no
    request where there are none. Raises as that, and nothing was deleted."""
    gone = tuple(paths)
    if gone:
        check_still_there(log, version, token)
        log.store.delete(gone)


def _check_known(log: EntryLog[Any], number: int, token: str, *, is_own: bool) -> None:
    found = log.read_entry(number)
    if found is not None and found.token == token:
        return
    is_cleaned = log.may_be_cleaned(number, is_there=found is not None)
    if is_cleaned and is_own:
        return  # nobody stands on it any more
    if is_cleaned:
        raise PositionLost(log.path_of(number))
    seen = "there is none" if found is None else "another one has its number"
    raise StoreReplacedError(
        f"another log is at {log.store.uri}/{log.folder.rstrip('/')} now: expected the entry {number} that this client "
        f"knows, {seen}"
    )


def unknown_outcome(path: str, error: StoreError) -> CommitStateUnknownError:
    """The error where attempts at an entry may be carried out yet (rule L2, unknown)."""
    return CommitStateUnknownError(
        f"timed out: whether {path} was or will be created is unknown; read the log back before anything else: {error}"
    )
