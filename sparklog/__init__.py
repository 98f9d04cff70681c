"""Kafka's semantics on Delta tables: a topic is a table, and one create-only put publishes records to it."""

from sparklog._version import __version__

__all__ = ["__version__"]
