"""In CI a comparison that could have been made isn't skipped; elsewhere it may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.parity.lacking import is_owed


def tools(folder: Path, *names: str) -> str:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("ci", "names", "owed"),
    [
        ("true", ["java", "mvn"], True),
        ("1", ["java", "mvn"], True),
        ("true", ["java"], False),
        ("true", ["mvn"], False),
        ("", ["java", "mvn"], False),
        ("false", ["java", "mvn"], False),
    ],
)
def test_it_is_owed_in_ci_where_java_and_maven_are(tmp_path: Path, ci: str, names: list[str], owed: bool) -> None:
    assert is_owed({"CI": ci, "PATH": tools(tmp_path / "bin", *names)}) is owed


def test_it_is_owed_where_it_is_asked_for(tmp_path: Path) -> None:
    assert is_owed({"SPARKLOG_KAFKA": "needed", "PATH": str(tmp_path)})
    assert not is_owed({"SPARKLOG_KAFKA": "", "PATH": str(tmp_path)})


def test_java_may_be_under_its_home_alone(tmp_path: Path) -> None:
    path = tools(tmp_path / "bin", "mvn")
    tools(tmp_path / "jdk" / "bin", "java")
    assert is_owed({"CI": "true", "PATH": path, "JAVA_HOME": str(tmp_path / "jdk")})
    assert not is_owed({"CI": "true", "PATH": path, "JAVA_HOME": str(tmp_path)})
