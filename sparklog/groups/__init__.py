"""Consumer groups: offset tables, membership, assignors (design section 7). ``docs/groups.md`` tells the protocol."""
