"""The consumer of share groups (``docs/share_groups.md``)."""
