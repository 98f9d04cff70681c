"""Fields that a typed topic gets while a streaming query reads it: they aren't left out in silence."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sparklog.errors import InvalidConfigurationError
from sparklog.log.head import TopicHead
from sparklog.log.value_schemas import TopicSchemas

__all__ = ["NewFields", "UnreadFields"]

_LOGGER = logging.getLogger("sparklog.spark")
UnreadFields = Callable[[TopicSchemas], Sequence[str]]
"""The columns of a topic's newest schema that a query doesn't have."""


class NewFields:
    """Compares the schemas of a topic's values with those that a query knew. A query whose topic gets a field ends, as
    one over Delta's source does; the checkpoint says which schema it knew, so it can't be started without the field,
    unless an option allows that."""

    def __init__(self, unread: UnreadFields | None, *, is_ignoring: bool) -> None:
        """Args:
        unread: None: the query has no columns of fields.
        is_ignoring: may the query go on without fields that are new?
        """
        self._unread = unread
        self._is_ignoring = is_ignoring

    def known_schema(self, topic: str, head: TopicHead, known_id: int = -1) -> int:
        """The id of the schema that the query knows from now on; -1 if it has no columns of fields.

        Args:
            known_id: of the schema that it knew at its position, 0 where the topic was untyped; -1: not known.
        Raises:
            InvalidConfigurationError: there is a newer schema, with fields that the query doesn't have.
        """
        if self._unread is None or head.value_schema_id == known_id:
            return -1 if self._unread is None else known_id
        unread = [] if head.schemas is None else self._unread(head.schemas)
        if unread and known_id >= 0 and not self._is_ignoring:
            raise InvalidConfigurationError(
                f"topic {topic!r}: schema {head.value_schema_id} of its values has fields that this query's columns "
                f"lack: {', '.join(unread)}. Restart the query with a DataFrame that is loaded anew, which has them, "
                'or go on without them by option("newFields", "ignore")'
            )
        if unread:
            _LOGGER.warning("topic %r: the query doesn't read the columns %s of its values", topic, ", ".join(unread))
        return head.value_schema_id
