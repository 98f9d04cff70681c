"""Doors open one way: reads every import of the package, also those inside functions, and keeps the drawing true."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent

# From the bottom up. A room may import those below it; rooms of one line don't know each other, but for the first.
LAYERS = [
    {
        "_native",
        "_version",
        "checksums",
        "model",
        "errors",
        "config",
        "clock",
        "iso_times",
        "parallel",
        "paths",
        "prices",
        "logs",
        "texts",
        "metrics",
        "new_clients",
        "interrupts",
        "workers",
        "lazy_imports",
        "arrow",
        "freed_memory",
    },
    {"schemas"},
    {"storage"},
    {"delta"},
    {"log"},
    {"groups"},
    {"txn"},
    {"producer", "consumer", "compaction", "integrity", "admin"},
    {"sql", "observe", "rollback", "catalogs"},
    {"streaming", "opentelemetry"},
    {"spark", "kafka", "outbox", "processing", "exporter", "prometheus", "__init__"},
    {"aio", "gateway", "console"},
    {"cli", "jobs"},
    {"__main__"},
]
LEVEL = {room: level for level, layer in enumerate(LAYERS) for room in layer}
# Within a room, from the bottom up. Modules of the room itself may import its inner rooms; the inner rooms of one
# line don't know each other, and import of the room's own modules only what is named after the line.
INNER_LAYERS = {
    "log": ([{"data"}, {"announced", "sequencing"}], {"announced", "sequencing"}),
    "groups": ([{"assignors", "offsets", "sharing"}, {"membership"}, {"admin"}], set()),
    "consumer": ([{"sharing"}], {"sharing"}),
    "gateway": ([{"wire", "records"}, {"coordination"}], {"coordination"}),
    "spark": ([{"runtime"}, {"sink"}, {"source"}, {"session"}, {"views"}, {"ingest", "maintenance"}], set()),
}
OUTSIDE: dict[str, str | tuple[str, ...]] = {
    "fsspec": "storage",
    "obstore": "storage",
    "s3fs": "storage",
    "boto3": "catalogs",
    "botocore": ("storage", "catalogs"),
    "deltalake": "delta",
    "duckdb": "sql",
    "starlette": "console",
    "uvicorn": "console",
    "jinja2": "console",
    "anyio": "console",
    "click": "cli",
    "opentelemetry": "opentelemetry",
    "rich": "cli",
    "prometheus_client": "prometheus",
    "pyspark": "spark",
    "delta": "spark",
    "trino": "catalogs",
}
MOST_LINES = 450
"""Of a product file."""
MOST_FUNCTION_LINES = 60
MOST_TEST_NAME_CHARACTERS = 80
TEST_NAME = re.compile(r"^ *def (test_\w+)\(", re.MULTILINE)


def test_every_import_points_down():
    files = [*(REPOSITORY / "sparklog").rglob("*.py"), *(REPOSITORY / "jobs").rglob("*.py")]
    assert [problem for file in files for problem in problems(file, REPOSITORY)] == []


@pytest.mark.parametrize(
    ("path", "source", "problem"),
    [
        ("sparklog/storage/s3.py", "import sparklog.log.append", "storage imports log"),
        ("sparklog/storage/s3.py", "def hidden():\n    from ..delta import commit", "storage imports delta"),
        ("sparklog/groups/offsets/rows.py", "from sparklog import txn", "groups imports txn"),
        ("sparklog/groups/offsets.py", "from sparklog import Producer", "groups imports __init__"),
        ("sparklog/log/append.py", "import fsspec.asyn", "log imports fsspec"),
        ("sparklog/log/append.py", "FOLDER = '_delta_log'", "log mentions _delta_log"),
        ("sparklog/cli/topics.py", "from pyspark import sql", "cli imports pyspark"),
        ("jobs/vacuum.py", "from sparklog.testing import ManualClock", "jobs imports testing"),
        ("sparklog/new/__init__.py", "", "new has no place in LAYERS"),
        ("sparklog/groups/new/x.py", "import sparklog.groups.offsets.rows", "groups/new has no place in INNER_LAYERS"),
        (
            "sparklog/groups/offsets/rows.py",
            "from sparklog.groups.admin.resets import plan",
            "groups/offsets imports groups/admin",
        ),
        ("sparklog/log/data/encode.py", "from sparklog.log.append import TopicWriter", "log/data imports log.append"),
    ],
)
def test_a_wrong_import_is_found(tmp_path, path, source, problem):
    assert list(problems(plant(tmp_path, path, source), tmp_path)) == [f"{path}: {problem}"]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("sparklog/config/topic.py", "from sparklog.errors import InvalidConfigurationError"),
        ("sparklog/delta/commit.py", "import deltalake\nfrom sparklog import __version__, storage\nLOG = '_delta_log'"),
        ("sparklog/log/append.py", "from .follow import Follower"),
        ("sparklog/spark/session/session.py", "from delta import configure_spark_with_delta_pip\nimport pyspark.sql"),
        ("sparklog/testing/store.py", "from sparklog.storage.base import ObjectStore"),
        ("jobs/vacuum.py", "import sparklog.spark"),
    ],
)
def test_a_right_import_passes(tmp_path, path, source):
    assert list(problems(plant(tmp_path, path, source), tmp_path)) == []


@pytest.mark.slow
def test_files_and_functions_are_short():
    files = [*(REPOSITORY / "sparklog").rglob("*.py"), *(REPOSITORY / "jobs").rglob("*.py")]
    lengthy = {str(file.relative_to(REPOSITORY)): [*too_long(file.read_text())] for file in files}
    assert {path: what for path, what in lengthy.items() if what} == {}


def test_a_long_file_and_a_long_function_are_found():
    function = "class C:\n    def f(self):\n" + "        print()\n" * MOST_FUNCTION_LINES
    assert [*too_long(function)] == [f"f has {MOST_FUNCTION_LINES + 1} lines"]
    assert [*too_long("print()\n" * (MOST_LINES + 1))] == [f"{MOST_LINES + 1} lines"]
    assert [*too_long("print()\n" * MOST_LINES)] == []


def test_names_of_tests_are_short():
    files = [file for folder in ("tests", "proof") for file in (REPOSITORY / folder).rglob("*.py")]
    lengthy = [name for file in files for name in long_test_names(file.read_text())]
    assert lengthy == []


def test_a_long_name_of_a_test_is_found():
    name = "test_" + "a" * (MOST_TEST_NAME_CHARACTERS - 5)
    assert [*long_test_names(f"class TestC:\n    def {name}b(self): ...\ndef {name}(): ...\n")] == [f"{name}b"]


def long_test_names(source: str) -> Iterator[str]:
    """The names of a module's tests that are longer than they may be."""
    yield from (name for name in TEST_NAME.findall(source) if len(name) > MOST_TEST_NAME_CHARACTERS)


