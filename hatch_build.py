"""Puts the native core and the jar of ``java/`` into the wheel.

The core (``sparklog/_native/core.pyx``) is compiled where there is a C compiler; without one the wheel is pure Python,
and does the same more slowly. An editable install has it compiled in place. ``SPARKLOG_CORE=require`` fails where it
can't be compiled, as a release must; ``SPARKLOG_CORE=skip`` leaves it out.

``SPARKLOG_JAR=require`` fails where there is no Java, as a release must; ``SPARKLOG_JAR=skip`` leaves the jar out. An
editable install has none until ``make jar``. Without it sparklog does all but Spark's own reading and writing on S3,
and says so.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SparklogBuildHook(BuildHookInterface[Any]):
    """Called by hatchling as it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        self._add_core(build_data, in_place=version == "editable")
        if version != "editable":
            self._add_jar(build_data)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._scratch.cleanup()

    def _add_core(self, build_data: dict[str, Any], *, in_place: bool) -> None:
        wish = _wish("SPARKLOG_CORE")
        if wish == "skip":
            return
        source = Path(self.root) / "sparklog" / "_native"
        sys.path.insert(0, str(source))
        from build_core import CannotCompileError, build

        try:
            library = build(source if in_place else Path(self._scratch.name))
        except CannotCompileError as error:
            if wish == "require":
                raise
            self.app.display_debug(f"without the native core: {error}")
            return
        if not in_place:
            build_data["force_include"][str(library)] = f"sparklog/_native/{library.name}"
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def _add_jar(self, build_data: dict[str, Any]) -> None:
        wish = _wish("SPARKLOG_JAR")
        if wish == "skip":
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


def _wish(variable: str) -> str:
    wish = os.environ.get(variable, "")
    if wish not in ("", "require", "skip"):
        raise ValueError(f"{variable}={wish!r}: expected require or skip")
    return wish
