"""Kafka's wire protocol in front of a cluster (``docs/gateway.md``)."""

from sparklog.gateway.inprocess import serve
from sparklog.gateway.server import Gateway, tls_context
from sparklog.gateway.settings import GatewaySettings

__all__ = ["Gateway", "GatewaySettings", "serve", "tls_context"]
