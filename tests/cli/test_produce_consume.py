"""``sparklog produce`` and ``sparklog consume``: formats, places, ends, bad input."""

import base64
import json
import os
import threading

import click.testing
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.cli.formats import json_line, kcat_format
from sparklog.cli.lines import JsonLines, TextLines
from sparklog.cli.start_positions import StartPosition, parse_start_position
from sparklog.errors import CorruptRecordError, StoreFullError
from sparklog.model import ConsumerRecord
from sparklog.producer import Producer
from tests.cli.support import a_cluster, done, failure, json_lines, run
from tests.depth import by_depth

BEGINNING = "--from-beginning"


@pytest.fixture
def cluster():
    """A cluster with a topic ``t`` of one partition and ``many`` of three."""
    uri = a_cluster()
    done("topics", "create", "t", cluster=uri)
    done("topics", "create", "many", "--partitions", 3, cluster=uri)
    return uri


def produced(cluster, text, *arguments, topic="t", env=None):
    result = run("produce", topic, *arguments, cluster=cluster, input=text, env=env)
    assert result.exit_code == 0, result.output
    return result.stderr


def consumed(cluster, *arguments, topic="t"):
    return done("consume", topic, *arguments, cluster=cluster)


def records(cluster, *arguments, topic="t"):
    return json_lines(consumed(cluster, BEGINNING, "--json", *arguments, topic=topic))


# Text


def test_lines_of_standard_input_are_values(cluster):
    assert produced(cluster, "a\n\nc d\r\nlast") == "produced 4 records to t\n"
    assert consumed(cluster, BEGINNING) == "a\n\nc d\nlast\n"
    assert produced(cluster, "") == "produced 0 records to t\n"


def test_lines_of_files_are_values(cluster, tmp_path):
    (tmp_path / "one").write_bytes(b"a\nb")
    (tmp_path / "two").write_bytes(b"c\n")
    assert produced(cluster, "-\n", str(tmp_path / "one"), "-", str(tmp_path / "two")) == "produced 4 records to t\n"
    assert consumed(cluster, BEGINNING) == "a\nb\n-\nc\n"


def test_keys_headers_and_nulls(cluster):
    produced(cluster, "k,v,w\n,v\nk,NIL\nNIL,\n", "-K", ",", "-Z", "NIL", "-H", "h=1=2", "-H", "h=", "-H", "n")
    found = [(record["key"], record["value"]) for record in records(cluster)]
    assert found == [("k", "v,w"), ("", "v"), ("k", None), (None, "")]
    assert records(cluster)[0]["headers"] == [
        {"key": "h", "value": "1=2"},
        {"key": "h", "value": ""},
        {"key": "n", "value": None},
    ]


def test_a_key_for_all_and_a_partition_for_all(cluster):
    produced(cluster, "a\nb\n", "--key", "k", topic="many")
    produced(cluster, "c\n", "-p", 2, topic="many")
    found = records(cluster, topic="many")
    assert len({record["partition"] for record in found if record["key"] == "k"}) == 1
    assert [(r["value"], r["partition"]) for r in found if r["key"] is None] == [("c", 2)]


def test_settings_of_the_producer(cluster):
    produced(cluster, "a\n", "--acks", 1, "-z", "zstd", "--linger-ms", 0, "--batch-size", 10, "-X", "max_block_ms=5000")
    assert consumed(cluster, BEGINNING) == "a\n"
    assert "unknown producer setting 'nosuch'" in failure("produce", "t", "-X", "nosuch=1", cluster=cluster)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(cluster, acks):
    assert produced(cluster, "a\nb\n", "--acks", acks) == "produced 2 records to t\n"
    assert consumed(cluster, BEGINNING) == "a\nb\n"


def test_bytes_go_through_unchanged(cluster):
    data = bytes(range(256)).replace(b"\n", b"").replace(b"\r", b"")
    run("produce", "t", cluster=cluster, input=data + b"\n")
    assert run("consume", "t", BEGINNING, cluster=cluster).stdout_bytes == data + b"\n"
    [record] = records(cluster)
    assert base64.b64decode(record["value_base64"]) == data
    assert "value" not in record


def test_reading_files_shows_a_bar_where_somebody_looks(cluster, tmp_path, monkeypatch):
    (tmp_path / "big").write_bytes(b"x" * 99 + b"\n" + b"y" * 600_000)
    assert "━" not in produced(cluster, "", tmp_path / "big")
    monkeypatch.setattr(click.testing._NamedTextIOWrapper, "isatty", lambda self: True)
    assert "━" not in produced(cluster, "a\n")
    shown = produced(cluster, "", tmp_path / "big", env={"TERM": "xterm"})
    assert "600.1/600.1 kB" in shown
    assert shown.endswith("produced 2 records to t\n")


