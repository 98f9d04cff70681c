"""The schemas of a typed topic's values, as the table's properties hold them: registration and check of a new one. Pure
(``docs/decisions/0027-a-typed-topic-has-its-values-in-a-struct-column.md``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from sparklog.config import TopicConfig
from sparklog.errors import InvalidConfigurationError, NotATopicError
from sparklog.log.data.value_columns import Leaf, indexed_leaves
from sparklog.schemas import ValueSchema, check, union

__all__ = ["SCHEMA_PROPERTY", "TopicSchemas"]

SCHEMA_PROPERTY = "sparklog.value.schema."
"""Before the id of a schema: the table property that holds it."""


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """All schemas that a topic's values had, as JSON, the oldest first; their ids are 1, 2, …"""

    texts: tuple[str, ...]

    @classmethod
    def from_properties(cls, table: str, properties: Mapping[str, str]) -> TopicSchemas | None:
        """The schemas among a table's properties; None where there are none.

        Raises ``NotATopicError``: an id is missing, or a schema can't be read.
        """
        found = {
            name.removeprefix(SCHEMA_PROPERTY): text
            for name, text in properties.items()
            if name.startswith(SCHEMA_PROPERTY)
        }
        if not found:
            return None
        ids = [str(number) for number in range(1, len(found) + 1)]
        if set(ids) != set(found):
            raise NotATopicError(
                f"{table}: properties {', '.join(sorted(SCHEMA_PROPERTY + name for name in found))}; "
                f"expected {SCHEMA_PROPERTY}1 to {len(found)}"
            )
        schemas = cls(tuple(found[name] for name in ids))
        try:
            schemas.physical  # noqa: B018
        except Exception as error:  # whatever a foreign engine made of them
            raise NotATopicError(
                f"{table}: properties {SCHEMA_PROPERTY}1 to {len(found)} can't be read: {error}"
            ) from error
        return schemas

    @property
    def newest_id(self) -> int:
        """The id of the schema that records are written by now."""
        return len(self.texts)

    @property
    def newest(self) -> ValueSchema:
        """The schema that records are written by now, and that all are read by."""
        return _parsed(self.texts[-1])

    @property
    def physical(self) -> pa.StructType:
        """The type of the table's column ``data``: the fields of all schemas."""
        return _union(self.texts)

    def schema(self, schema_id: int) -> ValueSchema:
        """The schema of an id, from 1 on."""
        return _parsed(self.texts[schema_id - 1])

    def all(self) -> tuple[ValueSchema, ...]:
        """Every schema, by id."""
        return tuple(map(_parsed, self.texts))

    def leaves(self, config: TopicConfig) -> tuple[Leaf, ...]:
        """The leaves that files have statistics of. A ``value.index`` that can't be met counts as none given: anybody
        may set it by SQL."""
        try:
            return indexed_leaves(self.newest_type, str(config["value.index"]))
        except InvalidConfigurationError:
            return indexed_leaves(self.newest_type, "")

    @property
    def newest_type(self) -> pa.StructType:
        """The newest schema as an Arrow struct."""
        return pa.struct(list(self.newest.arrow))

    def to_properties(self) -> dict[str, str]:
        """The schemas as table properties."""
        return {f"{SCHEMA_PROPERTY}{number}": text for number, text in enumerate(self.texts, 1)}

    def with_schema(self, schema: ValueSchema, mode: str) -> TopicSchemas:
        """These schemas and a new one behind them; the same where it equals the newest.

        Raises:
            InvalidConfigurationError: it isn't compatible, by ``value.compatibility``; says why.
        """
        text = schema.to_json()
        if text == self.texts[-1]:
            return self
        olds = [_parsed(one) for one in self.texts]
        verdict = check(schema, olds, mode)
        if not verdict.compatible:
            raise InvalidConfigurationError(
                f"the schema isn't compatible ({mode}) with schema {self.newest_id}: {'; '.join(verdict.reasons)}"
            )
        return TopicSchemas((*self.texts, text))


@lru_cache(maxsize=256)
def _parsed(text: str) -> ValueSchema:
    return ValueSchema.from_json(text)


@lru_cache(maxsize=64)
def _union(texts: tuple[str, ...]) -> pa.StructType:
    return pa.struct(list(union([_parsed(text) for text in texts]).arrow))
