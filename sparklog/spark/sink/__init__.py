"""Writing rows of Spark to topics: options, tasks, and the commit by the driver."""
