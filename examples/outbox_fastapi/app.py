"""A web application whose orders are told to others exactly once: FastAPI, SQLite, and the outbox's relay beside it.

``SHOP_CLUSTER=./data uvicorn examples.outbox_fastapi.app:from_environment --factory`` serves it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import sqlalchemy as sa
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, PositiveFloat
from sqlalchemy.orm import Session

from sparklog import Admin, NewTopic, outbox
from sparklog.errors import TopicAlreadyExistsError
from sparklog.log import open_cluster

TOPIC = "outbox.event.order"
METADATA = sa.MetaData()
ORDERS = sa.Table(
    "orders",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("customer", sa.String, nullable=False),
    sa.Column("total", sa.Float, nullable=False),
)


class NewOrder(BaseModel):
    """What a client posts."""

    customer: str
    total: PositiveFloat


def make_app(cluster: str, database: str) -> FastAPI:
    """The application.

    Args:
        cluster: its root URI or folder.
        database: SQLAlchemy's URL.
    """
    engine = sa.create_engine(database)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        """The relay lives as long as the application. With several workers of the server, run one as a process of its
        own instead: `sparklog outbox relay`."""
        METADATA.create_all(engine)
        outbox.create_table(engine)
        opened = open_cluster(cluster)
        with Admin(opened) as admin, suppress(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(TOPIC, num_partitions=3)])
        relay = outbox.Relay(opened, engine, poll_interval_s=0.05)
        thread = threading.Thread(target=relay.run, name="outbox-relay")
        thread.start()
        try:
            yield
        finally:
            relay.stop()
            thread.join()
            relay.close()
            engine.dispose()

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=201)
    def place(order: NewOrder) -> dict[str, int]:
        """The order and the message are in one transaction of the database: both, or neither."""
        with Session(engine) as session, session.begin():
            made: Any = session.execute(sa.insert(ORDERS).values(**order.model_dump()))
            number = made.inserted_primary_key[0]
            event = {"id": number, **order.model_dump()}
            outbox.send(session, TOPIC, event, key=order.customer, type="OrderPlaced")
            if order.customer == "nobody":  # noticed late: what was written is rolled back, and no message leaves
                raise HTTPException(status_code=422, detail="unknown customer")
        return {"id": number}

    return app


def from_environment() -> FastAPI:
    return make_app(os.environ["SHOP_CLUSTER"], os.environ.get("SHOP_DATABASE", "sqlite:///shop.db"))
