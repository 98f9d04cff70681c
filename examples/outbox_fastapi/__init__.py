"""The outbox in a web application."""
