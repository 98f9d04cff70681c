"""Whether the comparison with a real Kafka may be skipped."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

__all__ = ["is_owed"]


def is_owed(environ: Mapping[str, str]) -> bool:
    """Must the comparison happen here? Where it is asked for (``SPARKLOG_KAFKA=needed``, as by ``make proof``); and
    in CI (``CI=true``, where a skip would go unseen), if Java and Maven are there.

    The project's own CI installs Java and no Maven on a bare machine: there the comparison is skipped, and pytest's
    summary says so (``-ra``).

    Args:
        environ: of which ``SPARKLOG_KAFKA``, ``CI``, ``JAVA_HOME`` (its ``bin`` is then the only place of Java) and
            ``PATH`` count.
    """
    if environ.get("SPARKLOG_KAFKA") == "needed":
        return True
    if environ.get("CI", "").lower() not in {"1", "true"}:
        return False
    path = environ.get("PATH", "")
    home = environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else path)
    return java is not None and shutil.which("mvn", path=path) is not None
