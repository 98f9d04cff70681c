"""Maintenance of topics on Spark's executors: the plans and commits are those of ``sparklog.compaction``."""
