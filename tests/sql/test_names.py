"""Names of views; the same for DuckDB and for Spark."""

import pytest

from sparklog.errors import InvalidArgumentError
from sparklog.sql.names import check_names, may_be_system_names, system_names


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


@pytest.mark.parametrize("name", ["transactions", "sparklog_consumer_lag"])
def test_a_name_may_be_that_of_a_system_view_whichever_topics_there_are(name):
    assert may_be_system_names(["orders", name])
    assert not may_be_system_names(["orders", "sparklog_orders", name.upper()])
