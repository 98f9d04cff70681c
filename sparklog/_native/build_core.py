"""Compiles ``core.pyx``, here in place or into another folder: ``python sparklog/_native/build_core.py [folder]``.

It needs Cython, a C compiler and Python's headers, and takes about five seconds. Without it sparklog does the same in
pure Python, more slowly. Imports nothing of sparklog: it runs before sparklog is installed. What only the compiling
needs is imported there: each start of sparklog imports this module for :func:`checksum`.
"""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path
from typing import Any

__all__ = ["SOURCE", "CannotCompileError", "build", "checksum"]

SOURCE = Path(__file__).with_name("core.pyx")
_PARTS = (
    "core.pyx",
    "checksums.pxi",
    "column_reading.pxi",
    "local_files.pxi",
    "plain_batches.pxi",
    "plain_files.pxi",
    "plain_reading.pxi",
    "plain_runs.pxi",
    "record_batches.pxi",
    "typed_values.pxi",
)
"""The files of the source; the first includes the others."""


class CannotCompileError(Exception):
    """There is no Cython, no compiler, or they fail; says which."""


def checksum(source: Path = SOURCE) -> str:
    """The checksum of the source. The compiled core carries it, so that one of an older source isn't used."""
    return f"{zlib.crc32(b''.join(source.with_name(name).read_bytes() for name in _PARTS)):08x}"


def build(folder: Path = SOURCE.parent) -> Path:
    """Compile the core into a folder; returns the library's path. Raises :class:`CannotCompileError`."""
    import shutil
    import sysconfig
    import tempfile

    if sys.platform == "win32":
        raise CannotCompileError("it isn't compiled on Windows")
    try:
        from Cython.Compiler import Main
    except ImportError as error:
        raise CannotCompileError(f"no Cython: {error}") from error
    command = _compiler()
    if shutil.which(command[0]) is None:  # asked first: what Cython makes takes longer than the rest of a build
        raise CannotCompileError(f"no C compiler: there is no {command[0]}")
    library = folder / f"core{sysconfig.get_config_var('EXT_SUFFIX')}"
    with tempfile.TemporaryDirectory() as scratch:
        c_file = Path(scratch) / "core.c"
        compiler: Any = Main
        options = compiler.CompilationOptions(output_file=str(c_file), language_level=3)
        result = compiler.compile_single(str(SOURCE), options, full_module_name="sparklog._native.core")
        if result.num_errors:
            raise CannotCompileError(f"Cython found {result.num_errors} errors in {SOURCE}")
        made = Path(scratch) / library.name
        _run([*command, str(c_file), "-o", str(made)])
        folder.mkdir(parents=True, exist_ok=True)
        beside = library.with_name(f"{library.name}.{os.getpid()}")
        beside.write_bytes(made.read_bytes())
        beside.chmod(0o755)
        beside.replace(library)  # a process may have loaded the one that is there
    return library


def _compiler() -> list[str]:
    """The command that makes a shared library, as Python itself was compiled, without its debugging symbols."""
    import shlex
    import sysconfig

    command = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    own = os.environ.get("CC")
    if own:
        command = [*shlex.split(own), *command[1:]]
    flags = ["-O2", "-g0", "-fPIC", "-fno-strict-aliasing", "-fwrapv", "-DNDEBUG", "-w"]
    flags += shlex.split(os.environ.get("ARCHFLAGS", "")) + shlex.split(os.environ.get("CFLAGS", ""))
    paths = sysconfig.get_paths()
    headers = dict.fromkeys(["-I" + paths["include"], "-I" + paths["platinclude"]])
    return [*command, *flags, *headers, f'-DSPARKLOG_CORE_CHECKSUM="{checksum()}"']


def _run(command: list[str]) -> None:
    import subprocess

    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - Python's compiler
    except OSError as error:
        raise CannotCompileError(f"no C compiler: {error}") from error
    if done.returncode:
        raise CannotCompileError(f"{command[0]} failed:\n{done.stderr[-2_000:]}")


def _main() -> None:
    try:
        library = build(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE.parent)
    except CannotCompileError as error:
        sys.exit(f"the native core isn't compiled: {error}")
    sys.stdout.write(f"{library}\n")


if __name__ == "__main__":
    _main()
