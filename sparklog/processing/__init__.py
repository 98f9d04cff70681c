"""Patterns of applications over topics. See docs/processing.md."""
