"""Sequencing: files that other engines wrote without offsets become part of a topic's log."""
