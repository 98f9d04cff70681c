"""How a relay begins: which rows of the table its predecessor has sent, and whether it is their table at all.

A relay may send a row if no relay has sent it, and may settle a row if it is the row that was sent. Where it can't
tell, it refuses, and the error says what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from sparklog.errors import InvalidArgumentError
from sparklog.log.cluster import Cluster
from sparklog.outbox.errors import OutboxError
from sparklog.outbox.ids import Id, told_some
from sparklog.outbox.places import Look, Place, look_at
from sparklog.outbox.positions import Position, newest_position, other_relays, position_topic
from sparklog.outbox.rows import columns_of, digest_of
from sparklog.outbox.settling import Sent, find_rows, settle_rows
from sparklog.outbox.tables import OutboxTable, inspect_table
from sparklog.rollback import check_rollback

__all__ = [
    "check_place",
    "default_name",
    "look_over",
    "refuse_anew",
    "refuse_other_relays",
    "refuse_set_back",
    "settle_newest",
]


def default_name(cluster: Cluster, table: str) -> str:
    """The name of a relay that was given none: the table's, with its schema.

    Earlier versions left the schema out, so relays of several schemas had one name. A relay that goes on with such a
    position keeps its name.

    Raises:
        CorruptRecordError, KafkaTimeoutError, StoreError.
    """
    schema, _, short = table.rpartition(".")
    if not schema or short not in other_relays(cluster, table):
        return table
    newest = newest_position(cluster, short)
    is_ours = newest is not None and (
        newest.place is None or (newest.place.schema, newest.place.table) == (schema, short)
    )
    return short if is_ours else table


def look_over(engine: Engine, name: str, *, marks: bool) -> tuple[OutboxTable, Look]:
    """A table, and a look from before its columns were read: what changes from then on, a later look shows. Raises as
    :func:`~sparklog.outbox.tables.inspect_table`, and what SQLAlchemy raises."""
    there = inspect_table(engine, name, marks=marks)
    with engine.connect() as connection:
        look = look_at(connection, there.table)
        check_rollback(connection, there.table)
        connection.rollback()
    return inspect_table(engine, name, marks=marks), look


def refuse_other_relays(cluster: Cluster, engine: Engine, outbox: OutboxTable, place: Place, name: str) -> None:
    """Refuse a relay without a position if one of another name has sent rows of this table.

    Raises:
        InvalidArgumentError: one has; names it. As :func:`newest_position`, and what SQLAlchemy raises.
    """
    for other in other_relays(cluster, name):
        newest = newest_position(cluster, other)
        if newest is None:
            continue
        found = find_rows(engine, outbox, [id for id, _ in newest.sent.digests])
        same = found if newest.place is None else newest.sent.tell(found)[0]
        if not _was_renamed(engine, newest.place, place):  # numbers alone, and rows of test data, are in many tables
            same = [row for row in same if not str(row.id).isdigit()]
        if same or (newest.place is not None and newest.place.is_same(place)):
            rows = f", among them rows that wait here: {told_some([row.id for row in same])}" if same else ""
            raise InvalidArgumentError(
                f"relay {name!r} has no position, and relay {other!r} has sent rows of "
                f"{newest.place or 'this table'}{rows}: a second relay of {place} would send rows again. Expected "
                f"--name {other} (name={other!r}), with --same-table if the table was moved or renamed. To give it "
                "another name, let the relay of the old name settle its rows by --once, stop it for good, and delete "
                f"topic {position_topic(other)!r}"
            )


def _was_renamed(engine: Engine, earlier: Place | None, now: Place) -> bool:
    """May the earlier table be this one under another name? Then it isn't beside it."""
    if earlier is None or earlier.server != now.server:
        return False
    if earlier.number is not None and earlier.number == now.number:
        return True
    schema = earlier.schema or None
    if not sa.inspect(engine).has_table(earlier.table, schema=schema):
        return True
    if engine.dialect.name == "postgresql":
        return False  # whose numbers tell
    with engine.connect() as connection:
        there = look_at(connection, sa.Table(earlier.table, sa.MetaData(), schema=schema)).place
    is_there = there.number == earlier.number if earlier.number is not None else not earlier.may_be_anew(there)
    return not is_there  # another table has the name now