def too_long(source: str) -> Iterator[str]:
    """Everything in a module that is longer than it may be: the module itself, functions. Decorators don't count."""
    if len(source.splitlines()) > MOST_LINES:
        yield f"{len(source.splitlines())} lines"
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MOST_FUNCTION_LINES:
                yield f"{node.name} has {length} lines"


def problems(file: Path, root: Path) -> Iterator[str]:
    """What is wrong with the imports of ``file``, a module of ``root/sparklog`` or ``root/jobs``."""
    path = file.relative_to(root)
    parts = path.with_suffix("").parts
    room = parts[1] if parts[0] == "sparklog" else parts[0]
    if room == "testing":  # ships fakes of every room
        return
    if room not in LEVEL:
        yield f"{path}: {room} has no place in LAYERS"
        return
    source = file.read_text()
    for name in sorted(set(imported(ast.parse(source), package=parts[:-1]))):
        package, target = [*name.split("."), "__init__"][:2]
        if package == "sparklog":
            yield from (f"{path}: {problem}" for problem in inner_problems(parts[1:-1], name.split(".")[1:]))
            shared = target == room or LEVEL.get(target) == LEVEL[room] == 0
            if not shared and LEVEL.get(target, len(LAYERS)) >= LEVEL[room]:
                yield f"{path}: {room} imports {target}"
        elif room not in rooms_of(package, room):
            yield f"{path}: {room} imports {package}"
    if "_delta_log" in source and room != "delta":
        yield f"{path}: {room} mentions _delta_log"


def rooms_of(package: str, default: str) -> tuple[str, ...]:
    """The rooms that may import a package; ``default`` for one that any may."""
    rooms = OUTSIDE.get(package, default)
    return (rooms,) if isinstance(rooms, str) else rooms


def inner_problems(importer: tuple[str, ...], imported_name: list[str]) -> Iterator[str]:
    """What is wrong with an import within one room, by its inner layers.

    Args:
        importer: the folders that the importing module lies in, below the package.
        imported_name: the imported module's name, below the package.
    """
    room, inner = [*importer, "", ""][:2]
    if room not in INNER_LAYERS or not inner or imported_name[:1] != [room]:
        return
    layers, may_know_room = INNER_LAYERS[room]
    level = {name: number for number, layer in enumerate(layers) for name in layer}
    target = [*imported_name, ""][1]
    if inner not in level:
        yield f"{room}/{inner} has no place in INNER_LAYERS"
    elif target not in level:
        if inner not in may_know_room:
            yield f"{room}/{inner} imports {room}.{target}"
    elif target != inner and level[target] >= level[inner]:
        yield f"{room}/{inner} imports {room}/{target}"


def imported(tree: ast.Module, *, package: tuple[str, ...]) -> Iterator[str]:
    """The full name of everything that is imported; of the root package's own names only ``sparklog``."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module != "sparklog":
                yield module
                continue
            for alias in node.names:  # a room, or a public name; __version__ is set before anything is imported
                if alias.name in LEVEL or alias.name == "testing":
                    yield f"sparklog.{alias.name}"
                elif not alias.name.startswith("__"):
                    yield "sparklog"


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements below a node, at any depth. Expressions are passed over: they are most of a tree."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(node, name, ()):
            yield statement
            yield from statements(statement)


def plant(root: Path, path: str, source: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
    return file
