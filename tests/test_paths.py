import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import InvalidArgumentError, InvalidTopicError
from sparklog.paths import check_topic_name, decode_id, encode_id, new_data_file, topic_table
from sparklog.storage import MemoryStore
from tests.depth import by_depth


# Source: Kafka Topic.validate and its TopicTest
@pytest.mark.parametrize(
    "name", ["a", "orders", "ORDERS.eu_1-x", "0", "...", "-", "_", ".hidden", "a..b", "__consumer_offsets", "a" * 249]
)
def test_kafkas_topic_names_are_accepted(name):
    assert check_topic_name(name) == name
    assert topic_table(name) == f"topics/{name}"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/a",
        "a\\b",
        "a" * 250,
        "a b",
        " a",
        "a\n",
        "\na",
        "a\0",
        "späße",
        "٣",
        "a:b",
        "a%2Fb",
        None,
        7,
        b"orders",
        ["orders"],
    ],
)
def test_any_other_topic_name_is_refused(name):
    with pytest.raises(InvalidTopicError, match="invalid topic name"):
        check_topic_name(name)
    with pytest.raises(InvalidTopicError):
        topic_table(name)


def test_a_refused_name_that_is_long_is_shown_shortened():
    with pytest.raises(InvalidTopicError, match="1000 characters") as caught:
        check_topic_name("x" * 1000)
    assert len(str(caught.value)) < 250


def test_data_files_lie_in_their_partitions_folder_and_never_share_a_name():
    names = {new_data_file(7) for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(r"partition=7/[0-9a-f]{32}\.parquet", name) for name in names)


@pytest.mark.slow
@given(st.text(min_size=1, max_size=16))
@settings(max_examples=by_depth(gate=100, nightly=200))
def test_an_id_is_one_path_part_and_reads_back(name):
    part = encode_id(name)
    assert decode_id(part) == name
    assert "/" not in part
    assert part not in ("", ".", "..")
    assert re.fullmatch(r"[a-zA-Z0-9._~%-]+", part)
    MemoryStore().put(f"groups/{part}/x", b"")  # a name that every store takes


@pytest.mark.slow
@given(st.text(alphabet="a.%2EF/é ", min_size=1, max_size=4), st.text(alphabet="a.%2EF/é ", min_size=1, max_size=4))
@settings(max_examples=by_depth(gate=100, nightly=200))
def test_two_ids_never_share_a_path(one, other):
    assert (encode_id(one) == encode_id(other)) == (one == other)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("billing", "billing"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("a/b", "a%2Fb"),
        ("../x", "..%2Fx"),
        ("%2E", "%252E"),
        ("späße 🦆", "sp%C3%A4%C3%9Fe%20%F0%9F%A6%86"),
        ("a\n\0", "a%0A%00"),
        ("x" * 200, "x" * 200),
    ],
)
def test_ids_are_percent_encoded(name, part):
    assert encode_id(name) == part
    assert decode_id(part) == name


@pytest.mark.parametrize("name", ["", "x" * 201, "é" * 34, "\ud800"])
def test_an_id_that_fits_no_path_is_refused(name):
    with pytest.raises(InvalidArgumentError, match="invalid id"):
        encode_id(name)


def test_an_id_that_is_too_long_is_not_encoded_first(monkeypatch):
    """✗ A text of eight megabytes took a gateway's event loop a second."""
    monkeypatch.setattr("sparklog.paths.quote", lambda *_, **__: pytest.fail("it was encoded"))
    with pytest.raises(InvalidArgumentError, match="8000000 characters, expected 1 to 200 bytes"):
        encode_id("\x01" * 8_000_000)
