"""Write the golden clusters: ``python -m tests.golden.write OUT [NAME …]``. By hand, with the code of a release.

What is written stays as it is, for as long as the clusters of that release are to be read: later code isn't to write
them anew, but to read them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from sparklog._version import __version__
from tests.golden.features import features_of
from tests.golden.stock import take_stock
from tests.golden.worlds import CLUSTER_FOLDER, file_times, open_dated, wait_past_coarse_times

__all__ = ["NAMES", "main"]

NAMES = ("topics", "typed", "transactions", "groups", "gateway", "processing")
_LATER_MS = 600_000
"""The date of a cluster is so long after the last of its writes: what was announced is too old to be published."""


def main(arguments: list[str]) -> None:
    """Write some of the clusters, or one in this process, which ends without closing anything."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.write", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--alone", action="store_true", help="write one cluster's folder, and die")
    options = parser.parse_args(arguments)
    if options.alone:
        _write_and_die(options.names[0], options.out)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            _write_one(name, Path(folder), options.out)


def _write_and_die(name: str, root: Path) -> None:
    write: Callable[[Path], list[object]] = import_module(f"tests.golden.clusters.{name}").write
    held = write(root)
    print(f"{name}: {len(held)} are open", file=sys.stderr, flush=True)
    os._exit(0)


def _write_one(name: str, folder: Path, out: Path) -> None:
    written = folder / "written"
    written.mkdir()
    command = [sys.executable, "-m", "tests.golden.write", "--alone", str(written / CLUSTER_FOLDER), name]
    subprocess.run(command, check=True)
    times = file_times(written)
    date_ms = max(times.values()) + _LATER_MS
    shutil.copytree(written, folder / "copy")  # with their times
    wait_past_coarse_times()
    cluster, _ = open_dated(folder / "copy" / CLUSTER_FOLDER, date_ms)
    manifest = {
        "sparklog": __version__,
        "commit": _commit(),
        "date_ms": date_ms,
        "features": features_of(written / CLUSTER_FOLDER),
        "expected": take_stock(cluster),
        "files": times,
    }
    (out / f"{name}.json").write_text(_as_text(manifest))
    _pack(written, times, out / f"{name}.zip")
    print(f"{name}: {len(times)} files, {(out / f'{name}.zip').stat().st_size} bytes")


def _commit() -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def _as_text(manifest: Mapping[str, Any]) -> str:
    """JSON, with a line for each thing of the third level."""
    parts = []
    for name, value in manifest.items():
        if not isinstance(value, dict):
            parts.append(f"{json.dumps(name)}: {json.dumps(value)}")
            continue
        inner = []
        for key, each in value.items():
            if name == "expected" and isinstance(each, dict):
                lines = ",\n".join(
                    f"   {json.dumps(one)}: {json.dumps(two, ensure_ascii=False)}" for one, two in each.items()
                )
                inner.append(f"  {json.dumps(key)}: {{\n{lines}\n  }}" if lines else f"  {json.dumps(key)}: {{}}")
            else:
                inner.append(f"  {json.dumps(key)}: {json.dumps(each)}")
        parts.append(f"{json.dumps(name)}: {{\n" + ",\n".join(inner) + "\n }")
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _pack(folder: Path, times: Mapping[str, int], target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name in times:
            packed.writestr(zipfile.ZipInfo(name), (folder / name).read_bytes(), zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    main(sys.argv[1:])
