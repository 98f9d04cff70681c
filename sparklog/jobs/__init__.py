"""Jobs for ``spark-submit``: they read arguments, call ``sparklog.spark``, and set the exit code.

``python -m sparklog.jobs.retention --help``, or ``spark-submit "$(sparklog spark jobs)/retention.py" --help``; likewise
``compact``, ``optimize``, ``vacuum``, ``maintain`` and ``ingest``.
"""
