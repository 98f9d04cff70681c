"""Things to run."""
