"""Consumer groups: offset tables, membership, assignors (``docs/groups.md``)."""
