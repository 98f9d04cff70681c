"""The jobs of ``sparklog.jobs`` as files in the repository."""
