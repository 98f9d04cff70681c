"""A group's committed offsets: one small Delta table, the rules of its rows, and the thread that commits."""
