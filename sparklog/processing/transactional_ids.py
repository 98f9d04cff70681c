"""Transactional ids that are made of names, which together may be longer than an id."""

from __future__ import annotations

import hashlib
import json

from sparklog.errors import InvalidArgumentError
from sparklog.paths import encode_id

__all__ = ["transactional_id_of"]


def transactional_id_of(group: str, rest: str) -> str:
    """The id of a group's name and something else: both, or where that is too long for an id, their digest."""
    plain = f"{group}-{rest}"
    try:
        encode_id(plain)
    except InvalidArgumentError:
        return f"sparklog-{hashlib.sha256(json.dumps([group, rest]).encode()).hexdigest()}"
    return plain
