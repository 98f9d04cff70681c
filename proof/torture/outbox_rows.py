"""The database of a round's applications: an outbox, and how many rows each aggregate has written there."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import sqlalchemy as sa

from proof.torture.life import Place
from sparklog import outbox

__all__ = ["ROWS_TOPIC", "Undone", "create_database", "opened", "relay_loosely", "url_of", "write_rows", "written"]

ROWS_TOPIC = "orders"
_AGGREGATES = tuple(f"a{number}" for number in range(5))
_UNDONE = 0.15


class Undone(Exception):
    """An application changes its mind: nothing of its transaction is in the database."""


def url_of(place: Place) -> str:
    """SQLAlchemy's URL of the database."""
    return f"sqlite:///{place.database}"


@contextmanager
def opened(place: Place) -> Iterator[sa.Engine]:
    """The database, which is there."""
    engine = sa.create_engine(url_of(place))
    try:
        yield engine
    finally:
        engine.dispose()


def create_database(place: Place) -> None:
    """Make it, without rows."""
    with opened(place) as engine:
        outbox.create_table(engine)
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE aggregates (id TEXT PRIMARY KEY, written INTEGER NOT NULL)")
            for name in _AGGREGATES:
                connection.execute(sa.text("INSERT INTO aggregates VALUES (:id, 0)"), {"id": name})


def write_rows(engine: sa.Engine, draw: random.Random) -> int:
    """A transaction of a few aggregates, each of which numbers its rows. Returns how many it wrote.

    Raises ``Undone``, and SQLAlchemy's errors.
    """
    count = 0
    with engine.begin() as connection:
        for name in draw.sample(_AGGREGATES, draw.randint(1, 3)):
            for _ in range(draw.choice([1, 1, 3])):
                query = sa.text("UPDATE aggregates SET written = written + 1 WHERE id = :id RETURNING written")
                number = connection.execute(query, {"id": name}).scalar_one()
                outbox.send(connection, ROWS_TOPIC, f"{name}:{number}", name)
                count += 1
        if draw.random() < _UNDONE:
            raise Undone
    return count


def relay_loosely(engine: sa.Engine, send: Callable[[bytes, bytes], object], between: Callable[[], object]) -> None:
    """Send the first rows, and then delete them: whoever dies ``between`` has sent them for nobody to know."""
    with engine.connect() as connection:
        query = sa.text("SELECT position, aggregateid, payload FROM outbox ORDER BY position LIMIT 5")
        rows = connection.execute(query).all()
    for _, key, value in rows:
        send(value, key.encode())
    between()
    with engine.begin() as connection:
        for position, _, _ in rows:
            connection.execute(sa.text("DELETE FROM outbox WHERE position = :at"), {"at": position})


def written(engine: sa.Engine) -> Mapping[str, list[str]]:
    """The values of all rows that were ever committed, by aggregate, in the order in which they were."""
    with engine.connect() as connection:
        found = connection.execute(sa.text("SELECT id, written FROM aggregates")).all()
    return {name: [f"{name}:{number}" for number in range(1, count + 1)] for name, count in found}
