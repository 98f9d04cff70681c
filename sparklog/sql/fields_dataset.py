"""A typed topic's records with the fields of their values as columns of their own, each of which is read alone.

DuckDB asks a dataset for whole columns: of a struct it reads all fields. So the fields are columns here, and what they
are in the files is known to :meth:`FieldsDataset.scanner` alone. DuckDB's filter, which names these columns, can't be
given to the reader of the files: it leaves out files and row groups by what is known of them, and then the rows of what
was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sparklog.log.data.value_columns import DATA
from sparklog.parallel import parallel_map

__all__ = ["FieldsDataset", "field_column"]


def field_column(field: str) -> str:
    """The name of a field's column; no other column has a dot in its name."""
    return f"{DATA}.{field}"


class FieldsDataset(ds.FileSystemDataset):  # type: ignore[misc]
    """The records of a dataset with a struct ``data``, with its fields as columns in its place.

    Its fragments are those of the other dataset, but for what is known of their rows, which is said in the names of
    these columns.
    """

    structs: Any
    """The other dataset."""
    fields: Mapping[str, pa.Field]
    """By the names of their columns."""
    by_path: Mapping[str, Any]
    """The other dataset's fragments."""

    @classmethod
    def of(cls, structs: Any, known: Sequence[Any]) -> FieldsDataset:
        """The records of a dataset.

        Args:
            known: for each of its fragments, an expression of what is known of its rows, in the names of these columns.
        """
        fields = {field_column(field.name): field for field in structs.schema.field(DATA).type}
        schema = pa.schema(
            [
                *(field for field in structs.schema if field.name != DATA),
                *(pa.field(name, field.type) for name, field in fields.items()),
            ]
        )
        fragments = list(structs.get_fragments())
        made = cls(
            [
                structs.format.make_fragment(fragment.path, structs.filesystem, expression)
                for fragment, expression in zip(fragments, known, strict=True)
            ],
            schema,
            structs.format,
            structs.filesystem,
        )
        made.structs = structs
        made.fields = fields
        made.by_path = {fragment.path: fragment for fragment in fragments}
        return made

    def scanner(
        self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any
    ) -> Any:  # Arrow's signature
        """A scanner of some columns, all for None, and of the rows for which a filter holds."""
        names = list(self.schema.names if columns is None else columns)
        if filter is None:
            return self._read(self.by_path.values(), names, options)
        text = str(filter)  # Arrow doesn't tell the columns of an expression; one too many does no harm
        needed = [name for name in self.schema.names if name in names or name in text]
        kept = [self.by_path[fragment.path] for fragment in self.get_fragments(filter=filter)]
        kept = [part for parts in parallel_map(lambda each: self._row_groups(each, filter), kept) for part in parts]
        found = self._read(kept, needed, options)
        return ds.Scanner.from_batches(found.to_reader(), columns=names, filter=filter)

    def _read(self, fragments: Any, names: Sequence[str], options: Mapping[str, Any]) -> Any:
        structs = ds.FileSystemDataset(
            list(fragments), self.structs.schema, self.structs.format, self.structs.filesystem
        )
        if not names:
            return structs.scanner(columns=[], **options)
        columns = {
            name: ds.field(DATA, self.fields[name].name) if name in self.fields else ds.field(name) for name in names
        }
        return structs.scanner(columns=columns, **options)

    def _row_groups(self, fragment: Any, filter: Any) -> list[Any]:
        """The row groups of a fragment that may have rows for a filter, as fragments."""
        groups = fragment.row_groups  # reads the file's footer, which the scan needs, too
        if len(groups) < 2:
            return [fragment]
        fields = {f"{DATA}.{field.name}": name for name, field in self.fields.items()}
        probes = {
            number: reduce(and_, _bounds(fragment.metadata.row_group(number), fields, self.fields), pc.scalar(True))
            for number in range(len(groups))
        }
        probe = ds.FileSystemDataset(
            [
                self.format.make_fragment(fragment.path, self.filesystem, known, row_groups=[number])
                for number, known in probes.items()
            ],
            self.schema,
            self.format,
            self.filesystem,
        )
        kept = {group.id for one in probe.get_fragments(filter=filter) for group in one.row_groups}
        return [fragment.subset(row_group_ids=sorted(kept))] if kept else []


def _bounds(group: Any, columns: Mapping[str, str], fields: Mapping[str, pa.Field]) -> Iterator[Any]:
    """What the footer knows of the values in a row group, as expressions.

    Floats are left out: a minimum passes over NaN, for which a filter may hold.
    """
    for number in range(group.num_columns):
        column = group.column(number)
        name = columns.get(column.path_in_schema)
        if name is None or pa.types.is_floating(fields[name].type):
            continue
        statistics = column.statistics
        if statistics is None or not statistics.has_min_max:
            continue
        try:
            low, high = (pa.scalar(bound, fields[name].type) for bound in (statistics.min, statistics.max))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
        field = ds.field(name)
        yield ((field >= low) | field.is_null()) & ((field <= high) | field.is_null())
