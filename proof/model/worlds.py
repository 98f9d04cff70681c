"""How much is let happen in each search, and which faults must be found once a rule is switched off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from proof.model import append_cleanup, ground, group_commit, numbering, sharing, transactions
from proof.model.append_cleanup import AppendCleanup
from proof.model.ground import GroundModel
from proof.model.group_commit import GroupCommit, Owner
from proof.model.numbering import Numbering
from proof.model.search import Found, Model, Violation, search
from proof.model.sharing import Sharing
from proof.model.transactions import Transactions

__all__ = [
    "APPENDS",
    "APPEND_FAULTS",
    "DEEP",
    "DEEPEST",
    "GROUND",
    "GROUND_FAULTS",
    "GROUP_COMMITS",
    "GROUP_COMMIT_FAULTS",
    "NUMBERING",
    "NUMBERING_FAULTS",
    "SHARING",
    "SHARING_FAULTS",
    "TRANSACTIONS",
    "TRANSACTION_FAULTS",
    "Fault",
    "World",
    "found",
    "model_of",
    "violation_of",
]

Bounds = (
    append_cleanup.Bounds
    | ground.Bounds
    | group_commit.Bounds
    | numbering.Bounds
    | sharing.Bounds
    | transactions.Bounds
)


@dataclass(frozen=True, slots=True)
class World:
    """One bounded search in which nothing may go wrong."""

    name: str
    bounds: Bounds
    max_depth: int
    least_states: int
    """Fewer would mean that the model has lost some of its steps."""

    def search(self, *without: str) -> Found[Any]:
        return search(model_of(self.bounds, *without), max_depth=self.max_depth)


@dataclass(frozen=True, slots=True)
class Fault:
    """Rules that are switched off, and the invariant that then breaks."""

    without: tuple[str, ...]
    broken: str
    """How its name begins."""
    bounds: Bounds
    alone: Sequence[str] = field(default=())
    """Of these rules each is enough without the others: two of them must be off."""
    is_slow: bool = False

    @property
    def name(self) -> str:
        return "+".join(self.without)


def model_of(bounds: Bounds, *without: str) -> Model[Any]:
    """The model that bounds are of, with some of its rules switched off."""
    if isinstance(bounds, append_cleanup.Bounds):
        return AppendCleanup(append_cleanup.Rules().without(*without), bounds)
    if isinstance(bounds, ground.Bounds):
        return GroundModel(ground.Rules().without(*without), bounds)
    if isinstance(bounds, group_commit.Bounds):
        return GroupCommit(group_commit.Rules().without(*without), bounds)
    if isinstance(bounds, numbering.Bounds):
        return Numbering(numbering.Rules().without(*without), bounds)
    if isinstance(bounds, sharing.Bounds):
        return Sharing(sharing.Rules().without(*without), bounds)
    return Transactions(transactions.Rules().without(*without), bounds)


def _appends(**bounds: Any) -> append_cleanup.Bounds:
    nothing: dict[str, Any] = {"appends": 1, "others": 0, "sleeps": 0, "faults": 0, "looks": 0, "gives_up": 0}
    return append_cleanup.Bounds(**{**nothing, **bounds})


def _transactions(**bounds: Any) -> transactions.Bounds:
    nothing: dict[str, Any] = {"helps": 0, "sleeps": 0}
    return transactions.Bounds(**{**nothing, **bounds})


TAIL = ("at the tail",)
_SLEEP = _appends(others=3, sleeps=1, places=TAIL)
_SLEEP_TWICE = _appends(others=3, sleeps=2, places=TAIL)
_LATE = _appends(others=2, sleeps=2, faults=1, gives_up=1, places=TAIL, tokens_return=True)
_OPEN = _appends(others=2, sleeps=1, places=("one behind", "opening"))
_LOOK = _appends(others=3, sleeps=1, looks=1, places=("one behind",))
_TROUBLE = _appends(appends=2, others=1, faults=1, gives_up=1, places=TAIL)
_RACE = _appends(others=1, faults=1, places=("one behind",))
_TWICE = _appends(others=3, sleeps=1, faults=1, looks=1, places=TAIL, tokens_return=True)

APPENDS = [
    World("sleeps and cleanup", _appends(others=3, sleeps=1), 7, 20_000),
    World("states that go", _SLEEP_TWICE, 7, 10_000),
    World("late requests behind states that are gone", _LATE, 7, 10_000),
    World("lost answers", _appends(appends=2, faults=1, gives_up=1, places=TAIL), 40, 5_000),
    World("tokens return", _TWICE, 6, 10_000),
]
TRANSACTIONS = [
    World("two sessions", _transactions(faults=1), 40, 3_000),
    World("recovery", _transactions(helps=1, faults=1), 12, 5_000),
    World("a day asleep", _transactions(days=1), 40, 6_000),
    World("a day asleep, with recovery", _transactions(helps=1, days=1), 11, 10_000),
]
_number = numbering.Bounds
_CLEANED_NUMBERS = _number(under_way=1, moves=1, deaths=1, faults=1, cleanings=1)
NUMBERING = [
    World("a producer that moves", _number(batches=3, moves=2), 40, 2_000),
    World("gateways that die", _number(moves=1, deaths=1), 40, 500),
    World("lost answers and late creates", _number(moves=1, faults=1, gives_up=1), 40, 1_300),
    World("epochs that are given up", _number(moves=1, epochs=2), 40, 5_000),
    World("a batch whose entry was cleaned away", _CLEANED_NUMBERS, 40, 3_000),
]
_TWO_AND_ONE = (Owner(flushes=2), Owner())
_TWO_AND_LATE = (Owner(flushes=2), Owner(is_open=False))
_group = group_commit.Bounds
GROUP_COMMITS = [
    World("owners give up", _group(_TWO_AND_ONE, faults=1, gives_up=1), 40, 11_000),
    World("includers that opened late", _group(_TWO_AND_LATE, others=1, forgets=1), 40, 21_000),
    World("a week, and a sweep", _group(faults=1, weeks=1, sweeps=1), 40, 14_000),
    World("a topic made anew", _group(_TWO_AND_LATE, anew=1, faults=1), 40, 13_000),
    World("acks=1 and acks=all", _group((Owner(acks_all=True), Owner(flushes=2)), faults=1, gives_up=1), 40, 11_000),
    World("flushes of two parts", _group(parts=2, faults=1, gives_up=1), 40, 1_800),
    World("ordinary names first", _group((Owner(3), Owner()), ordinary=1), 40, 3_000),
    World("torn listings", _group((Owner(2), Owner(2)), is_listing_torn=True, overlaps=1), 40, 8_500),
    World("lost positions", _group(_TWO_AND_ONE, loads=1, faults=1, gives_up=1), 40, 23_000),
    World("an announcer that lies", _group(is_lied_to=True), 40, 50),
]
_replaced = ground.Bounds
_EMPTY = _replaced(entries=0, acts=("emptied", "another"), ticks=2)
_PUT_BACK = _replaced(appends=2, looks=1, ticks=2, comes_back=True)
_FOLDER = _replaced(is_folder=True, comes_back=True)
GROUND = [
    World("a prefix that is exchanged", _replaced(appends=2, looks=1), 40, 30_000),
    World("a prefix that is exchanged and put back", _PUT_BACK, 40, 15_000),
    World("the prefix of an empty log that is exchanged", _EMPTY, 40, 25_000),
    World("a folder that is exchanged", _FOLDER, 40, 50_000),
]
_share = sharing.Bounds
_CLEANED = _share(records=2, cleanings=1, faults=1)
SHARING = [
    World("three members", _share(members=3, records=2), 40, 10_000),
    World("locks end", _share(entries=8, ticks=4), 40, 10_000),
    World("locks end, two records", _share(records=2, entries=5, ticks=2), 40, 8_000),
    World("a share group's lost answers", _share(records=2, entries=5, faults=1, gives_up=1), 40, 20_000),
    World("locks are renewed", _share(ticks=2, renews=True), 40, 10_000),
    World("who sleeps while a share group's log is cleaned", _share(entries=8, cleanings=2, ticks=2), 40, 7_000),
    World("a lost answer that was cleaned", _CLEANED, 9, 50_000),
    World("a share group's topic made anew", _share(anew=2), 40, 25_000),
]
DEEPEST = [
    World("sleeps and cleanup", _appends(others=3, sleeps=1), 16, 500_000),
    World("looks, lost answers, sleeps", _appends(others=3, sleeps=1, faults=1, looks=1, places=TAIL), 10, 250_000),
    World("two sleeps", _appends(others=3, sleeps=2), 8, 180_000),
    World("lost answers", _appends(appends=2, others=1, faults=1, gives_up=1), 40, 250_000),
    World("tokens return", _TWICE, 9, 180_000),
    World("recovery and lost answers", _transactions(helps=1, faults=1), 40, 100_000),
    World("bursts after a rest", _transactions(helps=1, sleeps=2, bursts=2), 11, 180_000),
    World("a day, an hour, lost answers", _transactions(sleeps=1, days=1, faults=1), 40, 400_000),
    World("a day, with recovery", _transactions(helps=1, days=1, faults=1), 14, 250_000),
    World("three owners", _group((Owner(), Owner(), Owner()), faults=1, gives_up=1), 40, 145_000),
    World("late includers, many others", _group(_TWO_AND_LATE, others=2, forgets=1), 40, 150_000),
    World("late includers, long uploads", _group(_TWO_AND_LATE, others=1, forgets=1, overlaps=1), 40, 64_000),
    World("two and two flushes", _group((Owner(2), Owner(2)), overlaps=2, gives_up=1), 40, 52_000),
    World("a producer that moves, lost answers", _number(batches=3, moves=2, faults=1, gives_up=1), 40, 30_000),
    World("batches under way at gateways that die", _number(3, 3, moves=2, deaths=1), 40, 26_000),
    World("epochs and lost answers", _number(moves=1, epochs=2, faults=1, gives_up=1), 40, 120_000),
    World("more flushes of two parts", _group(_TWO_AND_ONE, parts=2, faults=1, gives_up=1), 40, 35_000),
    World("two flushes with acks=all", _group((Owner(2, acks_all=True), Owner(2)), faults=1), 40, 30_000),
    World("locks end, lost answers", _share(entries=5, ticks=2, faults=1), 40, 50_000),
    World("locks end, cleaned, lost answers", _share(ticks=2, faults=1, cleanings=1), 40, 190_000),
    World("more renewals", _share(entries=7, ticks=3, renews=True), 40, 95_000),
    World("two records, three ticks", _share(records=2, ticks=3), 40, 175_000),
    World("a topic made anew, and time", _share(anew=1, ticks=2), 40, 95_000),
    World("more of a lost answer that was cleaned", _CLEANED, 11, 200_000),
    World("a week, gives up", _group(faults=1, weeks=1, sweeps=1, gives_up=1), 40, 47_000),
    World("more of a prefix that is exchanged", _replaced(), 40, 300_000),
    World("more of a prefix that is put back", _replaced(comes_back=True), 40, 600_000),
    World("a week, lost positions", _group(weeks=1, sweeps=1, faults=1, loads=1, gives_up=1), 40, 98_000),
]
"""All that can happen, or as much as a minute is enough for."""
_DEPTHS = {
    "looks, lost answers, sleeps": (9, 150_000),
    "two sleeps": (7, 80_000),
    "lost answers": (14, 140_000),
    "tokens return": (8, 90_000),
    "recovery and lost answers": (40, 100_000),
    "bursts after a rest": (10, 80_000),
    "a day, an hour, lost answers": (16, 80_000),
    "a day, with recovery": (12, 100_000),
    "a producer that moves, lost answers": (40, 30_000),
    "more flushes of two parts": (40, 35_000),
    "a week, gives up": (40, 47_000),
}
DEEP = [
    replace(world, max_depth=_DEPTHS[world.name][0], least_states=_DEPTHS[world.name][1])
    for world in DEEPEST
    if world.name in _DEPTHS
]
"""Those of ``DEEPEST`` that don't take gigabytes, as deep as takes some seconds each."""

