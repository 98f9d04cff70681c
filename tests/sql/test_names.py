"""Names of views; the same for DuckDB and for Spark."""

import pytest

from sparklog.errors import InvalidArgumentError
from sparklog.sql.names import check_names, system_names


def test_a_topic_keeps_its_name_and_another_view_makes_way():
    assert check_names(["orders", "Transactions", "orders"]) == ["orders", "Transactions"]
    assert system_names(["orders", "Transactions"]) == {
        "consumer_offsets": "consumer_offsets",
        "consumer_lag": "consumer_lag",
        "transactions": "sparklog_transactions",
    }


def test_topics_that_differ_in_case_alone_are_refused():
    with pytest.raises(InvalidArgumentError, match="orders and Orders"):
        check_names(["orders", "Orders"])
