"""What a cluster's folder contains, told from the bytes alone: so that no golden cluster lacks what it is there for."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["features_of"]

_NUMBER = re.compile(r"\d{20}\.json")
_DIGITS = re.compile(r"[0-9a-f]{16,32}|\d+")


def features_of(root: Path) -> dict[str, int]:
    """Kinds of files, operations and actions of Delta logs, states of transactions: how often each is there."""
    found: Counter[str] = Counter()
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        found.update(_of_file(path.relative_to(root).as_posix(), path))
    return dict(sorted(found.items()))


def _of_file(name: str, path: Path) -> Iterator[str]:
    top, _, rest = name.partition("/")
    if "_delta_log/" in name:
        yield f"{top}: {_kind_of_log_file(path.name, name)}"
        if _NUMBER.fullmatch(path.name):
            for line in path.read_text().splitlines():
                yield from (f"{top}: {feature}" for feature in _of_action(json.loads(line)))
    elif name.endswith(".parquet"):
        yield f"{top}: data in {_DIGITS.sub('#', rest.split('/')[1])}"
    elif top == "transactions":
        body = json.loads(path.read_text())
        yield f"transaction {body['state']}, format {body['format']}{', unsynced' if body.get('unsynced') else ''}"
    elif top == "share-groups" and _NUMBER.fullmatch(path.name):
        for letter in sorted(set(re.findall(r'"([VQKR])"', path.read_text()))):
            yield f"share group: state {letter}"
    else:
        yield f"file {_DIGITS.sub('#', rest.rpartition('/')[2] or name)} in {top if rest else 'the root'}"


def _kind_of_log_file(name: str, path: str) -> str:
    if "_cleaned/" in path:
        return "mark of a cleanup"
    if _NUMBER.fullmatch(name):
        return "entry"
    return "checkpoint" if name.endswith(".checkpoint.parquet") else name


def _of_action(action: dict[str, Any]) -> Iterator[str]:
    [(kind, body)] = action.items()
    if kind == "commitInfo":
        ours = body.get("sparklog")
        if ours is None:
            yield "entry of another engine"
            return
        yield f"operation {body['operation']}"
        yield from (f"commitInfo {field}" for field in ours)
    elif kind == "txn":
        yield f"txn {_DIGITS.sub('#', body['appId']).partition(':')[0]}"
    elif kind == "add" and body.get("partitionValues", {}).get("base_offset", "") is None:
        yield "file without offsets"
    elif kind == "metaData":
        properties = body["configuration"]
        yield from (f"property {_DIGITS.sub('#', one)}" for one in properties if one.startswith("sparklog."))
        if "sparklog.value.schema.1" in properties:
            yield f"value.format {properties.get('sparklog.value.format', 'json')}"
