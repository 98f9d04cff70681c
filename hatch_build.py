"""Puts the jar of ``java/`` into the wheel. An editable install has none until ``make jar``.

``SPARKLOG_JAR=require`` fails where there is no Java, as a release must; ``SPARKLOG_JAR=skip`` leaves the jar out.
Without it sparklog does all but Spark's own reading and writing on S3, and says so.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JarBuildHook(BuildHookInterface[Any]):
    """Called by hatchling as it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wish = os.environ.get("SPARKLOG_JAR", "")
        if wish not in ("", "require", "skip"):
            raise ValueError(f"SPARKLOG_JAR={wish!r}: expected require or skip")
        if version == "editable" or wish == "skip":
            return
        sys.path.insert(0, str(Path(self.root) / "java"))
        from build_jar import JAR, NoJavaError, build

        try:
            jar = build()
        except NoJavaError as error:
            if wish == "require":
                raise
            self.app.display_warning(f"a wheel without the log store for Spark on S3: {error}")
            return
        build_data["force_include"][str(jar)] = f"sparklog/spark/jars/{JAR.name}"
