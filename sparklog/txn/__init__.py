"""Transactions across topics and groups: one create decides, and whoever meets the decision carries it out."""
