"""The fields of a dataclass, cheaply: once per record."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping
from typing import Any

__all__ = ["plain_fields"]

_NAMES: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()
"""The names of the fields of each class: to look them up costs more than all else."""


def plain_fields(value: Any) -> dict[str, Any] | None:
    """The fields of a dataclass, by name, as they are; None: it is none. The values may be of any type yet: see
    :func:`~sparklog.schemas.records.as_mapping`."""
    names = _NAMES.get(type(value))
    if names is None:
        if not dataclasses.is_dataclass(value) or isinstance(value, type | Mapping):
            return None
        names = _NAMES[type(value)] = tuple(field.name for field in dataclasses.fields(value))
    return {name: getattr(value, name) for name in names}
