"""Which names of sparklog are public, and which of them have no docstring.

Reads the sources alone, so it needs no extra. Public is what has no underscore before its name, in a package or module
of ``sparklog/``: functions, classes and their methods and properties. Not counted are methods that override another
(documented there), overloads and setters.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["API", "PublicName", "public_names", "undocumented_exports"]

API = (
    "sparklog",
    "sparklog.admin",
    "sparklog.errors",
    "sparklog.config",
    "sparklog.groups.assignors",
    "sparklog.spark",
    "sparklog.sql",
    "sparklog.compaction",
    "sparklog.integrity",
    "sparklog.log",
    "sparklog.storage",
    "sparklog.kafka",
    "sparklog.kafka.admin",
    "sparklog.kafka.structs",
    "sparklog.testing",
    "sparklog.testing.history",
)
"""The modules whose ``__all__`` is the API, in the order of the reference."""

_FOREIGN_BASES = frozenset({"DataSource", "RawIOBase", "Protocol", "type"})
"""Classes of others, which document the methods that ours override."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicName:
    """A function, class, method or property that has no underscore before its name."""

    module: str
    name: str
    """Dotted within the module, such as ``Producer.send``."""
    line: int
    is_documented: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.name}"


def public_names(package: Path, *, overrides: bool = False) -> list[PublicName]:
    """The public names of all modules below the folder ``package``, in the order of their files and lines.

    Args:
        overrides: methods that override another, too.
    """
    trees = {path: _tree(path) for path in sorted(package.rglob("*.py"))}
    classes: dict[str, list[ast.ClassDef]] = defaultdict(list)
    for tree in () if overrides else trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(node)
    return [
        PublicName(
            module=path.relative_to(package).as_posix(),
            name=name,
            line=node.lineno,
            is_documented=ast.get_docstring(node) is not None,
        )
        for path, tree in trees.items()
        for name, node in _names(tree.body, "", None, classes)
    ]


def undocumented_exports(package: Path) -> list[str]:
    """What the modules of :data:`API` export, classes' own methods among it, and that has no docstring."""
    exported = {_definition(package, module, name) for module in API for name in _exports(package, module)}
    return [
        str(each)
        for each in public_names(package)
        if not each.is_documented and (each.module, each.name.split(".")[0]) in exported
    ]


def _names(
    body: Iterable[ast.stmt], prefix: str, owner: ast.ClassDef | None, classes: dict[str, list[ast.ClassDef]]
) -> Iterator[tuple[str, ast.ClassDef | _Function]]:
    for node in body:
        if not isinstance(node, ast.ClassDef | _Function) or node.name.startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name, node
            yield from _names(node.body, f"{prefix}{node.name}.", node, classes)
        elif not _is_repeated(node) and (owner is None or not _overrides(owner, node.name, classes)):
            yield prefix + node.name, node


def _is_repeated(node: _Function) -> bool:
    """Is it an overload, or a property's setter?"""
    names = {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in node.decorator_list}
    return bool(names & {"overload", "setter", "deleter"})


def _overrides(owner: ast.ClassDef, method: str, classes: dict[str, list[ast.ClassDef]]) -> bool:
    for base in _base_names(owner):
        if base in _FOREIGN_BASES:
            return True
        for parent in classes.get(base, []) if base != owner.name else []:
            defined = any(isinstance(node, _Function) and node.name == method for node in parent.body)
            if defined or _overrides(parent, method, classes):
                return True
    return False


def _base_names(owner: ast.ClassDef) -> Iterator[str]:
    for base in owner.bases:
        named = base.value if isinstance(base, ast.Subscript) else base
        yield named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")


def _exports(package: Path, module: str) -> list[str]:
    """``__all__`` of a module or package."""
    for node in _tree(_file(package, module)).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise LookupError(f"{module} has no __all__")


def _definition(package: Path, module: str, name: str) -> tuple[str, str]:
    """Where a name that ``module`` exports is defined: the file, relative to ``package``, and the name."""
    if _file(package, f"{module}.{name}").exists():  # a module
        return _file(package, f"{module}.{name}").relative_to(package).as_posix(), ""
    file = _file(package, module)
    for node in _tree(file).body:
        if isinstance(node, ast.ImportFrom) and name in {alias.asname or alias.name for alias in node.names}:
            source = node.module or ""
            if _file(package, source).exists():
                return _definition(package, source, name)
    return file.relative_to(package).as_posix(), name


def _file(package: Path, module: str) -> Path:
    path = package.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())
