"""``bootstrap_servers``: here it is the root of a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparklog.errors import InvalidArgumentError, StoreOutcomeUnknownError, StoreUnavailableError
from sparklog.kafka.errors import KafkaConfigurationError, NoBrokersAvailable
from sparklog.storage import open_store

__all__ = ["Root", "check_root", "reaching"]

Root = str | Path
_EXPECTED = (
    "expected the root URI of a cluster: a folder as ./data, or s3://bucket/prefix. There are no brokers to connect to"
)
# One or several of host, host:port, [v6]:port, with or without a listener's name before it.
_ADDRESS = r"(?:[A-Z_]+://)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}"
_ADDRESSES = re.compile(rf"localhost|\s*{_ADDRESS}\s*(?:,\s*{_ADDRESS}\s*)*")


def check_root(bootstrap_servers: object) -> Root:
    """The one root that was given.

    Args:
        bootstrap_servers: a URI or path, or a list or tuple of exactly one.
    Raises:
        KafkaConfigurationError: nothing, several, or addresses of brokers.
    """
    given = bootstrap_servers
    if isinstance(given, list | tuple):
        if len(given) != 1:
            raise KafkaConfigurationError(f"bootstrap_servers={bootstrap_servers!r}: {_EXPECTED}; got {len(given)}")
        given = given[0]
    if isinstance(given, Path):
        return given
    if not isinstance(given, str) or not given or _ADDRESSES.fullmatch(given):
        raise KafkaConfigurationError(f"bootstrap_servers={bootstrap_servers!r}: {_EXPECTED}")
    return given


@contextmanager
def reaching(root: Root, storage_options: Mapping[str, Any] | None) -> Iterator[None]:
    """Around whatever opens the cluster at ``root``, and raises nothing else for its arguments.

    Raises:
        NoBrokersAvailable: there is none, or the store doesn't answer.
        InvalidArgumentError: ``root`` can't be a store's URI.
    """
    open_store(root, storage_options).close()  # connects to nothing
    try:
        yield
    except (InvalidArgumentError, StoreUnavailableError, StoreOutcomeUnknownError) as error:
        raise NoBrokersAvailable(str(error)) from error
