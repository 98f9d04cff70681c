"""Packages whose names, and modules, that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType

__all__ = ["import_on_use", "module_on_use"]


def import_on_use(
    package: str, names: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make a package's ``__getattr__`` and ``__dir__`` (PEP 562), which know names of modules not yet imported.

    Args:
        package: its ``__name__``; a name that was used once is its attribute from then on.
        names: by module, the names that are imported from it.
    """
    modules = {name: module for module, exported in names.items() for name in exported}

    def getattr_of_package(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def dir_of_package() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return getattr_of_package, dir_of_package


class _ModuleOnUse(ModuleType):
    """A module that becomes another one, name by name, as soon as it is asked for one of them."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # what the import system and inspection ask of any module
            raise AttributeError(f"module {self.__name__!r} isn't loaded yet", name=name, obj=self)
        module = import_module(self.__name__)
        self.__dict__.update(vars(module))
        return getattr(module, name)


def module_on_use(name: str) -> ModuleType:
    """A stand-in for a module, which is imported when a name of it is first used; no slower than the module after that.

    For modules that few calls of a process need, and that take much time or memory."""
    return _ModuleOnUse(name)
