"""Queries over topics, whoever runs them: limits, positions, planning, reading, a stream's bookkeeping. No Spark."""
