"""Groups from outside: describing, resetting and deleting them, and commits of consumers that are in none."""
