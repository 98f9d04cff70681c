"""A stand-in for Spark or any other Delta writer: commits at the version behind the newest that it sees."""

from __future__ import annotations

import json

from sparklog.delta.actions import Action
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.log.state import open_state
from sparklog.storage import CreateResult

__all__ = ["try_commit_as_another"]


def try_commit_as_another(log: DeltaLog, *actions: Action) -> CreateResult:
    """One attempt; who finds its own entry under the name has created it, as with an answer that was lost.

    Raises what the store raises; then it gives up, as engines do.
    """
    version = open_state(log).position.version + 1
    lines = [{"commitInfo": {"operation": "WRITE"}}, *(action.to_json() for action in actions)]
    path, entry = entry_path(log.table, version), "\n".join(json.dumps(line) for line in lines).encode()
    created = log.store.create(path, entry)
    if created is CreateResult.EXISTS and log.store.read(path) == entry:
        return CreateResult.CREATED
    return created
