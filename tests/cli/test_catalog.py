"""``sparklog catalog sync``: what is made known, what it prints, and what it refuses."""

from __future__ import annotations

import json

import pytest

from sparklog.catalogs import glue
from sparklog.catalogs.entries import Found, Kind
from tests.catalogs.support import MemoryCatalog
from tests.cli.support import a_cluster, done, failure, run


@pytest.fixture
def catalog(monkeypatch):
    found = MemoryCatalog(dialect=None)
    monkeypatch.setattr(glue, "glue_client", lambda **options: options)
    monkeypatch.setattr(glue, "GlueCatalog", lambda client, database, location: found)
    return found


def sync(cluster, *more):
    return ("catalog", "sync", "--to", "glue", "--schema", "lake", *more, "-c", cluster)


def test_changes_are_shown_and_made_and_drops_wait_for_the_option(catalog):
    cluster = a_cluster()
    done("topics", "create", "orders", "-c", cluster)
    assert "nothing was changed: this was a dry run" in done(*sync(cluster, "--dry-run"))
    assert not catalog.there
    assert done(*sync(cluster)).splitlines()[1].split() == ["create", "table", "orders", "topic", "orders"]
    assert done(*sync(cluster)) == "nothing to be done: 1 entries are as they should be\n"
    done("topics", "delete", "orders", "--yes", "-c", cluster)
    assert "what is left shows what was deleted: --drop drops it" in done(*sync(cluster))
    assert [*catalog.there] == ["orders"]
    [change] = json.loads(done(*sync(cluster, "--drop", "--json")))["changes"]
    assert (change["action"], change["name"]) == ("drop", "orders")
    assert not catalog.there


def test_a_taken_name_is_told_with_exit_code_3(catalog):
    cluster = a_cluster()
    done("topics", "create", "orders", "-c", cluster)
    catalog.there["orders"] = Found(name="orders", kind=Kind.TABLE, location="s3://theirs")
    result = run(*sync(cluster))
    assert result.exit_code == 3
    assert "topic orders: a table orders is there that isn't this cluster's" in result.stderr


def test_maintenance_brings_a_catalog_up_to_date_as_its_last_step(catalog):
    cluster = a_cluster()
    done("topics", "create", "orders", "-c", cluster)
    command = ("maintain", "--catalog", "glue:lake", "--catalog-option", "region_name=x", "-c", cluster)
    assert "catalog glue:lake: 1 created, 0 replaced, 0 left" in run(*command, "--dry-run").stderr
    assert not catalog.there
    assert run(*command).exit_code == 0
    assert [*catalog.there] == ["orders"]
    assert "got 'lake', expected KIND:SCHEMA" in failure("maintain", "--catalog", "lake", "-c", cluster, code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "unity", "--schema", "lake"), "expected CATALOG.SCHEMA"),
        (("--to", "unity", "--schema", "main.lake"), "expected server=URL"),
        (("--to", "trino", "--schema", "main.lake", "--option", "port=x"), "port=x: expected a number"),
        (("--to", "hive", "--schema", "lake", "--location", "s3://b"), "--location isn't for hive"),
    ],
)
def test_wrong_usage_names_the_option(arguments, message):
    assert message in failure("catalog", "sync", *arguments, "-c", a_cluster(), code=2)
