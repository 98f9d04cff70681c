"""Membership of a group, and who reads which partitions: heartbeats, generations, and what each member does to follow
them."""
