"""Input that comes at least once, stored once: Delta's MERGE beside a topic's log."""
