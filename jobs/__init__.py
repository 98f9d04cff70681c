"""Jobs for ``spark-submit``: they read arguments, call ``sparklog.spark``, and set the exit code."""
