"""Names that packages import when they are first used."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import threading

import pytest

from sparklog.lazy_imports import load_uncollected, module_on_use

LAZY = (
    "sparklog",
    "sparklog.compaction",
    "sparklog.log",
    "sparklog.opentelemetry",
    "sparklog.spark",
    "sparklog.sql",
    "sparklog.storage",
)


@pytest.mark.parametrize("package", LAZY)
def test_every_exported_name_is_there_and_is_listed_before_its_first_use(package):
    needed = {"sparklog.sql": "duckdb", "sparklog.opentelemetry": "opentelemetry"}.get(package)
    if needed is not None:
        pytest.importorskip(needed)
    module = importlib.import_module(package)
    assert {*module.__all__} <= {*dir(module)}
    assert [name for name in module.__all__ if getattr(module, name).__class__ is type(sys)] == []


def test_an_unknown_name_is_an_error_that_names_the_package():
    import sparklog

    with pytest.raises(AttributeError, match="'sparklog' has no attribute 'Broker'"):
        sparklog.Broker  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Broker' from 'sparklog'"):
        from sparklog import Broker  # type: ignore[attr-defined] # noqa: F401


@pytest.mark.slow
def test_a_package_alone_imports_no_client():
    code = "import sys, sparklog, sparklog.spark; print(*sys.modules); sparklog.Consumer; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    before, after = (line.split() for line in told.stdout.splitlines())
    assert {"sparklog.consumer", "sparklog.admin", "sparklog.compaction", "pyspark"} & {*before} == set()
    assert "sparklog.consumer" in after


@pytest.mark.slow
def test_the_command_line_imports_nothing_of_clouds_nor_asyncio():
    code = "import sys, sparklog.cli, sparklog.exporter, sparklog.observe; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert {"asyncio", "obstore", "duckdb", "deltalake", "prometheus_client"} & {*told.stdout.split()} == set()
    assert {"pyarrow", "numpy"} & {*told.stdout.split()} == set()  # nor does looking at a cluster need Arrow


@pytest.mark.slow
def test_a_module_is_loaded_when_a_name_of_it_is_used_first():
    code = (
        "import sys; from sparklog.lazy_imports import module_on_use; lazy = module_on_use('colorsys')\n"
        "print('colorsys' in sys.modules); lazy.rgb_to_hsv\n"
        "print('colorsys' in sys.modules, 'hsv_to_rgb' in vars(lazy))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.split() == ["False", "True", "True"]


def test_a_module_that_is_loaded_on_use_lacks_what_the_module_lacks():
    with pytest.raises(AttributeError, match="nothing"):
        module_on_use("json").nothing  # noqa: B018
    with pytest.raises(AttributeError, match="isn't loaded yet"):
        module_on_use("json").__path__  # noqa: B018


@pytest.mark.slow
def test_the_command_line_loads_arrow_only_for_commands_that_need_it():
    code = "import sys, sparklog.cli; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert {"pyarrow", "numpy"} & {*told.stdout.split()} == set()


def test_nothing_is_collected_while_a_module_is_loaded_for_the_first_time():
    assert not load_uncollected("nowhere", gc.isenabled)
    assert gc.isenabled()
    assert load_uncollected("sys", gc.isenabled), "nothing is loaded"


def test_a_load_that_fails_leaves_the_collector_on():
    def load():
        raise ImportError("no such thing")

    with pytest.raises(ImportError, match="no such thing"):
        load_uncollected("nowhere", load)
    assert gc.isenabled()


def test_a_collector_that_the_process_has_off_stays_off():
    gc.disable()
    try:
        assert not load_uncollected("nowhere", gc.isenabled)
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_the_collector_is_on_after_two_loads_at_once_whichever_ends_first(first_ends_first):
    begun, may_end = threading.Event(), threading.Event()

    def first():
        begun.set()
        assert may_end.wait(60)

    thread = threading.Thread(target=load_uncollected, args=("nowhere", first))
    thread.start()
    assert begun.wait(60)

    def second():
        if first_ends_first:
            may_end.set()
            thread.join(60)

    load_uncollected("nowhere", second)
    may_end.set()
    thread.join(60)
    assert not thread.is_alive()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("is_loading", [True, False])
def test_a_process_forked_meanwhile_collects_and_others_keep_what_they_chose(is_loading):
    text = """
import gc, os
from sparklog.lazy_imports import load_uncollected

def fork():
    child = os.fork()
    if child == 0:
        return f"child {gc.isenabled()}"
    status = os.waitpid(child, 0)[1]
    return f"parent {gc.isenabled()} {status}"
"""
    text += 'print(load_uncollected("nowhere", fork))' if is_loading else "gc.disable(); print(fork())"
    text += "\nprint(gc.isenabled())"
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.split("\n") == [
        *(f"child {is_loading}", str(is_loading)),
        *("parent False 0", str(is_loading), ""),
    ]


def test_duckdb_is_imported_with_one_collection_at_most():
    pytest.importorskip("duckdb")
    text = """
import gc
from sparklog.sql.duck import duckdb_module

found = []
gc.callbacks.append(lambda phase, info: found.append(phase))
duckdb_module()
print(found.count("start"), gc.isenabled())
"""
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True)
    count, is_enabled = found.stdout.split()
    assert int(count) <= 1, "the one is when it is over"
    assert is_enabled == "True"
