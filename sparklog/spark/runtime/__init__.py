"""The Spark that is there: which version, what goes with it, and what it calls otherwise than others."""
