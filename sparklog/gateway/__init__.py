"""Kafka's wire protocol in front of a cluster (``docs/gateway.md``)."""