# JSON


def test_json_lines(cluster):
    lines = [
        {"key": "k", "value": "v", "headers": {"a": "1", "b": None}, "partition": 1, "timestamp": 5},
        {"value": {"total": 12, "ü": [1.5, None, True]}},
        {"value_base64": "/w==", "key_base64": "AA==", "headers": [["a", "1"], {"key": "a", "value_base64": "/w=="}]},
        {},
        {"value": 7, "key": 8},
    ]
    text = "\n".join(map(json.dumps, lines)) + "\n\n  \n"
    assert produced(cluster, text, "--format", "json", "-p", 0, "-H", "all=1", topic="many").startswith("produced 5 ")
    found = {
        record["value_base64"] if "value_base64" in record else record["value"]: record
        for record in records(cluster, topic="many")
    }
    every = {"key": "all", "value": "1"}
    first = found["v"]
    assert (first["key"], first["partition"], first["timestamp"]) == ("k", 1, 5)
    assert first["headers"] == [{"key": "a", "value": "1"}, {"key": "b", "value": None}, every]
    assert found['{"total":12,"ü":[1.5,null,true]}']["partition"] == 0
    assert found["/w=="]["key"] == "\0"
    assert found["/w=="]["headers"] == [{"key": "a", "value": "1"}, {"key": "a", "value_base64": "/w=="}, every]
    assert found[None]["key"] is None
    assert found["7"]["key"] == "8"


def test_what_consume_prints_as_json_produce_takes(cluster):
    produced(cluster, "k,a\nl,b\nk,NIL\nm,d\n", "-K", ",", "-Z", "NIL", "-H", "h=1", topic="many")
    done("topics", "create", "copy", "--partitions", 3, cluster=cluster)
    before = records(cluster, topic="many")
    produced(cluster, "\n".join(map(json.dumps, before)), "--format", "json", topic="copy")
    after = records(cluster, topic="copy")

    def placed(record):
        return record["partition"], record["offset"]

    assert sorted([{**record, "topic": "many"} for record in after], key=placed) == sorted(before, key=placed)


@pytest.mark.slow
@settings(max_examples=by_depth(gate=20, nightly=50))
@given(
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    timestamp=st.integers(0, 10**13),
)
def test_any_record_survives_json(key, value, headers, timestamp):
    record = ConsumerRecord("t", 3, -1, 9, timestamp, 0, key, value, headers, None, -1, -1, -1)
    assert JsonLines().record(json_line(record)) == (key, value, headers or None, 3, timestamp)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "no JSON: "),
        ("7", "got a JSON int, expected an object"),
        ('{"valu": 1}', "unknown field 'valu'"),
        ('{"value_base64": "?"}', "value_base64: "),
        ('{"value_base64": 5}', "value_base64: "),
        ('{"value_base64": "AA==", "value": "x"}', "both value and value_base64"),
        ('{"value": "\\ud800"}', "can't be written as UTF-8"),
        ('{"partition": "1"}', "partition: got '1', expected a whole number"),
        ('{"partition": 7}', "no partition 7"),
        ('{"timestamp": true}', "timestamp: got True"),
        ('{"timestamp": -5}', "timestamp_ms=-5"),
        ('{"headers": 5}', "headers: got 5"),
        ('{"headers": [5]}', "headers: got 5"),
        ('{"headers": [{"key": "a", "x": 1}]}', "headers: got {"),
    ],
)
def test_a_bad_json_line_is_named_and_what_was_before_it_is_stored(cluster, line, told):
    text = f'{{"value": "good"}}\n{line}\n{{"value": "never"}}\n'
    result = run("produce", "t", "--format", "json", cluster=cluster, input=text)
    assert result.exit_code == 1
    first, second = result.stderr.splitlines()
    assert first == "produced 1 record to t"
    assert second.startswith("sparklog: error: stdin, line 2: ")
    assert told in second
    assert consumed(cluster, BEGINNING) == "good\n"


def test_bad_text_lines_are_named(cluster, tmp_path):
    (tmp_path / "keyed").write_text("a:1\nb\n")
    told = failure("produce", "t", "-K", ":", tmp_path / "keyed", cluster=cluster)
    assert told == f"sparklog: error: {tmp_path / 'keyed'}, line 2: no key separator ':' in it"
    told = failure("produce", "t", "-X", "max_request_size=1000", cluster=cluster, input="x" * 2_000)
    assert "stdin, line 1: a record of 2000 bytes for topic 't'" in told
    assert failure("produce", "t", tmp_path / "nosuch", code=2, cluster=cluster).endswith("does not exist.")


