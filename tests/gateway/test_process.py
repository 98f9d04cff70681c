"""What is set for a whole process is set in one of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMMAND = """
import gc, os, signal, sys, threading, time
from sparklog.cli.app import main

def look():
    until = time.monotonic() + 60
    while not gc.get_freeze_count() and time.monotonic() < until:
        time.sleep(0.05)
    print(gc.get_freeze_count() > len(gc.get_objects()), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=look, daemon=True).start()
sys.argv = ["sparklog", "-c", sys.argv[1], "gateway", "--listen", "127.0.0.1:0"]
main()
"""


@pytest.mark.slow
def test_what_the_command_has_loaded_is_exempted_from_collections(tmp_path):
    command = [sys.executable, "-c", COMMAND, str(tmp_path / "cluster")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "True" in done.stdout.split(), done.stdout + done.stderr
