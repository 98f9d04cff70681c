"""The jar with the log store: made by whatever compiler there is, and refused if it isn't what was pinned."""

import io
import os
import shutil
import urllib.request
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from java import build_jar
from java.build_jar import NoJavaError, build, is_current, local
from tests.spark_session import java_version, unavailable

CLASSES = [
    f"io/sparklog/delta/{name}.class"
    for name in ("ConditionalGcsLogStore", "ConditionalS3LogStore", "CreateOnce$Creation", "CreateOnce")
] + [
    "io/sparklog/delta/RenamingAdlsLogStore.class",
    *(
        f"io/sparklog/sql/{name}.class"
        for name in ("OffsetBounds", "OffsetPruning$1", "OffsetPruning$Pruning$1", "OffsetPruning$Pruning")
    ),
    "io/sparklog/sql/OffsetPruning.class",
]


@pytest.mark.spark
@pytest.mark.parametrize(
    "compiler",
    [
        "Eclipse's",
        pytest.param(
            "javac",
            marks=[
                pytest.mark.deep,  # in each run the jar of the session is made by it, if it is there
                pytest.mark.skipif(build_jar.tool("javac") is None, reason="there is no javac"),
            ],
        ),
    ],
)
def test_whatever_compiler_is_there_makes_the_jar(tmp_path, monkeypatch, compiler):
    java = build_jar.tool("java")
    if java is None or java_version() is None:
        unavailable("there is no Java")
    if compiler != "javac":  # a Java that can only run
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").symlink_to(Path(java).resolve())
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    jar = build(tmp_path / "made.jar")
    with zipfile.ZipFile(jar) as archive:
        assert archive.namelist() == ["META-INF/MANIFEST.MF", *CLASSES, "META-INF/LICENSE", "META-INF/NOTICE"]
        for name in CLASSES:
            assert archive.read(name)[:8] == b"\xca\xfe\xba\xbe\x00\x00\x00\x3d"  # 61: Java 17
    assert is_current(jar)


def test_without_java_the_reason_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJavaError, match="JRE or a JDK, 17 or newer"):
        build(tmp_path / "made.jar")
    assert [*tmp_path.iterdir()] == []


def test_a_fetched_jar_that_isnt_the_pinned_one_is_refused(tmp_path, monkeypatch):
    wrong = replace(build_jar.ECJ, name="other")
    monkeypatch.setattr(build_jar, "FETCHED", tmp_path)
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: io.BytesIO(b"something else"))
    with pytest.raises(RuntimeError, match=f"{wrong.url}: sha256=.*, expected={wrong.sha256}"):
        local(wrong)
    assert [*tmp_path.iterdir()] == []


def test_a_jar_is_made_again_when_its_source_changed(tmp_path, monkeypatch):
    shutil.copytree(build_jar.HERE, tmp_path / "java")
    monkeypatch.setattr(build_jar, "HERE", tmp_path / "java")
    jar = tmp_path / "made.jar"
    assert not is_current(jar)
    jar.touch()
    os.utime(jar, (2_000_000_000, 2_000_000_000))
    assert is_current(jar)
    *_, source = build_jar.sources()
    os.utime(source, (2_000_000_001, 2_000_000_001))
    assert not is_current(jar)