def test_a_line_is_not_read_into_memory_without_a_bound(cluster, monkeypatch):
    monkeypatch.setattr("sparklog.cli.lines.MAX_LINE_BYTES", 10)
    assert "line 2 is longer than 10 bytes" in failure("produce", "t", cluster=cluster, input="a\n" + "b" * 11)
    assert consumed(cluster, BEGINNING) == "a\n"


def test_a_record_that_fails_in_the_background_is_named(cluster, monkeypatch):
    def full(*_, **__):
        raise StoreFullError("no space left")

    monkeypatch.setattr("sparklog.storage.memory.MemoryStore.put", full)
    result = run("produce", "t", cluster=cluster, input="a\nb\n")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == "produced 0 records to t"
    assert "stdin, line 1: " in result.stderr
    assert "no space left" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", "t", "--format", "json", "-K", ":"],
        ["produce", "t", "--format", "json", "-Z", ":"],
        ["produce", "t", "-K", ":", "-k", "x"],
        ["produce", "t", "-K", ""],
        ["produce", "t", "-p", "-1"],
        ["produce", "t", "-H", "=x"],
        ["produce", "t", "--acks", "2"],
        ["consume"],
        ["consume", "t", BEGINNING, "-o", "5"],
        ["consume", "t", "-o", "soon"],
        ["consume", "t", "-o", "@soon"],
        ["consume", "t", "-o", "@1969-01-01"],
        ["consume", "t", "--json", "-F", "%s"],
        ["consume", "t", "-F", "%y"],
        ["consume", "t", "-F", "%"],
        ["consume", "t", "-F", r"\q"],
        ["consume", "t", "-n", "0"],
    ],
)
def test_wrong_usage(cluster, arguments):
    assert "Error: " in failure(*arguments, code=2, cluster=cluster)


@pytest.mark.parametrize("command", [["produce"], ["consume"], ["consume", BEGINNING]])
def test_an_unknown_topic_or_cluster(cluster, command):
    assert "unknown topic" in failure(*command, "nosuch", cluster=cluster)
    assert "no sparklog cluster" in failure(*command, "t", cluster="memory://nothing")
    assert "no partition 3" in failure("consume", "many", BEGINNING, "-p", 3, cluster=cluster)


# Where to begin, and where to end


@pytest.mark.slow
def test_reading_begins_where_it_is_told_to(cluster):
    for number, second in enumerate((10, 20, 20, 30)):
        produced(cluster, json.dumps({"value": str(number), "timestamp": second * 1000}), "--format", "json")
    for place, expected in (
        ("beginning", "0123"),
        ("earliest", "0123"),
        ("0", "0123"),
        ("2", "23"),
        ("99", ""),
        ("-1", "3"),
        ("-3", "123"),
        ("-99", "0123"),
        ("end", ""),
        ("latest", ""),
        ("@0", "0123"),
        ("@10001", "123"),
        ("@1970-01-01T00:00:20", "123"),
        ("s@1970-01-01T00:00:20.5Z", "3"),
        ("@1970-01-01T01:00:30+01:00", "3"),
        ("@1970-01-02", ""),
    ):
        assert consumed(cluster, "-o", place).replace("\n", "") == expected, place
    done("topics", "delete-records", "t", "--before-offset", 1, cluster=cluster)
    assert consumed(cluster, "-o", "0") == "1\n2\n3\n"


@pytest.mark.parametrize(("text", "place"), [("-0", StartPosition("end")), ("007", StartPosition("offset", 7))])
def test_odd_places(text, place):
    assert parse_start_position(text) == place


def test_several_topics_and_partitions(cluster):
    produced(cluster, "a\n")
    for partition in range(3):
        produced(cluster, f"{partition}\n", "-p", partition, topic="many")
    assert sorted(done("consume", "many", "t", BEGINNING, cluster=cluster).split()) == ["0", "1", "2", "a"]
    assert sorted(consumed(cluster, BEGINNING, "-p", 2, "-p", 0, topic="many").split()) == ["0", "2"]


