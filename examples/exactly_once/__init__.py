"""Exactly once through kill -9: flights to delay alerts, by workers that die at random."""
