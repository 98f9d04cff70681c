"""``sparklog sql``: tables, JSON, CSV, and queries that fail."""

import csv
import io
import json
import sys

import pytest

from sparklog.txn.consistent_read import load_consistent
from tests.cli.support import a_cluster, done, failure, json_lines, run


@pytest.fixture
def cluster():
    uri = a_cluster()
    done("topics", "create", "orders", cluster=uri)
    lines = [
        {"key": "a", "value": {"total": 1}, "timestamp": 1_000},
        {"key": "b", "value": 'x,"y"\nz', "timestamp": 2_000, "headers": {"h": "1"}},
        {"value_base64": "/w==", "timestamp": 3_000},
    ]
    done("produce", "orders", "--format", "json", cluster=uri, input="\n".join(map(json.dumps, lines)))
    return uri


def test_a_result_is_a_table(cluster):
    text = done("sql", 'select "offset", key, value, timestamp from orders order by 1', cluster=cluster)
    assert text.splitlines() == [
        "offset  key   value        timestamp",
        '     0  a     {"total":1}  1970-01-01T00:00:01Z',
        '     1  b     x,"y"\\nz     1970-01-01T00:00:02Z',
        "     2  null  0xff         1970-01-01T00:00:03Z",
    ]


def test_numbers_that_json_has_no_word_for_are_null(cluster):
    text = done("sql", "select 'nan'::double as a, ['inf'::double, 1] as b", "--json", cluster=cluster)
    assert json_lines(text) == [{"a": None, "b": [None, 1.0]}]


def test_a_result_as_json_lines(cluster):
    query = (
        'select o.offset, value, headers, sum("offset") over () as s, 1.5::decimal(4, 1) as d, true as t '
        "from orders o order by 1"
    )
    found = json_lines(done("sql", query, "--json", cluster=cluster))
    assert found[0] == {"offset": 0, "value": '{"total":1}', "headers": None, "s": 3, "d": 1.5, "t": True}
    assert found[1]["headers"] == [{"key": "h", "value": "1"}]
    assert found[2]["value_base64"] == "/w=="


def test_a_result_as_csv(cluster):
    text = done(
        "sql", "select key, value, headers, 1 = 1 as t from orders order by timestamp", "--csv", cluster=cluster
    )
    assert list(csv.reader(io.StringIO(text))) == [
        ["key", "value", "headers", "t"],
        ["a", '{"total":1}', "", "true"],
        ["b", 'x,"y"\nz', '[{"key": "h", "value": "1"}]', "true"],
        ["", "0xff", "", "true"],
    ]


def test_a_query_from_standard_input(cluster):
    text = done("sql", "-", "--json", cluster=cluster, input="select count(*) as n\nfrom orders")
    assert json_lines(text) == [{"n": 3}]


@pytest.mark.slow
def test_long_results_are_cut_in_a_table_and_say_so(cluster):
    result = run("sql", "select * from range(250) t(n)", cluster=cluster)
    assert len(result.stdout.splitlines()) == 1 + 100
    assert result.stderr == "(the first 100 rows; --max-rows 0 for all)\n"
    for arguments, count in ((["--max-rows", 3], 4), (["--max-rows", 0], 251), (["--json"], 250), (["--csv"], 251)):
        text = done("sql", "select * from range(250) t(n)", *arguments, cluster=cluster)
        assert len(text.splitlines()) == count
    assert len(done("sql", "select * from range(9)", "--json", "--max-rows", 2, cluster=cluster).splitlines()) == 2
    assert run("sql", "select * from range(100)", cluster=cluster).stderr == ""


def test_statements_without_rows(cluster):
    assert done("sql", "select * from orders where false", "--json", cluster=cluster) == ""
    assert done("sql", "select key from orders where false", cluster=cluster) == "key\n"
    assert run("sql", "create table x(i int)", cluster=cluster).exit_code == 0


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("selec", 'Parser Error: syntax error at or near "selec"'),
        ("select * from nosuch", "Catalog Error: Table with name nosuch does not exist!"),
        ("select decode(value)::int from orders", "Conversion Error: "),
    ],
)
def test_a_query_that_fails_is_told_in_one_line(cluster, query, told):
    assert told in failure("sql", query, cluster=cluster)


def test_without_duckdb_it_says_what_to_install(cluster, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    told = failure("sql", "select 1", cluster=cluster)
    assert told == "sparklog: error: SQL needs DuckDB: pip install 'sparklog[sql]'"


def test_other_failures(cluster):
    assert "no sparklog cluster" in failure("sql", "select 1", cluster="memory://nothing")
    assert "not both" in failure("sql", "select 1", "--json", "--csv", code=2, cluster=cluster)


def test_a_consistent_cut_is_asked_for_by_an_option(cluster, monkeypatch):
    asked = []

    def load(given, topics, **how):
        asked.append([*topics])
        return load_consistent(given, topics, **how)

    monkeypatch.setattr("sparklog.txn.consistent_read.load_consistent", load)
    assert done("sql", "select count(*) as n from orders", "--consistent", "--json", cluster=cluster)
    assert asked == [["orders"]]


def test_a_topic_as_of_an_older_version(cluster):
    done("produce", "orders", cluster=cluster, input="d\n")
    count = "select count(*) as n from orders"
    assert json_lines(done("sql", count, "--json", cluster=cluster)) == [{"n": 4}]
    assert json_lines(done("sql", count, "--json", "--version", "orders=0", cluster=cluster)) == [{"n": 0}]
    assert "TOPIC=NUMBER" in failure("sql", count, "--version", "orders", cluster=cluster)
    assert "as of version 99" in failure("sql", count, "--version", "orders=99", cluster=cluster)
