"""Spark streams from topic to topics, exactly once through kill -9: filter, map, and windows with state."""
