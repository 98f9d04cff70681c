"""The Delta log of a table: entries, positions, snapshots, checkpoints, cleanup. Alone knows ``_delta_log``."""
