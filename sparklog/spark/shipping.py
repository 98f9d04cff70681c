"""Sparklog, and what it needs, in one file that Spark sends to executors which have none of it.

Two kinds: an archive for ``--archives`` with the native core, pyarrow, deltalake and obstore; or a zip for
``--py-files``, which holds sparklog alone, in pure Python. Neither pyspark, which executors have, nor Python itself.
"""

from __future__ import annotations

import importlib.util
import io
import re
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.metadata import version as version_of
from pathlib import Path

from sparklog.errors import InvalidArgumentError, InvalidConfigurationError, SparklogError
from sparklog.spark.session.connector import JAR, log_store_jar

__all__ = ["PACKED", "Package", "jobs_folder", "pack_archive", "pack_py_files", "platforms_of", "submit_line"]

PACKED = ("numpy", "pyarrow", "deltalake", "isal", "obstore")
"""The packages that executors need beside sparklog, with what these need in turn; not those of the command line."""
FOLDER = "sparklog-packages"
"""The name by which executors unpack an archive; not ``sparklog``, as whatever is in their folder can be imported."""
_PACKAGES = ("sparklog", "pyspark_sparklog")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LEFT_OUT = re.compile(r"(^|/)(__pycache__|tests?|include)/|\.(pyc|pyi|pyx|pxi|h|hpp|a|lib)$")
"""Files that no executor reads: half of pyarrow is headers and tests."""
_MANYLINUX = re.compile(r"manylinux_2_(\d+)_(\w+)")
_CORE = "sparklog/_native/core"
_COMPRESSION = 4
"""The level of gzip: 9 takes four times as long for a twentieth less."""
_PIP_TIMEOUT_S = 600
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of a zip's files, so that the same sparklog makes the same zip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A file that was made."""

    path: Path
    size_bytes: int
    python: str
    """The minor version of Python that runs it; empty for any."""
    platform: str
    """The platform as pip names it; empty for any."""
    has_core: bool
    """Whether the native core is in it: else executors run pure Python."""


def jobs_folder() -> Path:
    """The folder of ``retention.py`` and the other jobs, for ``spark-submit``."""
    return _package_folder("sparklog") / "jobs"


def pack_archive(out: Path, *, platform: str | None = None, python: str | None = None) -> Package:
    """Make an archive for ``--archives``.

    Args:
        out: the file, ``….tar.gz``; replaced if it is there.
        platform: of the executors, as pip names it (``manylinux_2_28_aarch64``): wheels of these versions are fetched
            by pip. None: what is installed here, for executors of the same kind; nothing is fetched.
        python: of the executors: ``3.12``; fetched, too. None: of the same minor version as this one.
    Raises:
        InvalidArgumentError: a name that doesn't end with ``.tar.gz``.
        InvalidConfigurationError: a package isn't installed, or pip has no wheel of it for this platform.
    """
    if not out.name.endswith((".tar.gz", ".tgz")):
        raise InvalidArgumentError(f"{out}: expected a name that ends with .tar.gz, or .zip for --py-files")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    is_foreign = platform is not None or python not in (None, here)
    with tempfile.TemporaryDirectory() as scratch:
        fetched = Path(scratch)
        if is_foreign:
            _fetch(fetched, platform or _platform(), python or here)
            packed = _files_below(fetched, fetched)
        else:
            packed = _installed_files(PACKED)
        has_core = False
        with tarfile.open(out, "w:gz", compresslevel=_COMPRESSION) as archive:
            for name, path in packed:
                archive.add(path, name, recursive=False)
            for name, path in _own_files():
                if name.startswith(_CORE) and path.suffix == ".so":
                    if is_foreign:
                        continue
                    has_core = True
                archive.add(path, name, recursive=False)
    return Package(
        path=out,
        size_bytes=out.stat().st_size,
        python=python or here,
        platform=platform or _platform(),
        has_core=has_core,
    )


def pack_py_files(out: Path) -> Package:
    """Make a zip for ``--py-files``: sparklog in pure Python. Executors need :data:`PACKED` in their own Python.

    Raises ``InvalidArgumentError`` for a name that doesn't end with ``.zip``.
    """
    if out.suffix != ".zip":
        raise InvalidArgumentError(f"{out}: expected a name that ends with .zip")
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(_own_files()):
            if path.suffix not in (".so", ".jar"):
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED)
    out.write_bytes(made.getvalue())
    return Package(path=out, size_bytes=out.stat().st_size, python="", platform="", has_core=False)


