"""What clients cost on an object store: a real S3 server behind a proxy that delays and counts requests."""
