"""Share groups: the records of a partition that several members have locked, and the log that decides about them
(``docs/share_groups.md``)."""
