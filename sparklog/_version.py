"""The version of this sparklog; alone in a module so that everything may import it."""

__version__ = "0.1.0.dev0"