def check_place(newest: Position, place: Place, name: str, *, is_same: bool) -> None:
    """A relay with a position goes on with the same table.

    Args:
        is_same: the user says so.
    Raises:
        InvalidArgumentError: it is another table.
    """
    if newest.place is None or is_same or newest.place.is_same(place):
        return
    raise InvalidArgumentError(
        f"relay {name!r} has sent rows of {newest.place}, and this is {place}: rows of the one could be taken for rows "
        "of the other. Expected a --name (name=…) for each table; or, if it is the same table, which was moved, "
        "renamed or restored, or has another address, --same-table (same_table=True) once; or that topic "
        f"{position_topic(name)!r} is deleted, if the other table is gone and none of these rows was ever sent"
    )


def settle_newest(
    engine: Engine, outbox: OutboxTable, place: Place, name: str, newest: Position, *, marks: bool, is_same: bool
) -> None:
    """Settle the rows of the newest batch, if they wait still: its relay may have died before it did.

    Raises:
        OutboxError: nobody can tell whether one is the row that was sent; names it. Nothing is changed then.
        What SQLAlchemy raises.
    """
    found = find_rows(engine, outbox, [id for id, _ in newest.sent.digests])
    if newest.place is None:
        if found and not is_same:
            _refuse_ids(outbox, name, [row.id for row in found])
        columns = columns_of(outbox)
        same = [(row.id, digest_of(row, columns)) for row in found]
    else:
        columns = newest.sent.columns
        rows, others = newest.sent.tell(found)
        if others:
            _refuse_others(outbox, name, [row.id for row in others])
        if rows and newest.place.may_be_anew(place) and not is_same:
            refuse_anew(place, name, [row.id for row in rows])
        same = [(row.id, digest_of(row, columns)) for row in rows]
    if same:
        settle_rows(engine, outbox, Sent(columns, same), marks=marks)


def refuse_anew(place: Place, name: str, ids: Sequence[Id]) -> NoReturn:
    """Rows like those that were sent are in a table that was made since then.

    Raises:
        OutboxError: always.
    """
    raise OutboxError(
        f"{place} was made anew or restored since relay {name!r} has sent rows with the ids and contents of row "
        f"{told_some(ids)}: nobody can tell whether they are these rows. Expected --same-table (same_table=True) once, "
        "if they are, as after a backup was restored: then they aren't sent again; or that topic "
        f"{position_topic(name)!r} is deleted, if they are new: then all rows of the table are sent"
    )


def refuse_set_back(place: Place, name: str, seen: int | None, expected: int | None) -> NoReturn:
    """The database was set back, and not all rows that were sent are remembered.

    Raises:
        OutboxError: always.
    """
    raise OutboxError(
        f"{place} was set back, as to a backup: its counter is {seen}, expected {expected} or more, which relay "
        f"{name!r} has seen. Rows that were sent may have come back, and the relay remembers those that it has sent "
        "last. Expected that rows that were sent before are deleted or marked (their ids are the headers `id` of the "
        "records), and then --same-table (same_table=True) once"
    )


def _refuse_ids(outbox: OutboxTable, name: str, ids: Sequence[Id]) -> NoReturn:
    raise OutboxError(
        f"relay {name!r} of an earlier version has sent rows with the ids of row {told_some(ids)} of table "
        f"{outbox.name!r}, and didn't note their contents, by which they could be told from rows of another database. "
        "Expected --same-table (same_table=True) once, if that relay has always sent rows of this table: then they "
        f"are settled, and not sent again; or that topic {position_topic(name)!r} is deleted, if they are other rows: "
        "then all rows of the table are sent"
    )


def _refuse_others(outbox: OutboxTable, name: str, ids: Sequence[Id]) -> NoReturn:
    raise OutboxError(
        f"row {told_some(ids)} of table {outbox.name!r} isn't as relay {name!r} has sent it: the row was changed since "
        "then, or it is another row, to which an id was given again, as after a backup of the database was restored. "
        "Expected the row that was sent, or none of this id. If it was sent (its id is the header `id` of the "
        "record), delete or mark it; if it is new, give it an id that is unique for ever, or delete topic "
        f"{position_topic(name)!r} once no row that was sent waits in the table"
    )
