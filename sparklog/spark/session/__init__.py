"""A Spark session that can read and write topics: its jars, its settings, Spark Connect, access to stores."""
