"""Who is who among the processes of a world."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proof.simulation.cluster.consuming import consume, follow, loop
from proof.simulation.cluster.group_worlds import member
from proof.simulation.cluster.jobs import administer, foreign, maintain_cluster, night, recover
from proof.simulation.cluster.life import Life
from proof.simulation.cluster.producing import hasty, produce, transact
from proof.simulation.cluster.unsynced import steady, unsynced

__all__ = ["RESTLESS", "ROLES"]

ROLES: Mapping[str, Callable[[Life], None]] = {
    "produce": produce,
    "hasty": hasty,
    "transact": transact,
    "steady": steady,
    "unsynced": unsynced,
    "loop": loop,
    "follow": follow,
    "consume": consume,
    "member": member,
    "foreign": foreign,
    "maintain": maintain_cluster,
    "night": night,
    "administer": administer,
    "recover": recover,
}
RESTLESS = frozenset({"follow", "consume", "loop"})
"""They look at their topics again and again."""
