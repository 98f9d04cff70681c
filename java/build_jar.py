"""Compiles the log stores for Delta, and the rule that prunes by offsets, into a jar: ``python java/build_jar.py``.

Needs no package but Python's own. The compiler is ``javac`` where there is one, else Eclipse's, which runs on a Java
without compiler. What it compiles against is taken from pyspark and from the jars that Spark has fetched, where they
are there; what isn't comes from Maven's repository. All of it is pinned.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["JAR", "NoJavaError", "build", "is_current"]

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build"
JAR = BUILD / "sparklog-delta.jar"
"""Where ``sparklog.spark`` looks for it in a checkout."""
FETCHED = BUILD / "jars"
IVY = Path.home() / ".ivy2.5.2" / "jars"
"""Where Spark keeps what ``spark.jars.packages`` names."""
REPOSITORY = "https://repo1.maven.org/maven2"
TIMEOUT_S = 120
RELEASE = "17"
"""The oldest Java that Spark 4.2 runs on."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the jar, so that one source makes one jar; zip knows none before."""


@dataclass(frozen=True)
class Artifact:
    """A jar in Maven's repository."""

    group: str
    name: str
    version: str
    sha256: str
    packed_sha256: str = ""
    """Of the one that pyspark brings, where that was built apart."""

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"

    @property
    def url(self) -> str:
        return f"{REPOSITORY}/{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.file_name}"


HADOOP = Artifact(
    "org.apache.hadoop",
    "hadoop-client-api",
    "3.5.0",  # pyspark 4.2.0 brings it
    "cc59446ec9ebaceae56fdb8d8c21477766dc5d426325642151c796bec5c4e6b7",
)
DELTA = Artifact(
    "io.delta", "delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"
)
SPARK = "org.apache.spark"
COMPILED_WITH = (
    HADOOP,
    DELTA,
    Artifact(
        "io.delta",
        "delta-spark_4.2_2.13",
        "4.4.0",
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    *(
        Artifact(SPARK, f"{name}_2.13", "4.2.0", sha256)
        for name, sha256 in {
            "spark-catalyst": "aef4f68a687de8174d06c5cb451c48019847f90c0b0604ec1928ee313b2a6c40",
            "spark-sql": "ec0a0d699c6c57300ee47ba5d54b4d1f71d3e5401fb90a2bcdcd83b942084dbf",
            "spark-sql-api": "d789409a56db600c5160300fcd2c9651bf6f32dd8db1035a9bda17b67543b372",
        }.items()
    ),
    Artifact(
        SPARK,
        "spark-common-utils_2.13",
        "4.2.0",
        "7cef7d3e25bf7d778588da7764b38b63235eda1146d3cd4b42a70ceb79506692",
        packed_sha256="7a24a46dd0a89dc66d3d7fee3c2192e1de4d6071e2e303c1a28796def04e0bb8",
    ),
    Artifact(
        SPARK,
        "spark-common-utils-java_2.13",
        "4.2.0",
        "4477fa046b03df1d565a1d8cf5812106003ba8c031ce3971af39b75d4f0e6b2b",
    ),
    Artifact(
        "org.scala-lang",
        "scala-library",
        "2.13.18",
        "4e85d96ff7bc7dc627985523c3541b9917aaa08e956391380c42db21a2c4e5a0",
    ),
    Artifact("org.slf4j", "slf4j-api", "2.0.17", "7b751d952061954d5abfed7181c1f645d336091b679891591d63329c622eb832"),
)
"""What the sources name, each as pyspark and delta-spark bring it."""
ECJ = Artifact("org.eclipse.jdt", "ecj", "3.38.0", "97c566b120009c203a2fc8b291f4a9adbc171cf1ccb70f06f6b4e1828c00ce8e")
QUICK = "-XX:TieredStopAtLevel=1"
"""For the compiler's JVM: it ends before a second compiler of its own code would pay."""


class NoJavaError(Exception):
    """There is neither ``java`` nor ``javac``."""


def build(jar: Path = JAR) -> Path:
    """Make the jar, unless it is there and no older than its source. Returns where it is.

    Raises:
        NoJavaError: there is no Java.
        RuntimeError: the compiler failed, or what was fetched isn't what was pinned.
        OSError: Maven's repository can't be reached.
    """
    if is_current(jar):
        return jar
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jar.parent) as name:
        folder = Path(name)
        compile_into(folder / "classes")
        pack(folder / "classes", folder / "made.jar")
        os.replace(folder / "made.jar", jar)
    return jar


def is_current(jar: Path) -> bool:
    """Whether a jar is there and no older than what it is made of."""
    parts = [*sources(), Path(__file__)]
    return jar.exists() and jar.stat().st_mtime >= max(part.stat().st_mtime for part in parts)


def sources() -> list[Path]:
    """The Java files."""
    return sorted(HERE.rglob("*.java"))


def compile_into(classes: Path) -> None:
    javac, java = tool("javac"), tool("java")
    if javac:
        # Not what the classes of others were compiled with: Delta's carry annotations of jars that aren't needed here.
        command = [javac, f"-J{QUICK}", "-Xlint:all,-classfile", "-Werror", "--release", RELEASE]
    elif java:
        command = [java, QUICK, "-jar", str(local(ECJ)), "-source", RELEASE, "-target", RELEASE]
    else:
        raise NoJavaError("there is no Java on the PATH or under JAVA_HOME: install a JRE or a JDK, 17 or newer")
    path = os.pathsep.join(str(local(artifact)) for artifact in COMPILED_WITH)
    command += ["-encoding", "UTF-8", "-classpath", path, "-d", str(classes), *map(str, sources())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed ({done.returncode}):\n{done.stdout}{done.stderr}")


def tool(name: str) -> str | None:
    """A program of the Java under ``JAVA_HOME``, else of the ``PATH``; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(name, path=str(Path(home) / "bin")) if home else shutil.which(name)


def local(artifact: Artifact) -> Path:
    """A copy of a jar on this machine, fetched if need be."""
    for path in copies(artifact):
        if path.exists() and digest(path) in (artifact.sha256, artifact.packed_sha256):
            return path
    FETCHED.mkdir(parents=True, exist_ok=True)
    target = FETCHED / artifact.file_name
    print(f"fetching {artifact.url}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=FETCHED) as folder:
        part = Path(folder) / artifact.file_name
        with urllib.request.urlopen(artifact.url, timeout=TIMEOUT_S) as answer, part.open("wb") as file:
            shutil.copyfileobj(answer, file)
        if digest(part) != artifact.sha256:
            raise RuntimeError(f"{artifact.url}: sha256={digest(part)}, expected={artifact.sha256}")
        os.replace(part, target)
    return target


def copies(artifact: Artifact) -> Iterator[Path]:
    """Where a jar may be already."""
    pyspark = importlib.util.find_spec("pyspark")
    for folder in (pyspark.submodule_search_locations if pyspark else None) or []:
        yield Path(folder) / "jars" / artifact.file_name
    yield IVY / f"{artifact.group}_{artifact.file_name}"
    yield FETCHED / artifact.file_name


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pack(classes: Path, jar: Path) -> None:
    files = {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\nCreated-By: sparklog\r\n\r\n"}
    for path in sorted(classes.rglob("*.class")):
        files[path.relative_to(classes).as_posix()] = path.read_bytes()
    for notice in ("LICENSE", "NOTICE"):
        files[f"META-INF/{notice}"] = (HERE.parent / notice).read_bytes()
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    try:
        print(build())
    except (NoJavaError, OSError, RuntimeError) as error:
        sys.exit(f"no jar: {error}")
