"""Measurements of sparklog; `make bench` runs them all."""
