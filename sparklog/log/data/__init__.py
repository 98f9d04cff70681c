"""Data files of a topic: columns, bytes, segments, and reading records in bounded memory. Knows no commit."""
