"""What is set for a whole process is set in one of its own."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from sparklog import freed_memory

SET = """
from sparklog.freed_memory import GIVEN_BACK, KEPT, share_freed_memory
print(share_freed_memory({keeping}))
import pyarrow as pa
print(pa.default_memory_pool().backend_name)
"""
THREADS = """
import ctypes, os, tempfile, threading
from sparklog.freed_memory import GIVEN_BACK, share_freed_memory
if {shares}:
    assert share_freed_memory(GIVEN_BACK)
meeting = threading.Barrier(16)
def allocate():
    meeting.wait()
    data = [bytes(1_000) for _ in range(100)]
    meeting.wait()
threads = [threading.Thread(target=allocate) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library = ctypes.CDLL(None)
library.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as told:
    file = ctypes.c_void_p(library.fopen(told.name.encode(), b"w"))
    library.malloc_info(0, file)
    library.fclose(file)
    print(told.read().count(b"<heap nr="))
"""
is_glibc = hasattr(os, "confstr") and "CS_GNU_LIBC_VERSION" in os.confstr_names


def played(script: str, **environment: str) -> list[str]:
    clean = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**clean, **environment},
    )
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize("keeping", ["KEPT", "GIVEN_BACK"])
@pytest.mark.parametrize("is_loaded", [False, True])
def test_arrow_allocates_from_what_threads_share(keeping: str, is_loaded: bool) -> None:
    script = ("import pyarrow" if is_loaded else "") + SET.format(keeping=keeping)
    was_set, backend = played(script)
    assert was_set == str(is_glibc)
    assert (backend == "system") or not is_glibc


@pytest.mark.slow
def test_arrow_allocates_as_the_environment_says() -> None:
    told = played(SET.format(keeping="GIVEN_BACK"), ARROW_DEFAULT_MEMORY_POOL="mimalloc")
    assert told == [str(is_glibc), "mimalloc"]


@pytest.mark.slow
@pytest.mark.skipif(not is_glibc, reason="arenas are glibc's")
def test_threads_share_two_arenas() -> None:
    """✗ Each thread of an exporter had its own, and kept there what it had freed after it had loaded a topic."""
    (shared,) = played(THREADS.format(shares=True))
    assert int(shared) <= 2
    (alone,) = played(THREADS.format(shares=False))
    assert int(alone) > 2


def test_another_malloc_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    assert not freed_memory.share_freed_memory(freed_memory.KEPT)
    assert "ARROW_DEFAULT_MEMORY_POOL" not in os.environ


def test_a_malloc_that_refuses_leaves_arrow_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def mallopt(self, option: int, value: int) -> int:
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Refusing())
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    assert not freed_memory.share_freed_memory(freed_memory.GIVEN_BACK)
    assert "ARROW_DEFAULT_MEMORY_POOL" not in os.environ