APPEND_FAULTS = [
    Fault(("verify",), "an acknowledged append is in the log", _SLEEP),
    Fault(("verify_afterwards",), "an acknowledged append is in the log", _SLEEP),
    Fault(("anchor_at_tail",), "an acknowledged append is in the log", _LOOK),
    Fault(("check_opening",), "the log never forks", _OPEN),
    Fault(("read_token",), "an acknowledged append is in the log", _RACE),
    Fault(("settle_unknown",), "what failed isn't in the log", _TROUBLE),
    Fault(
        ("new_producer_id", "own_bytes"),
        "an acknowledged append is in the log",
        _TROUBLE,
        alone=("new_producer_id", "own_bytes"),
    ),
    Fault(("counter",), "no append is in the log twice", _SLEEP),
    Fault(("stall",), "no append is in the log twice", _SLEEP_TWICE),
    Fault(("decide_again",), "offsets are dense and never given twice", _RACE),
    Fault(("mark",), "an acknowledged append is in the log", _SLEEP),
    Fault(("mark_first",), "an acknowledged append is in the log", _SLEEP),
    Fault(("below_checkpoint",), "whoever opens the log reads all that was committed", _SLEEP),
    Fault(("store_times",), "an acknowledged append is in the log", _SLEEP),
    Fault(("successor_age",), "the log never forks", _OPEN),
]
TRANSACTION_FAULTS = [
    Fault(("verify",), "nothing is visible that wasn't decided", _transactions(days=1)),
    Fault(("verify_by_listing",), "nothing is visible that wasn't decided", _transactions(days=1)),
    Fault(("read_token",), "nothing is visible that wasn't decided", _transactions(faults=1)),
    Fault(("marker",), "output and offsets are in step", _transactions()),
    Fault(("exact_number",), "no transaction is half committed", _transactions()),
    Fault(("decide_first",), "output and offsets are in step", _transactions()),
    Fault(("publish_first",), "an offset counts once its output is visible", _transactions()),
    Fault(("topic_before_group",), "an offset counts once its output is visible", _transactions()),
    Fault(("decide_then_publish",), "nothing is visible that wasn't decided", _transactions()),
    Fault(("no_way_back",), "what was told to be aborted isn't committed", _transactions(faults=1)),
    Fault(("fence",), "a fenced session commits nothing", _transactions(transactions=2)),
    Fault(("finish_first",), "no transaction is half committed", _transactions()),
    Fault(("carry_out_first",), "an offset counts once its output is visible", _transactions()),
    Fault(("stamp",), "output and offsets are in step", _transactions()),
    Fault(("in_place",), "output and offsets are in step", _transactions(days=1)),
    Fault(("newest_by_listing",), "nothing is visible that wasn't decided", _transactions(days=1)),
    Fault(("check_opening",), "nothing is visible that wasn't decided", _transactions(helps=1, days=1)),
    Fault(("successor_age",), "nothing is visible that wasn't decided", _transactions(helps=1, sleeps=1, bursts=1)),
]
_SWEPT = _group(weeks=1, sweeps=1)
_ALL_AND_ONE = _group((Owner(acks_all=True), Owner()))
GROUP_COMMIT_FAULTS = [
    Fault(("number",), "no flush is in the log twice", _group((Owner(), Owner(flushes=2)))),
    Fault(("no_gaps",), "no flush is passed over", _group(_TWO_AND_ONE, overlaps=1)),
    Fault(("claim",), "no flush is passed over", _group(_TWO_AND_ONE, overlaps=1)),
    Fault(("knowledge",), "no flush is in the log twice", _group((Owner(), Owner(is_open=False)), others=1)),
    Fault(("complete",), "a flush is published whole", _group(parts=2)),
    Fault(("topic",), "records are in the topic", _group((Owner(), Owner(is_open=False)), anew=1)),
    Fault(("counts",), "offsets are dense and never given twice", _group(is_lied_to=True)),
    Fault(("age",), "what is published is there", _SWEPT),
    Fault(("age_again",), "what is published is there", _SWEPT),
    Fault(("store_time",), "what is published is there", _SWEPT),
    Fault(("sweep_entry",), "what is published is there", _group(weeks=1, sweeps=1, faults=1)),
    Fault(("decide_again",), "offsets are dense and never given twice", _group(faults=1)),
    Fault(("withdraw_first",), "what failed isn't in the log", _group(gives_up=1)),
    Fault(("withdraw_by_entry",), "what is published is there", _group(gives_up=1)),
    Fault(("failed_upload",), "what failed isn't in the log", _group(faults=1)),
    Fault(("absence",), "what failed isn't in the log", _group(loads=1)),
    Fault(("same_number",), "no flush is in the log twice", _group(gives_up=1)),
    Fault(("ordinary_numbers",), "no flush is passed over", _group(_TWO_AND_ONE, ordinary=1)),
    Fault(("order",), "no flush is passed over", _group(_TWO_AND_ONE)),
    Fault(("sync_included",), "what acks=all acknowledged survives a power loss", _ALL_AND_ONE),
    Fault(("sync_found",), "what acks=all acknowledged survives a power loss", _ALL_AND_ONE),
]

