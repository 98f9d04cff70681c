"""Packages whose names, and modules, that are imported when they are first used."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TypeVar

__all__ = ["import_on_use", "load_uncollected", "module_on_use"]

T = TypeVar("T")


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


_LOADING: list[None] = []
"""An entry for each call that has stopped Python's collector."""


def load_uncollected(module: str, load: Callable[[], T]) -> T:
    """The result of ``load``, which imports a module of much code: the first time without collections of garbage.

    Modules make ten thousands of objects that live on, and Python searches them for garbage again and again, at last
    together with all others that there are. Of two threads that load at once the first one to end lets collections
    happen to the other, which is only slower. Raises what ``load`` raises.
    """
    if module in sys.modules or not gc.isenabled():
        return load()
    _LOADING.append(None)
    try:
        gc.disable()
        return load()
    finally:
        gc.enable()
        if _LOADING:  # else this is a child that was forked meanwhile
            _LOADING.pop()


def _collect_in_child() -> None:
    """Let a process collect that was forked meanwhile, by another thread: nobody else would."""
    if _LOADING:
        _LOADING.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_collect_in_child)