def submit_line(package: Package, job: str = "maintain") -> str:
    """How ``spark-submit`` ships a package and runs a job with it, as a shell takes it."""
    path = shlex.quote(str(package.path))
    if package.path.suffix == ".zip":
        ships = f"--py-files {path}"
    else:
        shipped = shlex.quote(f"{package.path}#{FOLDER}")
        ships = f"--archives {shipped} --conf spark.executorEnv.PYTHONPATH={FOLDER}"
    return f"spark-submit {ships} {shlex.quote(str(jobs_folder() / f'{job}.py'))} --cluster s3://bucket/prefix"


def _platform() -> str:
    return re.sub(r"[.-]", "_", sysconfig.get_platform())


def _package_folder(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise InvalidConfigurationError(f"the package {name} isn't installed beside this sparklog")
    return Path(found.origin).parent


def _own_files() -> Iterator[tuple[str, Path]]:
    """Sparklog's own files, by the names that they are packed under; its jar, too, where there is one."""
    has_jar = False
    for package in _PACKAGES:
        folder = _package_folder(package)
        for name, path in _files_below(folder, folder.parent):
            if path.suffix == ".so" and not path.name.endswith(str(sysconfig.get_config_var("EXT_SUFFIX"))):
                continue  # of another Python, in the same checkout
            has_jar = has_jar or path.name == JAR
            yield name, path
    if not has_jar:
        try:
            yield f"sparklog/spark/jars/{JAR}", log_store_jar()
        except SparklogError:
            return  # what needs it says so


def _files_below(folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and not _LEFT_OUT.search(name):
            yield name, path


def _installed_files(names: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """The files of distributions that are installed here, and of those that they need."""
    waiting, seen = [*names], set[str]()
    while waiting:
        name = waiting.pop()
        if name.lower() in seen:
            continue
        seen.add(name.lower())
        found = _distribution(name, is_needed=name in ("numpy", "pyarrow", "deltalake"))
        if found is None:  # for another Python or platform, or an option
            continue
        waiting += _required(found)
        for file in found.files or ():
            path = Path(str(found.locate_file(file)))
            if ".." not in file.parts and not _LEFT_OUT.search(file.as_posix()) and path.is_file():
                yield file.as_posix(), path


def _distribution(name: str, *, is_needed: bool) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError as error:
        if is_needed:
            raise InvalidConfigurationError(f"{name} isn't installed here: pip install 'sparklog[s3]'") from error
        return None


def _required(found: Distribution) -> list[str]:
    """The names of what a distribution needs, extras apart; whether on this platform shows whether it is there."""
    lines = [line for line in found.requires or () if "extra ==" not in line.partition(";")[2].replace("'", '"')]
    return [name[0] for name in map(_NAME.match, lines) if name]


def platforms_of(platform: str) -> list[str]:
    """A platform, and for a Linux by its glibc the older ones, whose wheels run on it: pip takes names as they are."""
    linux = _MANYLINUX.fullmatch(platform)
    if not linux:
        return [platform]
    oldest, newest, machine = 17, int(linux[1]), linux[2]
    names = [f"manylinux_2_{glibc}_{machine}" for glibc in range(newest, oldest - 1, -1)]
    return [*names, f"manylinux2014_{machine}"]  # the same as glibc 2.17


def _fetch(folder: Path, platform: str, python: str) -> None:
    """Install the versions that are here, for another platform, into a folder."""
    wanted = [f"{name}=={version_of(name)}" for name in PACKED if _distribution(name, is_needed=False) is not None]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--target", str(folder), "--python-version", python, "--only-binary=:all:"]
    command += [word for name in platforms_of(platform) for word in ("--platform", name)]
    try:
        done = subprocess.run(  # noqa: S603 - pip of this Python
            [*command, *wanted], capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise InvalidConfigurationError(f"pip hasn't fetched {', '.join(wanted)} in {_PIP_TIMEOUT_S} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it doesn't say why"]
        raise InvalidConfigurationError(
            f"pip can't fetch wheels for {platform} and Python {python}: {lines[-1].removeprefix('ERROR: ')}"
        )
