"""The same on Azure, as far as its emulator plays it: what was acknowledged is there once, and in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparklog.log import create_topic, open_cluster
from tests.integration.test_s3_bad_days import (
    RECORDS,
    Outages,
    Trouble,
    anything,
    consume,
    every_first_answer_is_lost,
    play_outages,
    produce,
)
from tests.s3_proxy import s3_proxy

pytestmark = [pytest.mark.s3, pytest.mark.slow, pytest.mark.deep]


@pytest.fixture
def proxied(azure_options: dict[str, Any]):
    """A proxy before Azurite, and the options with which clients use it."""
    server, _, account = azure_options["endpoint_url"].rpartition("/")
    with s3_proxy(server) as proxy:
        yield proxy, {**azure_options, "endpoint_url": f"{proxy.url}/{account}"}


@pytest.mark.parametrize("trouble", [every_first_answer_is_lost, anything])
def test_what_azure_acknowledged_is_there_once(
    azure_uri: str, azure_options: dict[str, Any], proxied: Any, trouble: Callable[[], Trouble]
) -> None:
    calm = open_cluster(azure_uri, storage_options=azure_options)
    create_topic(calm.topic_log("t"), "t")
    proxy, options = proxied
    proxy.trouble = trouble()
    assert produce(azure_uri, options) == list(range(len(RECORDS)))
    assert consume(azure_uri, options) == RECORDS


def test_an_outage_of_azure_loses_nothing_and_gives_nothing_twice(azure_uri: str, proxied: Any) -> None:
    proxy, options = proxied
    play_outages(azure_uri, options, Outages(proxy.kill, proxy.start))
