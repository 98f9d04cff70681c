"""Server-sent events in a web application."""
