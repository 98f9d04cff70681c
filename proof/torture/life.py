"""One life of a process of a round: what it is told, what it writes down, when it ends."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

from proof.torture.plan import APP_ROLES, Planted, Role
from sparklog.errors import (
    CommitFailedError,
    ConcurrentTransactionsError,
    CorruptLogError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidArgumentError,
    InvalidPartitionsError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    NotATopicError,
    ObjectNotFoundError,
    ProducerFencedError,
    RebalanceInProgressError,
    SparklogError,
    StoreOutcomeUnknownError,
    StoreReplacedError,
    StoreUnavailableError,
    TopicAlreadyExistsError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from sparklog.log import Cluster, open_cluster
from sparklog.testing.history import Recorder

__all__ = ["DEFECT", "Life", "Place", "Told", "identify", "live", "read_notes"]

DEFECT = "defect"
"""Begins the note of what should never be."""
_EXCUSED = (
    CommitFailedError,
    ConcurrentTransactionsError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidPartitionsError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    ProducerFencedError,
    RebalanceInProgressError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
    TopicAlreadyExistsError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
"""Errors that kills and naps excuse; any other is a defect."""
_REPLACED = (
    CorruptLogError,
    NotATopicError,
    ObjectNotFoundError,
    StoreReplacedError,
    UnknownTopicOrPartitionError,
)
"""Errors that tell a client that its storage was exchanged; where it is, these are excused, too."""
_GOES_ON_S = 4.0
"""So long a client bears with these at most, in case what was there comes back."""
_LOOK_AGAIN_MS = 300.0


_CLIENTS_REPEAT_MS = 8_000
"""Longer than librdkafka waits for an answer (``socket.timeout.ms`` of six seconds at most)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a round is: the folder of its histories, and its cluster."""

    folder: Path
    root: str
    storage_options: Mapping[str, Any] | None = None
    trust_ms: int = 200
    """``tail_trust_ms`` of every process: so short that log entries may be deleted after ten times as long (rule L3),
    which is less than somebody sleeps."""
    pace: float = 1.0
    """How many times as long everybody rests, for a store that carries less."""

    gateways: tuple[str, ...] = ()
    """The addresses of its gateways."""
    is_exchanged: bool = False
    """Is what lies there exchanged? Then each life is recorded with the cluster that it found."""
    is_found_late: bool = False
    """… and may clients store records for a while, before they notice? Who has noticed ends then."""

    @property
    def log_retention_ms(self) -> int:
        """The youngest age of log entries that are deleted. Kafka's clients send a batch again whose answer was lost,
        and a gateway that was started since knows it by its entry."""
        return max(10 * self.trust_ms, _CLIENTS_REPEAT_MS if self.gateways else 0)

    @property
    def histories(self) -> Path:
        return self.folder / "history"

    @property
    def app_histories(self) -> Path:
        """Those of applications, which are judged by themselves; only a round with applications has the folder."""
        return self.histories / "apps"

    @property
    def database(self) -> Path:
        """SQLite's, of the applications."""
        return self.folder / "outbox.db"

    @property
    def notes(self) -> Path:
        return self.folder / "notes.txt"

    @property
    def errors(self) -> Path:
        """What the processes print."""
        return self.folder / "stderr.txt"

    def redirect_errors(self) -> None:
        """Let this process print its errors there, and with SIGUSR1 where each of its threads is."""
        os.dup2(os.open(self.errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)

    def cluster(self) -> Cluster:
        options = None if self.storage_options is None else dict(self.storage_options)
        return open_cluster(
            self.root, storage_options=options, tail_trust_ms=self.trust_ms, create=not self.is_exchanged
        )

    def of(self, cluster: Cluster) -> Place:
        """The place of the histories of who found this cluster."""
        return replace(self, folder=self.folder / cluster.cluster_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a process is told."""

    place: Place
    seed: int
    job: str
    number: int
    """Of the life, from 0 on."""
    role: Role
    planted: Collection[Planted] = ()
    is_sharing: bool = False
    """Does a producer share its topic with others, with group commit on?"""


class Life:
    """One life of a job."""

    def __init__(self, told: Told, *, is_final: bool = False) -> None:
        self.told = told
        self.name = f"{told.job}.{told.number}"
        self.draw = random.Random(f"{told.seed} {self.name}")
        self.is_final = is_final
        """Nobody else is at work any more: read to the end."""
        self.has_ended = False
        """A final life has read everything."""
        self.is_over = threading.Event()
        self._values = 0
        self._clients: Counter[str] = Counter()
        self._replaced_since: float | None = None
        self._notes = os.open(told.place.notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @cached_property
    def cluster(self) -> Cluster:
        return self._whatever_is_there() if self.told.place.is_exchanged else self.told.place.cluster()

    @cached_property
    def recorder(self) -> Recorder:
        place = self.told.place
        if place.is_exchanged:
            place = place.of(self.cluster)
            place.histories.mkdir(parents=True, exist_ok=True)
        folder = place.app_histories if self.told.role in APP_ROLES else place.histories
        return Recorder(self.name, path=folder / f"{self.name}.jsonl")

    def _whatever_is_there(self) -> Cluster:
        """The cluster that is in the place, as soon as there is one. Raises what opening it raised if it is over."""
        while True:
            try:
                cluster = self.told.place.cluster()
            except (InvalidArgumentError, *_EXCUSED, *_REPLACED) as error:
                self.note(f"not opened: {type(error).__name__}")
                if not self.goes_on():
                    raise
                self.rest(_LOOK_AGAIN_MS)
            else:
                self.note("opened", cluster.cluster_id)
                return cluster

    def goes_on(self) -> bool:
        return not self.is_over.is_set()

    def rest(self, ms: float) -> None:
        """For about so long, by the store's pace, or until it is over."""
        self.is_over.wait(ms * self.told.place.pace / 1_000)

    def value(self) -> str:
        """Of one more record."""
        self._values += 1
        return f"{self.name}:{self._values}"

    def client_name(self, kind: str) -> str:
        """Of one more client."""
        self._clients[kind] += 1
        return f"{kind}{self._clients[kind]}"

    def note(self, what: str, text: str = "") -> None:
        """Write down that something happened, in one piece."""
        os.write(self._notes, f"{what}\t{self.name}\t{' '.join(text.split())}\n".encode())

    def check_error(self, doing: str, error: SparklogError) -> None:
        """Note an error; as a defect where nothing excuses it."""
        kind = type(error).__name__
        is_replaced = self.told.place.is_exchanged and isinstance(error, _REPLACED)
        if is_replaced:
            self.note("replaced", f"{self.told.role.value} {doing}")
            self._bear_with_it()
        is_excused = isinstance(error, _EXCUSED) or is_replaced
        self.note(f"error {kind}" if is_excused else DEFECT, f"{doing}: {kind}: {error}")

    def hear(self, error: SparklogError) -> None:
        """A record wasn't stored, or nobody knows; note it where that is because the storage was exchanged."""
        if isinstance(error, _REPLACED):
            self.note("replaced", f"{self.told.role.value} sent")
            self._bear_with_it()

    def may_end_by(self, error: BaseException) -> bool:
        """Is it an error by which a life may end where its storage is exchanged? It is noted then."""
        excused = (*_EXCUSED, *_REPLACED) if self.has_opened else (InvalidArgumentError, *_EXCUSED, *_REPLACED)
        if not (self.told.place.is_exchanged and isinstance(error, excused)):
            return False
        self.note("replaced" if isinstance(error, _REPLACED) else "ended", f"{self.told.role.value}: {error!r}")
        return True

    @property
    def has_opened(self) -> bool:
        """Has it a cluster?"""
        return "cluster" in vars(self)

    def _bear_with_it(self) -> None:
        """Go on for a while, in case what was there comes back; then end, and another life opens what is there."""
        now = time.monotonic()
        since = self._replaced_since
        if since is None or now - since > 3 * _GOES_ON_S:
            self._replaced_since = since = now
        if self.told.place.is_found_late or now - since > _GOES_ON_S:
            self.is_over.set()

    def attempt(self, doing: str, act: Callable[[], object]) -> bool:
        """Do it; False: an error came of it that may come."""
        try:
            act()
        except SparklogError as error:
            self.check_error(doing, error)
            return False
        return True


def live(told: Told, role: Callable[[Life], None]) -> None:
    """What a process runs: its role, until it is done, is told to end by SIGTERM, or dies.

    With SIGUSR1 it tells where each of its threads is.
    """
    life = Life(told)

    def end(signum: int, frame: FrameType | None) -> None:
        life.is_over.set()

    signal.signal(signal.SIGTERM, end)
    # A handler runs wherever the main thread is. If that is a function in C that has just failed, such as one of
    # confluent-kafka, the handler fails, and the function by SystemError. So a thread waits for the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_wait_for_the_end, args=(life,), daemon=True).start()
    told.place.redirect_errors()
    began = time.monotonic()
    try:
        role(life)
    except BaseException as error:  # whatever it is, it is told of before the process ends by it
        if not life.may_end_by(error):
            life.note(DEFECT, f"ended by {type(error).__name__}: {error}")
            print(f"--- {life.name}, after {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
            raise
        time.sleep(_LOOK_AGAIN_MS / 1_000)
    if life.has_opened:
        life.recorder.close()


def _wait_for_the_end(life: Life) -> None:
    signal.sigwait({signal.SIGTERM})
    life.is_over.set()


def identify(key: Any, value: Any) -> str:
    """A record's name in the history: its value, or of a tombstone its key, which no other tombstone has."""
    text = key if value is None else value
    return text.decode() if isinstance(text, bytes) else str(text)


def read_notes(place: Place) -> tuple[Counter[str], list[str]]:
    """How often each thing was noted, and the defects."""
    counts: Counter[str] = Counter()
    defects = []
    lines = place.notes.read_text().splitlines() if place.notes.exists() else []
    for line in lines:
        what, who, text = line.split("\t")
        counts[what] += 1
        if what == DEFECT:
            defects.append(f"{who}: {text}")
    return counts, defects
