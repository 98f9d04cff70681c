"""Names that a store accepts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidArgumentError
from sparklog.storage._paths import _ILLEGAL, check_path, is_path

PARTS = st.sampled_from(["", "a", ".", "..", "...", "a.b", ".a", "é", "\\", "\0", "\n", "\ud800", "partition=0"])


@given(path=st.lists(PARTS, max_size=4).map("/".join))
def test_names_that_plain_searches_settle_are_those_that_the_rule_allows(path):
    assert is_path(path) is (_ILLEGAL.search(path) is None)


@pytest.mark.parametrize(
    "path", ["", "/", "/a", "a/", "a//b", ".", "..", "a/.", "a/../b", "a\\b", "a\0", "a/\n", "\ud800"]
)
def test_what_names_no_object_is_refused(path):
    with pytest.raises(InvalidArgumentError, match="invalid path"):
        check_path(path)


@pytest.mark.parametrize(
    "path", ["a", "a/b", ".a", "a/.b", "a/..b", "a.", "é/ü", "a\nb", "a b", "topics/t/partition=0/f.parquet"]
)
def test_any_other_name_is_one(path):
    assert check_path(path) == path
