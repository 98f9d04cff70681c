"""Names of views, the same for every engine: topics under their own, and the views of groups and transactions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sparklog.errors import InvalidArgumentError

__all__ = [
    "SYSTEM_VIEWS",
    "check_names",
    "may_be_system_names",
    "oldest_of_each",
    "parse_versions",
    "system_names",
]

SYSTEM_VIEWS = ("consumer_offsets", "consumer_lag", "transactions")
_BESIDE_TOPIC = "sparklog_"


def system_names(topics: Iterable[str]) -> dict[str, str]:
    """The name of each system view beside these topics: ``sparklog_`` stands before a name that a topic has."""
    taken = {topic.lower() for topic in topics}
    return {name: f"{_BESIDE_TOPIC}{name}" if name in taken else name for name in SYSTEM_VIEWS}


def may_be_system_names(names: Iterable[str]) -> bool:
    """Is any of these the name of a system view, whichever topics there are?"""
    return not {name.removeprefix(_BESIDE_TOPIC) for name in names}.isdisjoint(SYSTEM_VIEWS)


def parse_versions(texts: Iterable[str]) -> dict[str, int]:
    """The versions that texts such as ``orders=41`` name, by topic. Raises ``InvalidArgumentError``."""
    versions: dict[str, int] = {}
    for text in texts:
        topic, _, number = (part.strip() for part in text.partition("="))
        if not topic or not (number.isascii() and number.isdecimal() and len(number) < 19) or topic in versions:
            raise InvalidArgumentError(f"version: got {text!r}, expected TOPIC=NUMBER, each topic once")
        versions[topic] = int(number)
    return versions


def check_names(topics: Iterable[str]) -> list[str]:
    """The topics, each once.

    Raises:
        InvalidArgumentError: the names of two topics differ only in case, which SQL doesn't distinguish.
    """
    taken: dict[str, str] = {}
    for topic in topics:
        other = taken.setdefault(topic.lower(), topic)
        if other != topic:
            raise InvalidArgumentError(f"topics {other} and {topic} differ in case alone, which SQL doesn't tell apart")
    return list(taken.values())


def oldest_of_each(topics: Iterable[str], created_ms: Callable[[str], int]) -> tuple[list[str], dict[str, str]]:
    """The topics, but of names that differ only in case the oldest alone, by ``created_ms`` and then by name.

    Returns:
        The topics that are left, in their order; and those that aren't, each with the topic that has its name.
    """
    names = list(dict.fromkeys(topics))
    by_name: dict[str, list[str]] = {}
    for name in names:
        by_name.setdefault(name.lower(), []).append(name)
    left_out: dict[str, str] = {}
    for twins in by_name.values():
        if len(twins) > 1:
            oldest, *others = _by_age(twins, created_ms)
            left_out |= dict.fromkeys(others, oldest)
    return [name for name in names if name not in left_out], left_out


def _by_age(names: Sequence[str], created_ms: Callable[[str], int]) -> list[str]:
    return sorted(names, key=lambda name: (created_ms(name), name))
