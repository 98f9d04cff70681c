"""kafka-python's package of this name."""
