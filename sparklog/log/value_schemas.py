"""The schemas of a typed topic's values, as the table's properties hold them: registration and check of a new one. Pure
(``docs/decisions/0027-a-typed-topic-has-its-values-in-a-struct-column.md``)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sparklog import schemas
from sparklog.arrow import pa
from sparklog.config import TopicConfig
from sparklog.errors import InvalidConfigurationError, NotATopicError
from sparklog.log.data.value_columns import DATA, SCHEMA_ID, Leaf, indexed_leaves

if TYPE_CHECKING:
    from sparklog.schemas import ValueSchema, Verdict

__all__ = ["SCHEMA_PROPERTY", "SOURCE_PROPERTY", "TopicSchemas", "check_columns"]

SCHEMA_PROPERTY = "sparklog.value.schema."
"""Before the id of a schema: the table property that holds it."""
SOURCE_PROPERTY = "sparklog.value.source."
"""Before the id of a schema: the table property that says what it was made of, where bytes need that."""


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """All schemas that a topic's values had, as JSON, the oldest first; their ids are 1, 2, …"""

    texts: tuple[str, ...]
    sources: tuple[str, ...] = ()
    """The source of each, as JSON, empty for nothing that matters; those at the end may be missing."""

    @classmethod
    def of(cls, schema: ValueSchema) -> TopicSchemas:
        """A topic's first schema."""
        return cls((schema.to_json(),), _trimmed((_source_text(schema),)))

    @classmethod
    def from_properties(cls, table: str, properties: Mapping[str, str]) -> TopicSchemas | None:
        """The schemas among a table's properties; None where there are none.

        Raises ``NotATopicError``: an id is missing, or a schema can't be read.
        """
        schema_texts = {
            name.removeprefix(SCHEMA_PROPERTY): text
            for name, text in properties.items()
            if name.startswith(SCHEMA_PROPERTY)
        }
        if not schema_texts:
            return None
        ids = [str(number) for number in range(1, len(schema_texts) + 1)]
        if set(ids) != set(schema_texts):
            raise NotATopicError(
                f"{table}: properties {', '.join(sorted(SCHEMA_PROPERTY + name for name in schema_texts))}; "
                f"expected {SCHEMA_PROPERTY}1 to {len(schema_texts)}"
            )
        sources = tuple(properties.get(SOURCE_PROPERTY + name, "") for name in ids)
        known = cls(tuple(schema_texts[name] for name in ids), _trimmed(sources))
        try:
            known.physical  # noqa: B018
            known.all()
        except Exception as error:  # whatever a foreign engine made of them
            raise NotATopicError(
                f"{table}: properties {SCHEMA_PROPERTY}1 to {len(schema_texts)} can't be read: {error}"
            ) from error
        return known

    @property
    def newest_id(self) -> int:
        """The id of the schema that records are written by now."""
        return len(self.texts)

    @property
    def newest(self) -> ValueSchema:
        """The schema that records are written by now, and that all are read by."""
        return self.schema(self.newest_id)

    @property
    def physical(self) -> pa.StructType:
        """The type of the table's column ``data``: the fields of all schemas."""
        return _union(self.texts)

    def schema(self, schema_id: int) -> ValueSchema:
        """The schema of an id, from 1 on."""
        source = self.sources[schema_id - 1] if schema_id <= len(self.sources) else ""
        return _parsed(self.texts[schema_id - 1], source)

    def until(self, schema_id: int) -> TopicSchemas:
        """The schemas up to the one of an id, inclusive."""
        return TopicSchemas(self.texts[:schema_id], _trimmed(self.sources[:schema_id]))

    def all(self) -> tuple[ValueSchema, ...]:
        """Every schema, by id."""
        return tuple(self.schema(number) for number in range(1, self.newest_id + 1))

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
        texts = {f"{SCHEMA_PROPERTY}{number}": text for number, text in enumerate(self.texts, 1)}
        sources = {f"{SOURCE_PROPERTY}{number}": text for number, text in enumerate(self.sources, 1) if text}
        return texts | sources

    def verdict(self, schema: ValueSchema, config: TopicConfig) -> Verdict:
        """May a new schema follow these, by a topic's ``value.compatibility`` and ``value.format``?"""
        mode, value_format = str(config["value.compatibility"]), str(config["value.format"])
        return schemas.check(schema, self.all(), mode, value_format=value_format)

    def with_schema(self, schema: ValueSchema, config: TopicConfig) -> TopicSchemas:
        """These schemas and a new one behind them; the same where it equals the newest.

        Raises:
            InvalidConfigurationError: it isn't compatible; says why.
        """
        if schema == self.newest:
            return self
        verdict = self.verdict(schema, config)
        if not verdict.compatible:
            which = f"({config['value.compatibility']}) with schema {self.newest_id}"
            raise InvalidConfigurationError(f"the schema isn't compatible {which}: {'; '.join(verdict.reasons)}")
        sources = (*self.sources, *[""] * (self.newest_id - len(self.sources)), _source_text(schema))
        return TopicSchemas((*self.texts, schema.to_json()), _trimmed(sources))


