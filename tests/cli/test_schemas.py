"""``sparklog schemas``, and ``topics create --schema``."""

import json

import pytest

from tests.cli.support import a_cluster, done, failure, run

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": ["null", "long"]}, {"name": "total", "type": ["null", "double"]}],
}


@pytest.fixture
def cluster():
    """A cluster with a typed topic ``orders`` and an untyped one."""
    uri = a_cluster()
    done("topics", "create", "orders", "--schema", "id BIGINT, at STRUCT<city: STRING>", cluster=uri)
    done("topics", "create", "plain", cluster=uri)
    return uri


def test_a_topic_is_created_with_the_schema_of_a_file(tmp_path, cluster):
    file = tmp_path / "orders.avsc"
    file.write_text(json.dumps(AVRO))
    done("topics", "create", "a", "b", "--schema", file, cluster=cluster)
    for topic in "ab":
        assert done("schemas", "show", topic, cluster=cluster).splitlines() == [
            f"{topic}: schema 1 of 1",
            "field  type    since schema",
            "id     long               1",
            "total  double             1",
        ]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("orders.proto", "a .proto file must be compiled"),
        ("orders.txt", "expected a file that ends with .avsc, .json, .sql or .ddl"),
        ("none.avsc", "none.avsc: No such file or directory"),
        ("id BIGINT, at TIMESTAMP_NTZ", "at"),
        ("id", "expected a file that ends with"),
    ],
)
def test_a_schema_that_cant_be_one_creates_nothing(schema, reason):
    cluster = a_cluster()
    assert reason in failure("topics", "create", "orders", "--schema", schema, cluster=cluster)
    assert run("topics", "list", cluster=cluster).exit_code == 1  # no cluster was made either


def test_typed_topics_are_listed(cluster):
    assert done("schemas", "list", cluster=cluster).splitlines() == [
        "topic   schema  fields  value.format  value.compatibility",
        "orders       1       2  json          BACKWARD",
    ]
    [found] = json.loads(done("schemas", "list", "--json", cluster=cluster))
    assert found == {
        "topic": "orders",
        "schema": 1,
        "fields": 2,
        "value.format": "json",
        "value.compatibility": "BACKWARD",
    }


def test_a_schema_evolves_and_each_is_shown(tmp_path, cluster):
    wider = "note STRING, id BIGINT, at STRUCT<city: STRING, zip: STRING>"
    assert done("schemas", "check", "orders", wider, cluster=cluster).splitlines() == [
        "orders: compatible",
        "  adds note string",
        "  adds at.zip string",
    ]
    assert done("schemas", "set", "orders", wider, cluster=cluster).splitlines()[0] == "orders: schema 2"
    assert done("schemas", "set", "orders", wider, cluster=cluster).splitlines() == [
        "orders: schema 2",
        "  changes nothing",
    ]
    assert done("schemas", "show", "orders", cluster=cluster).splitlines() == [
        "orders: schema 2 of 2",
        "field    type    since schema",
        "note     string             2",
        "id       long               1",
        "at       struct             1",
        "at.city  string             1",
        "at.zip   string             2",
    ]
    assert done("schemas", "show", "orders", "--id", 1, cluster=cluster).splitlines()[0] == "orders: schema 1 of 2"
    first = tmp_path / "first.json"
    first.write_text(done("schemas", "show", "orders", "--id", 1, "--json", cluster=cluster))
    assert done("schemas", "check", "orders", first, cluster=cluster).splitlines()[1:] == [
        "  leaves out note: its column stays in the table",
        "  leaves out at.zip: its column stays in the table",
    ]
    done("schemas", "set", "orders", first, cluster=cluster)
    assert "  brings back note string" in done("schemas", "check", "orders", wider, cluster=cluster).splitlines()
    order = "at STRUCT<city: STRING>, id BIGINT"
    assert done("schemas", "check", "orders", order, cluster=cluster).splitlines()[1:] == [
        "  changes the order of the fields alone"
    ]


def test_what_a_change_of_the_source_means_for_bytes_is_told(cluster, tmp_path):
    record = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": ["null", "long"]}]}
    files = [tmp_path / "order.avsc", tmp_path / "renamed.avsc"]
    for file, name in zip(files, ("Order", "Renamed"), strict=True):
        file.write_text(json.dumps({**record, "name": name, "aliases": ["Order"]}))
    done("topics", "create", "avro", "--schema", files[0], cluster=cluster)

    def changes(schema):
        return done("schemas", "check", "avro", schema, cluster=cluster).splitlines()[1:]

    assert changes(files[0]) == ["  changes nothing"]
    assert changes(files[1]) == ["  bytes in Avro are read by another Avro record"]
    assert changes("id BIGINT") == [
        "  isn't made of an Avro record any more: Avro is read by a union with null for each field"
    ]
    done("schemas", "set", "avro", "id BIGINT", cluster=cluster)
    assert changes(files[0]) == ["  bytes in Avro are read by its Avro record"]


def test_a_schema_that_is_not_compatible_is_refused_with_the_reasons(cluster):
    for command in ("check", "set"):
        assert "field id: string, but long in schema 1" in failure(
            "schemas", command, "orders", "id STRING, x INT", cluster=cluster
        )
    result = run("schemas", "check", "orders", "id STRING, x INT", "--json", cluster=cluster)
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["compatible"] is False
    assert found["changes"][0] == "adds x integer"
    assert len(found["reasons"]) == 1


def test_an_untyped_topic_becomes_typed(cluster):
    assert "isn't typed" in failure("schemas", "show", "plain", cluster=cluster)
    said = "  the topic becomes typed; older records keep their bytes"
    assert done("schemas", "check", "plain", "id INT, x INT", cluster=cluster).splitlines()[1] == said
    assert done("schemas", "set", "plain", "id INT, x INT", cluster=cluster).splitlines() == ["plain: schema 1", said]
    assert len(done("schemas", "list", cluster=cluster).splitlines()) == 3


def test_a_schema_or_topic_that_is_not_there(cluster):
    assert "it has 1 to 1" in failure("schemas", "show", "orders", "--id", 2, cluster=cluster)
    assert "unknown topic" in failure("schemas", "show", "nosuch", cluster=cluster)
    failure("schemas", "show", "orders", "--id", 0, cluster=cluster, code=2)
