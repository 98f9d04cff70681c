"""The transactional outbox (extra ``outbox``): rows that an application writes in its own database transaction, and a
relay that sends each of them to a topic exactly once.

The columns' names are those of Debezium's outbox event router: ``id``, ``aggregatetype``, ``aggregateid``, ``type``,
``payload``. See docs/outbox.md.
"""

from typing import TYPE_CHECKING

from sparklog.lazy_imports import import_on_use

if TYPE_CHECKING:
    from sparklog.outbox.errors import OutboxError, RelayTakenOverError
    from sparklog.outbox.relay import Relay
    from sparklog.outbox.sending import send
    from sparklog.outbox.tables import create_table, table
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "sparklog.outbox.errors": ("OutboxError", "RelayTakenOverError"),
            "sparklog.outbox.relay": ("Relay",),
            "sparklog.outbox.sending": ("send",),
            "sparklog.outbox.tables": ("create_table", "table"),
        },
    )

__all__ = ["OutboxError", "Relay", "RelayTakenOverError", "create_table", "send", "table"]
