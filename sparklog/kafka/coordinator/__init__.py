"""kafka-python's package of this name: the assignors alone."""
