"""Share groups: the records of a partition that several members have in hand, and the log that decides about them
(``docs/share_groups.md``)."""
