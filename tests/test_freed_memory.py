"""What is set for a whole process is set in one of its own."""

from __future__ import annotations

import ctypes
import subprocess
import sys

from sparklog.gateway import process

SCRIPT = """
import pyarrow as pa
from sparklog.gateway.process import keep_freed_memory
was_set = keep_freed_memory()
print(was_set, pa.default_memory_pool().backend_name == "system" or not was_set)
data = [bytes(1 << 20) for _ in range(8)]
"""


def test_a_process_keeps_what_it_frees_where_its_malloc_can():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() in (["True", "True"], ["False", "True"])


def test_another_malloc_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not process.keep_freed_memory()