def test_it_ends_after_so_many_or_after_so_long(cluster):
    produced(cluster, "a\nb\nc\n")
    assert consumed(cluster, BEGINNING, "-n", 2) == "a\nb\n"
    assert consumed(cluster, BEGINNING, "-n", 9) == "a\nb\nc\n"
    assert consumed(cluster, BEGINNING, "-f", "-n", 3) == "a\nb\nc\n"
    for timeout_ms in (50, 500, 5_000, 50_000):  # a busy machine may need longer to begin
        if (found := consumed(cluster, "-o", "-2", "-f", "--timeout-ms", timeout_ms)) == "b\nc\n":
            break
    assert found == "b\nc\n"
    assert consumed(cluster, "--timeout-ms", 50) == ""
    assert consumed(cluster, "-p", 0, "--timeout-ms", 0) == ""


def send_after(cluster, is_seen):
    """Again until it is seen: on a busy machine the one who follows may begin late."""
    with Producer(cluster) as producer:
        while not is_seen.wait(0.3):
            producer.send("t", b"after")


@pytest.mark.parametrize("arguments", [[], ["-p", "0"], ["-o", "end", "-f"], ["-o", "1", "-f"]])
def test_following_sees_what_comes_later(cluster, arguments):
    produced(cluster, "before\n")
    is_seen = threading.Event()
    sending = threading.Thread(target=send_after, args=[cluster, is_seen])
    sending.start()
    try:
        assert consumed(cluster, *arguments, "-n", 1) == "after\n"
    finally:
        is_seen.set()
        sending.join()


def test_a_corrupt_file_is_named(cluster, monkeypatch):
    produced(cluster, "a\n")

    def corrupt(*_, **__):
        raise CorruptRecordError("corrupt data file topics/t/x.parquet: no Parquet")

    monkeypatch.setattr("sparklog.consumer.client.Consumer.poll", corrupt)
    assert failure("consume", "t", BEGINNING, cluster=cluster).endswith("topics/t/x.parquet: no Parquet")


# What is printed


def test_a_line_is_told_to_be_wrong_however_it_is(cluster):
    told = failure("produce", "t", "-K", os.fsdecode(b"\xff"), cluster=cluster, input="a\n")
    assert "stdin, line 1: no key separator" in told
    told = failure("produce", "t", "--format", "json", cluster=cluster, input="{}\n" + "[" * 200_000 + "\n")
    assert "stdin, line 2: JSON that is nested too deeply" in told


def test_fields_are_printed_as_kafkas_console_consumer_does(cluster):
    line = {"key": "k", "value": "v", "headers": {"a": "1", "b": None}, "timestamp": 5}
    produced(cluster, json.dumps(line) + "\n{}\n", "--format", "json")
    everything = [f"--print-{name}" for name in ("key", "headers", "offset", "partition", "timestamp")]
    first, second = consumed(cluster, BEGINNING, *everything).splitlines()
    assert first == "CreateTime:5\tPartition:0\tOffset:0\ta:1,b:null\tk\tv"
    assert second.endswith("\tPartition:0\tOffset:1\tNO_HEADERS\tnull\tnull")
    assert consumed(cluster, BEGINNING, "-K", "=", "-Z", "-") == "k=v\n-=-\n"
    assert consumed(cluster, BEGINNING, "--print-offset", "--separator", "|") == "Offset:0|v\nOffset:1|null\n"


def test_log_append_time_is_told():
    uri = a_cluster()
    done("topics", "create", "t", "--config", "message.timestamp.type=LogAppendTime", cluster=uri)
    produced(uri, "a\n")
    assert consumed(uri, BEGINNING, "--print-timestamp").startswith("LogAppendTime:")


def test_kcats_format(cluster):
    line = {"key": "kk", "value": "vvv", "headers": {"a": "1", "b": "2"}, "timestamp": 5}
    produced(cluster, json.dumps(line) + '\n{"timestamp": 6}\n', "--format", "json")
    template = r"%t %p %o %k/%K %s/%S %T %h %%\t\x41\n"
    assert consumed(cluster, BEGINNING, "-F", template) == (
        "t 0 0 kk/2 vvv/3 5 a=1,b=2 %\tA\nt 0 1 null/-1 null/-1 6  %\tA\n"
    )


@pytest.mark.slow
@given(st.text(st.characters(exclude_characters="%\\", exclude_categories=["Cs"])))
def test_text_in_a_format_is_printed_as_it_is(text):
    record = ConsumerRecord("t", 0, -1, 0, 0, 0, None, None, [], None, -1, -1, -1)
    assert kcat_format(text, null=b"")(record) == text.encode()


@given(st.binary(), st.binary())
def test_a_text_line_is_split_at_its_first_separator(key, value):
    separator = b"::"
    key = key.replace(b":", b"")
    record = TextLines(key_separator=separator).record(key + separator + value)
    assert (record.key, record.value) == (key, value)
