"""Announced uploads: data files that whoever commits next may publish beside its own (rule L14, announced uploads)."""