_BEGINNING = ("behind_the_first", "from_zero")
NUMBERING_FAULTS = [
    Fault(("at_each_create",), "no batch is stored twice", _number(moves=1)),
    Fault(("load",), "no batch is stored twice", _number(moves=1, faults=1)),
    Fault(("tail_before_refusing",), "the next batch is never refused", _number(batches=3, moves=2)),
    Fault(_BEGINNING, "what is acknowledged follows all before it", _number(gives_up=1), alone=_BEGINNING),
    Fault(("recent",), "the next batch is never refused", _number(batches=3, moves=2, gives_up=1)),
    Fault(("stored_before",), "the next batch is never refused", _CLEANED_NUMBERS),
    Fault(("old_epochs",), "an epoch that is over stores nothing", _number(epochs=2)),
    Fault(("epoch_from_zero",), "what is acknowledged follows all before it", _number(epochs=2, gives_up=1)),
    Fault(("unannounced",), "no batch is stored twice", _number(moves=1)),
]
SHARING_FAULTS = [
    Fault(("lock",), "an acknowledgement counts for its own delivery", _share(ticks=2)),
    Fault(("count",), "no record is delivered more often than is allowed", _share()),
    Fault(("archive",), "no record is delivered more often than is allowed", _share()),
    Fault(("show_afterwards",), "what is shown is locked for whom it is shown to", _share()),
    Fault(("settle_unknown",), "what was refused wasn't acknowledged", _share(faults=1, gives_up=1)),
    Fault(("cleaned_unknown",), "what was refused wasn't acknowledged", _CLEANED),
    Fault(("read_token",), "what is shown is locked for whom it is shown to", _share(faults=1)),
    Fault(("whole_duration",), "no lock is taken back before its time", _share()),
    Fault(("renewed_lock",), "no lock is taken back before its time", _share(ticks=2, renews=True)),
    Fault(("decide_again",), "nobody acquires what another has", _share()),
    Fault(("verify",), "what is shown is locked for whom it is shown to", _share(cleanings=1)),
    Fault(("topic_afterwards",), "what was acknowledged is never delivered again", _share(anew=1)),
]
GROUND_FAULTS = [
    Fault(("check_first",), "nothing is stored in another's log", _replaced()),
    Fault(("check_afterwards",), "no acknowledged record is lost", _replaced()),
    Fault(("made",), "nothing is stored in another's log", _replaced()),
    Fault(("check_always",), "nothing is stored in another's log", _replaced()),
    Fault(("cluster",), "nothing is stored in another's log", replace(_EMPTY, looks=0)),
    Fault(("token",), "no reader is silent", _replaced()),
    Fault(("since_last_check",), "nothing is stored in another's log", _replaced(looks=0)),
    Fault(("no_gap",), "nothing is stored in another's log", _replaced(looks=0)),
    Fault(("readers_check",), "no reader is silent", _replaced()),
    Fault(("topic_id",), "nobody goes on behind another's entry", _replaced()),
    Fault(("held",), "no acknowledged record is lost", _FOLDER),
    Fault(("compare",), "nothing is stored after a folder was exchanged", _FOLDER),
]


@cache
def found(fault: Fault) -> Found[Any]:
    """The search that finds a fault."""
    return World(fault.name, fault.bounds, 16, 0).search(*fault.without)


def violation_of(name: str, faults: Sequence[Fault]) -> Violation:
    """The shortest way to the fault of that name. Raises ``LookupError`` where there is none."""
    for fault in faults:
        if fault.name == name and (violation := found(fault).violation) is not None:
            return violation
    raise LookupError(name)
