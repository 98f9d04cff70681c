"""The announced flushes of one writer: their numbers, their files, and what the log has made of them (rule L14,
announced uploads).

The thread that uploads claims numbers; the thread that commits notes every entry that the writer's state applies. Calls
no store.
"""

from __future__ import annotations

import enum
import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from sparklog.delta.actions import AddFile, Entry, SetTransaction
from sparklog.log.announced.names import MAX_AHEAD
from sparklog.log.announced.plan import OwnFlush
from sparklog.log.data.data_files import StagedFile
from sparklog.log.producer_state import announcer_app_id, new_producer_id
from sparklog.log.state import TopicState

__all__ = ["AnnouncedFlush", "Claim", "FlushState", "GroupWriting"]

_OWN_PATHS_KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The facts that the next announced flush of a writer states of itself."""

    announcer: int
    number: int
    known: int
    """The newest version that the writer has applied."""
    ahead: int
    """How far ``number`` is ahead of the newest number that was settled by then."""
    waits_for: frozenset[str] = frozenset()
    """Ordinary uploads before it that aren't settled, and that no other number stands for. The number before this one
    does, which nothing is uploaded under: others pass over none, so they leave the flush until its owner has settled
    that."""


class FlushState(enum.Enum):
    """The states of an announced flush."""

    UPLOADING = "its upload is under way"
    UPLOADED = "it isn't settled"
    GIVEN_UP = "it isn't settled, and the owner's next entry leaves it out"
    PUBLISHED = "it is in the log"
    WITHDRAWN = "an entry of its owner left it out: it is in no log, and never will be"
    SETTLED = "its number is settled; where its records are, isn't known"
    TAKEN_OVER = "its number was used by somebody else"


_UNSETTLED = (FlushState.UPLOADING, FlushState.UPLOADED, FlushState.GIVEN_UP)


@dataclass(slots=True, kw_only=True)
class AnnouncedFlush:
    """An announced flush. Changed by :class:`GroupWriting` alone."""

    announcer: int
    number: int
    files: list[list[StagedFile]]
    """For each part the files that hold its records, the newest last: each may be the one that is published."""
    ends_before: tuple[int, ...]
    """Log end offsets of before its upload; its records lie behind them."""
    order: int
    """Among all uploads of the writer, ordinary ones too."""
    state: FlushState = FlushState.UPLOADING
    waits_for: frozenset[str] = frozenset()
    """The ordinary uploads that a number without files stands for."""
    is_forgotten: bool = False
    base_offsets: tuple[int, ...] = ()
    """Once it is published: of each part."""
    version: int = -1
    """The entry that published it; -1 where it is known no more."""
    published: list[StagedFile] = field(default_factory=list)
    """The files that the log names."""

    @property
    def is_settled(self) -> bool:
        """Is it in the log, or never will be?"""
        return self.state not in _UNSETTLED

    @property
    def is_withdrawn(self) -> bool:
        """Has its owner given it up?"""
        return self.state in (FlushState.GIVEN_UP, FlushState.WITHDRAWN)

    @property
    def newest_files(self) -> list[StagedFile]:
        """The file of each part that its owner would publish."""
        return [names[-1] for names in self.files]

    def to_own(self) -> OwnFlush:
        """The facts that a decision has to know."""
        return OwnFlush(
            announcer=self.announcer,
            number=self.number,
            files=tuple(file.facts for file in self.newest_files),
            is_given_up=self.state is FlushState.GIVEN_UP,
        )

    def settle_if_named(self, bases: dict[str, int], version: int) -> None:
        """Note that it is published, if every part is among the paths with their base offsets."""
        named = [next((file for file in names if file.path in bases), None) for names in self.files]
        found = [file for file in named if file is not None]
        if named and len(found) == len(named):
            self.published, self.version = found, version
            self.base_offsets = tuple(bases[file.path] for file in found)
            self.state = FlushState.PUBLISHED


class GroupWriting:
    """The announced flushes of one :class:`~sparklog.log.append.TopicWriter`. Safe for two threads: one that uploads
    and one that commits."""

    def __init__(self, version: int) -> None:
        """``version``: the newest that the writer has applied."""
        self._lock = threading.Lock()
        self._version = version
        self._announcer: int | None = None
        """Drawn for the first flush that is announced: most writers never do."""
        self._announcers: set[int] = set()
        self._next_number = 0
        self._settled = -1
        self._is_stopped = False
        self._uploads = 0
        self._flushes: dict[str, AnnouncedFlush] = {}
        """By the path of each file that was announced, and that nobody has let go of; in the order of uploading."""
        self._own_paths: OrderedDict[str, float] = OrderedDict()

    @property
    def announcers(self) -> frozenset[int]:
        """The ids that this writer's flushes were announced under."""
        with self._lock:
            return frozenset(self._announcers)

    @property
    def own_paths(self) -> dict[str, float]:
        """The newest announced files of this writer, and the tick at which the upload of each began."""
        with self._lock:
            return dict(self._own_paths)

    # For the thread that uploads.

    def next_order(self) -> int:
        """The place of an upload that begins now among all of the writer."""
        with self._lock:
            self._uploads += 1
            return self._uploads

    def claim(self, ordinary: frozenset[str] = frozenset()) -> Claim | None:
        """The number of the next flush, and what is known now, as one value; None: too many aren't settled.

        Args:
            ordinary: the paths of ordinary uploads that aren't settled.
        """
        with self._lock:
            covered = frozenset().union(*(flush.waits_for for flush in self._each() if not flush.is_settled))
            waits_for = ordinary - covered
            if self._announcer is None:
                self._announcer = new_producer_id()
                self._announcers.add(self._announcer)
            number = self._next_number + bool(waits_for)
            ahead = number - self._settled
            if ahead > MAX_AHEAD:
                return None
            return Claim(
                announcer=self._announcer, number=number, known=self._version, ahead=ahead, waits_for=waits_for
            )

    def begin(
        self, claim: Claim, files: Sequence[StagedFile], *, ends_before: tuple[int, ...], began_ticks_ms: float
    ) -> bool:
        """Take the number of a claim, before the first of the flush's requests; False: it is another's by now, or
        :meth:`stop` was called."""
        with self._lock:
            is_next = claim.number == self._next_number + bool(claim.waits_for)
            if self._is_stopped or claim.announcer != self._announcer or not is_next:
                return False
            if claim.waits_for:
                self._uploads += 1
                self._flushes[f"{claim.announcer}/{claim.number - 1}"] = AnnouncedFlush(
                    announcer=claim.announcer,
                    number=claim.number - 1,
                    files=[],
                    ends_before=ends_before,
                    order=self._uploads,
                    state=FlushState.GIVEN_UP,
                    waits_for=claim.waits_for,
                    is_forgotten=True,
                )
            self._uploads += 1
            self._next_number = claim.number + 1
            flush = AnnouncedFlush(
                announcer=claim.announcer,
                number=claim.number,
                files=[[file] for file in files],
                ends_before=ends_before,
                order=self._uploads,
            )
            for file in files:
                self._flushes[file.path] = flush
                self._own_paths[file.path] = began_ticks_ms
            while len(self._own_paths) > max(_OWN_PATHS_KEPT, len(files)):
                self._own_paths.popitem(last=False)
            return True

    def end(self, path: str, *, is_uploaded: bool, is_refused: bool = False, ticks_ms: float) -> None:
        """Note that the upload of the flush of ``path`` has ended. One that failed, or was interrupted, may have been
        carried out, or may be yet: it is given up.

        Args:
            is_refused: a file of it was not written, nor will be: so nobody publishes it, and it has failed already.
        """
        with self._lock:
            flush = self._flushes[path]
            for names in flush.files:
                names[0] = StagedFile(facts=names[0].facts, batch=names[0].batch, uploaded_ticks_ms=ticks_ms)
            if flush.state is FlushState.UPLOADING:
                flush.state = FlushState.UPLOADED if is_uploaded else FlushState.GIVEN_UP
            flush.is_forgotten = flush.is_forgotten or is_refused

    # For any thread.

    def stop(self) -> bool:
        """Take no number from now on. May a flush be published that isn't by now?"""
        with self._lock:
            self._is_stopped = True
            return any(not (flush.is_settled or flush.is_forgotten) for flush in self._flushes.values())

    # For the thread that commits.

    @property
    def has_flushes(self) -> bool:
        """Is any announced flush remembered?"""
        return bool(self._flushes)

    def flush_of(self, path: str) -> AnnouncedFlush | None:
        """The flush that a file was announced with; None: with none that is remembered."""
        return self._flushes.get(path)

    def unsettled(self, *, ordinary: Collection[str] = (), appended: Collection[str] = ()) -> list[AnnouncedFlush]:
        """The flushes that aren't settled, oldest first, up to the first whose upload is under way, or before which an
        ordinary upload is that isn't settled.

        Args:
            ordinary: ordinary uploads that aren't settled.
            appended: those among them that are appended now.
        """
        with self._lock:
            found: list[AnnouncedFlush] = []
            for flush in self._each():
                is_blocked = any(path in ordinary and path not in appended for path in flush.waits_for)
                if flush.state is FlushState.UPLOADING or (is_blocked and not flush.is_settled):
                    break
                if not flush.is_settled:
                    found.append(flush)
            return found

    def give_up(self, flush: AnnouncedFlush) -> None:
        """Let the next entry of this writer leave a flush out, unless it is settled."""
        with self._lock:
            if not flush.is_settled:
                flush.state = FlushState.GIVEN_UP

    def replace(self, flush: AnnouncedFlush, part: int, file: StagedFile) -> None:
        """Publish a part under another name: its bytes were uploaded again."""
        with self._lock:
            flush.files[part].append(file)

    def forget(self, flush: AnnouncedFlush) -> None:
        """Let go of a flush, for which nobody asks any more: one that isn't settled is given up."""
        with self._lock:
            flush.is_forgotten = True
            if not flush.is_settled:
                flush.state = FlushState.GIVEN_UP
            self._drop_forgotten()

    def note_entry(self, entry: Entry) -> None:
        """Note an entry that the writer's state has applied, whoever created it."""
        with self._lock:
            self._version = max(self._version, entry.version)
            if not self._flushes and self._announcer is None:
                return
            self._look_for_paths(entry)
            settled = {a.app_id: a.version for a in entry.actions if isinstance(a, SetTransaction)}
            self._settle(settled, FlushState.TAKEN_OVER, FlushState.WITHDRAWN)
            self._drop_forgotten()

    def note_loaded(self, state: TopicState) -> None:
        """Note a topic that was loaded whole, since some entries can't be read any more. Absence of a file proves
        nothing: one may have been published and merged since."""
        if state.whole is None:
            return
        live = state.whole.index.by_path
        with self._lock:
            for entry in state.whole.tail:
                self._look_for_paths(entry)
            for flush in self._each():
                if not flush.is_settled:
                    paths = {file.path for names in flush.files for file in names}
                    bases = {path: live[path].base_offset for path in paths if path in live}
                    flush.settle_if_named({path: base for path, base in bases.items() if base is not None}, -1)
            self._version = max(self._version, state.position.version)
            settled = {app_id: txn.version for app_id, txn in state.transactions.items()}
            self._settle(settled, FlushState.SETTLED, FlushState.SETTLED)
            self._drop_forgotten()

    def _each(self) -> list[AnnouncedFlush]:
        return [*{id(flush): flush for flush in self._flushes.values()}.values()]

    def _look_for_paths(self, entry: Entry) -> None:
        if not self._flushes:
            return
        adds = [action for action in entry.actions if isinstance(action, AddFile)]
        bases = {add.path: add.partition_values.get("base_offset") for add in adds}
        numbered = {path: int(base) for path, base in bases.items() if base not in (None, "")}
        for flush in self._each() if numbered else ():
            if not flush.is_settled:
                flush.settle_if_named(numbered, entry.version)

    def _settle(self, settled: dict[str, int], unexpected: FlushState, given_up: FlushState) -> None:
        """Settle the flushes up to the greatest number by announcer that weren't found: those that were given up, and
        those that weren't."""
        is_taken_over = False
        for flush in self._each():
            newest = settled.get(announcer_app_id(flush.announcer), -1)
            if flush.number <= newest and not flush.is_settled:
                flush.state = given_up if flush.state is FlushState.GIVEN_UP else unexpected
                is_taken_over = is_taken_over or flush.state is FlushState.TAKEN_OVER
        newest = -1 if self._announcer is None else settled.get(announcer_app_id(self._announcer), -1)
        self._settled = max(self._settled, newest)
        if is_taken_over or newest >= self._next_number:
            self._take_new_announcer()

    def _take_new_announcer(self) -> None:
        """Somebody else uses this writer's numbers, as a copied machine does: nothing more is announced by them."""
        for flush in self._each():
            if not flush.is_settled and flush.state is not FlushState.UPLOADING:
                flush.state = FlushState.TAKEN_OVER
        self._announcer = None
        self._next_number, self._settled = 0, -1

    def _drop_forgotten(self) -> None:
        gone = [path for path, flush in self._flushes.items() if flush.is_forgotten and flush.is_settled]
        for path in gone:
            del self._flushes[path]
