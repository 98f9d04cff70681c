"""The library obstore as this process can use it: its runtime doesn't survive a fork.

obstore keeps one runtime of threads per process, which a child has without the threads: each request of the child would
wait for ever. A child therefore loads the extension a second time, from a copy, which has a runtime of its own.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import tempfile
import warnings
from types import ModuleType

from sparklog.errors import IllegalStateError, InvalidConfigurationError

__all__ = ["obstore_library"]

_EXTENSION = "obstore._obstore"

_loaded: tuple[int, ModuleType] | None = None
"""The process that loaded it, and the extension."""
_file = ""
"""The extension's file as it was installed."""


def obstore_library() -> ModuleType:
    """obstore's extension module, whose functions and stores are those of the package.

    Raises:
        InvalidConfigurationError: it isn't installed.
        IllegalStateError: the process was forked after obstore was used, and can't load it again.
    """
    global _file, _loaded
    loaded = _loaded
    if loaded is None:
        module = _import()
        _file, loaded = str(module.__file__), (os.getpid(), module)
    elif loaded[0] != os.getpid():
        loaded = os.getpid(), _load_again(_file)
    _loaded = loaded
    return loaded[1]


def _import() -> ModuleType:
    try:
        from obstore import _obstore
    except ImportError as error:
        raise InvalidConfigurationError("object stores need obstore: pip install 'sparklog[s3]'") from error
    return _obstore


def _load_again(file: str) -> ModuleType:
    """A second instance of the extension. The system's loader takes a file of another name for another library."""
    try:
        with tempfile.TemporaryDirectory(prefix="sparklog-obstore-") as folder:
            path = os.path.join(folder, os.path.basename(file))
            shutil.copyfile(file, path)
            loader = importlib.machinery.ExtensionFileLoader(_EXTENSION, path)
            spec = importlib.util.spec_from_loader(_EXTENSION, loader)
            if spec is None:
                raise ImportError(f"{path} has no loader")
            module = importlib.util.module_from_spec(spec)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loader.exec_module(module)
            return module
    except (ImportError, OSError) as error:
        raise IllegalStateError(
            f"this process was forked after it had used an object store, and can't load obstore again ({error}): start "
            "processes by multiprocessing's spawn, or open the store in the child alone"
        ) from error