def check_columns(schema: ValueSchema, schema_string: str) -> None:
    """Raise ``InvalidConfigurationError`` where a table can't hold values of a new schema: another engine has added a
    column of such a name, or a field of ``data``, with another type.

    Args:
        schema_string: of the table, as Delta writes it.
    """
    for column in json.loads(schema_string)["fields"]:
        if column["name"].lower() == SCHEMA_ID and (column["name"], column["type"]) != (SCHEMA_ID, "integer"):
            raise InvalidConfigurationError(
                f"the table has a column {column['name']} of another engine's: {column['type']}, expected none, or "
                f"{SCHEMA_ID} integer"
            )
        if column["name"].lower() == DATA:
            reasons = list(_differences_of_column(schema, column))
            if reasons:
                raise InvalidConfigurationError(
                    f"another engine added columns that contradict the schema: {'; '.join(reasons)}"
                )


def _differences_of_column(schema: ValueSchema, column: Mapping[str, Any]) -> Iterator[str]:
    kind = column["type"]
    if column["name"] != DATA or not isinstance(kind, dict) or kind["type"] != "struct":
        yield f"column {column['name']} is {kind if isinstance(kind, str) else kind['type']}, expected {DATA} struct"
        return
    own = {field.name.lower(): field for field in schema.arrow}
    for field in kind["fields"]:
        mine = own.get(field["name"].lower())
        if mine is None:
            continue
        try:
            old = schemas.ValueSchema.from_json(json.dumps({"type": "struct", "fields": [field]}))
        except schemas.SchemaError as error:  # a type that no topic's value has
            yield str(error)
        else:
            new = schemas.ValueSchema(pa.schema([mine]))
            yield from schemas.type_differences(new, old, f"the table's column {DATA}")


def _trimmed(sources: tuple[str, ...]) -> tuple[str, ...]:
    """Without empty ones at the end: equal schemas are equal."""
    count = len(sources)
    while count and not sources[count - 1]:
        count -= 1
    return sources[:count]


def _source_text(schema: ValueSchema) -> str:
    body: dict[str, object] = {}
    if schema.source is not None:
        body = {"language": schema.source.language, "text": schema.source.text}
    if schema.registry_id is not None:
        body["registry_id"] = schema.registry_id
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False) if body else ""


@lru_cache(maxsize=256)
def _parsed(text: str, source_text: str = "") -> ValueSchema:
    schema = schemas.ValueSchema.from_json(text)
    if not source_text:
        return schema
    body = json.loads(source_text)
    if "language" in body:
        schema = replace(schema, source=schemas.SchemaSource(str(body["language"]), str(body["text"])))
    return schema if body.get("registry_id") is None else schema.with_registry_id(int(body["registry_id"]))


@lru_cache(maxsize=64)
def _union(texts: tuple[str, ...]) -> pa.StructType:
    return pa.struct(list(schemas.union([_parsed(text) for text in texts]).arrow))
