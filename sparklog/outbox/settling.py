"""Settling rows: deleting or marking them, if and only if they are the rows that were sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from sparklog.outbox.errors import OutboxError
from sparklog.outbox.ids import Id, told_some
from sparklog.outbox.rows import Seen, digest_of, seen, selected
from sparklog.outbox.tables import PUBLISHED, OutboxTable

__all__ = ["Sent", "find_rows", "settle_rows"]

_IDS_AT_ONCE = 400
"""In one statement, which may name each twice: older SQLite takes 999 parameters."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Rows that were sent, as a relay recognises them."""

    columns: tuple[str, ...]
    """The columns of the digests."""
    digests: Sequence[tuple[Id, str]]
    """The id of each row, and the digest of its contents."""

    def __len__(self) -> int:
        return len(self.digests)

    def tell(self, found: Iterable[Seen]) -> tuple[list[Seen], list[Seen]]:
        """Divide rows that have these ids into those that were sent, and those that are other rows, or were changed."""
        left = Counter(self.digests)
        same: list[Seen] = []
        others: list[Seen] = []
        for row in found:
            known = (row.id, digest_of(row, self.columns))
            left[known] -= 1
            (same if left[known] >= 0 else others).append(row)
        return same, others


def find_rows(engine: Engine, outbox: OutboxTable, ids: Iterable[Id]) -> list[Seen]:
    """The rows with these ids that aren't settled. Raises what SQLAlchemy raises."""
    with engine.connect() as connection:
        found: list[Seen] = []
        for some in _in_pieces(outbox.ids.possible(ids)):
            is_one = outbox.ids.among(some, are_foreign=True)
            query = sa.select(*selected(outbox)).where(*is_one, *outbox.waiting)
            found += seen(outbox, connection.execute(query))
    return found


def settle_rows(engine: Engine, outbox: OutboxTable, sent: Sent, *, marks: bool) -> None:
    """Delete rows that were sent, or mark them: all of them, or none.

    Raises:
        OutboxError: one isn't there, or isn't as it was sent, or there are several of its id. Nothing is changed then.
        What SQLAlchemy raises: nobody knows whether they are settled.
    """
    settle = _mark if marks else _delete
    with engine.begin() as connection:
        found: list[Seen] = []
        changed = 0
        if marks and outbox.ids.dialect == "sqlite":  # nobody else writes between the query and the update
            connection.execute(sa.update(outbox.table).where(sa.false()).values({PUBLISHED: None}))
        for some in _in_pieces(id for id, _ in sent.digests):
            rows, count = settle(connection, outbox, some)
            found += rows
            changed += count
        same, others = sent.tell(found)
        if others or len(same) != len(sent) or changed != len(sent):
            raise OutboxError(_told(outbox, sent, same, others, changed, marks=marks))


def _delete(connection: Connection, outbox: OutboxTable, ids: Sequence[Id]) -> tuple[list[Seen], int]:
    """The rows that are deleted, and their number."""
    if not connection.dialect.delete_returning:
        return _locked(connection, outbox, ids, sa.delete(outbox.table))
    statement = sa.delete(outbox.table).where(*outbox.ids.among(ids), *outbox.waiting).returning(*selected(outbox))
    found = seen(outbox, connection.execute(statement))
    return found, len(found)


def _mark(connection: Connection, outbox: OutboxTable, ids: Sequence[Id]) -> tuple[list[Seen], int]:
    """The rows that are marked, as they were before, which a trigger may change; and their number."""
    statement = sa.update(outbox.table).values({PUBLISHED: sa.func.current_timestamp()})
    return _locked(connection, outbox, ids, statement)


def _locked(connection: Connection, outbox: OutboxTable, ids: Sequence[Id], change: Any) -> tuple[list[Seen], int]:
    conditions = [*outbox.ids.among(ids), *outbox.waiting]
    query = sa.select(*selected(outbox)).where(*conditions).with_for_update()
    found = seen(outbox, connection.execute(query))
    return found, connection.execute(change.where(*conditions)).rowcount


def _in_pieces(ids: Iterable[Id]) -> Iterable[list[Id]]:
    single = list(dict.fromkeys(ids))
    return (single[start : start + _IDS_AT_ONCE] for start in range(0, len(single), _IDS_AT_ONCE))


def _told(
    outbox: OutboxTable, sent: Sent, same: Sequence[Seen], others: Sequence[Seen], changed: int, *, marks: bool
) -> str:
    there = {row.id for row in (*same, *others)}
    missing = [id for id, _ in sent.digests if id not in there]
    said = [
        f"; {len(ids)} {what} ({told_some(ids)})"
        for ids, what in ((missing, "aren't there"), ([row.id for row in others], "aren't the rows that were sent"))
        if ids
    ]
    return (
        f"table {outbox.name!r}: {changed} rows were to be {'marked' if marks else 'deleted'}, expected the "
        f"{len(sent)} that were sent{''.join(said)}. Nothing is changed: somebody else deletes, marks or changes rows, "
        "or the database is another one than a moment ago"
    )
