"""A parallel worker with retries and dead letters."""
