"""The clients for asyncio: :class:`Producer`, :class:`Consumer` and :class:`Admin`, whose waiting calls are awaited.

Each has the calls of its namesake in :mod:`sparklog`, and at most one thread beside the event loop. What runs where,
and what a cancelled call leaves behind: docs/asyncio.md. Names of aiokafka are in :mod:`sparklog.aio.kafka`.
"""

from sparklog.aio.admin import Admin
from sparklog.aio.consumer import Consumer
from sparklog.aio.listener import AsyncRebalanceListener
from sparklog.aio.producer import Producer
from sparklog.aio.send_future import SendFuture

__all__ = ["Admin", "AsyncRebalanceListener", "Consumer", "Producer", "SendFuture"]
