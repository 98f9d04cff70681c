"""Transactions across topics and groups: one create decides, and any process that reads the decision carries it out."""
