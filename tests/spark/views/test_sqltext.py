"""SQL expressions over a topic's table; without Spark."""

from datetime import datetime, timedelta, timezone

import pytest

from sparklog.errors import InvalidArgumentError
from sparklog.spark.views import sqltext


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders", "`orders`"),
        ("lake.my-orders", "`lake`.`my-orders`"),
        ("cat.lake.`a.b`", "`cat`.`lake`.`a.b`"),
        ("`a``b`", "`a``b`"),
    ],
)
def test_a_name_is_quoted_part_by_part(name, expected):
    assert sqltext.quoted_name(name) == expected


@pytest.mark.parametrize("name", ["", ".", "a..b", "a.", "`a", "a`b", "``"])
def test_a_name_that_cant_be_read_is_refused(name):
    with pytest.raises(InvalidArgumentError, match="is no name of a view"):
        sqltext.quoted_name(name)


def test_a_name_is_quoted_whatever_it_holds():
    assert sqltext.quoted("my-topic.x") == "`my-topic.x`"
    assert sqltext.quoted("a`b") == "`a``b`"


def test_only_a_log_that_begins_after_0_is_looked_up():
    assert sqltext.readable([0, 0]) == "partition IS NOT NULL AND base_offset IS NOT NULL"
    assert "array(0L, 5L)" in sqltext.readable([0, 5])


def test_a_range_of_offsets_is_a_condition_on_files_and_one_on_rows():
    assert sqltext.files_between(1, 40, 60) == "(partition = 1 AND base_offset >= 40L AND base_offset < 60L)"
    assert sqltext.files_between(1, None, None) == "(partition = 1)"
    assert sqltext.rows_between(1, 45, 60) == (
        "(partition = 1 AND base_offset + offset_delta >= 45L AND base_offset + offset_delta < 60L)"
    )


def test_a_moment_is_written_in_utc_and_needs_a_zone():
    moment = datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))
    assert sqltext.at_or_after(moment) == "timestamp >= TIMESTAMP '2026-01-02 01:00:00.000000Z'"
    assert sqltext.before(moment).startswith("timestamp < ")
    with pytest.raises(InvalidArgumentError, match="no time zone"):
        sqltext.before(datetime(2026, 1, 2))


def test_bounds_are_of_every_partition_or_of_those_named():
    assert sqltext.bounds(7, 2, "starting") == {0: 7, 1: 7}
    assert sqltext.bounds({1: 7}, 2, "starting") == {1: 7}
    for given in ({2: 1}, {0: -1}, {0: True}):
        with pytest.raises(InvalidArgumentError, match="starting"):
            sqltext.bounds(given, 2, "starting")
