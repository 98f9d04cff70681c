"""Others' own tests, and programs by others' clients, against ``sparklog gateway``: ``python -m proof.compat``."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from proof.compat.clients import JavaClient, KafkaGo, Kafkajs, Platformatic, Sarama
from proof.compat.flink import Flink
from proof.compat.franz_go import FranzGo
from proof.compat.kafka_tools import KafkaTools
from proof.compat.librdkafka import Librdkafka
from proof.compat.mirror_maker import MirrorMaker
from proof.compat.outcomes import Expectations, Outcome, differences, load_expectations, summary
from proof.compat.sources import SuiteUnavailableError
from proof.compat.streams import Streams39, Streams43

__all__ = ["SUITES", "main"]


class _Suite(Protocol):
    name: str
    lists: str
    tests: dict[str, str]

    def __init__(self, folder: Path) -> None: ...

    def run(self, tests: Sequence[str], expectations: Expectations) -> Iterator[Outcome]: ...


SUITES: tuple[type[_Suite], ...] = (
    KafkaTools,
    FranzGo,
    Librdkafka,
    Streams39,
    Streams43,
    MirrorMaker,
    Flink,
    JavaClient,
    Kafkajs,
    Sarama,
    KafkaGo,
    Platformatic,
)


def main(arguments: list[str]) -> int:
    """Returns 1 if a test ended otherwise than the lists say, 2 if a suite couldn't be fetched or built."""
    parser = argparse.ArgumentParser(prog="python -m proof.compat", description=__doc__)
    parser.add_argument("--suite", choices=[one.name for one in SUITES], help="one of them (all)")
    parser.add_argument("--only", metavar="NAMES", help="tests whose names begin with one of these, e.g. 0030,0045")
    parser.add_argument("--list", action="store_true", help="say what the suites of our own show, and run nothing")
    options = parser.parse_args(arguments)
    wanted = [one for one in SUITES if options.suite in (None, one.name)]
    if options.list:
        for suite in wanted:
            _say_what_it_shows(suite)
        return 0
    folder = Path(tempfile.mkdtemp(prefix="sparklog-compat-"))
    results = [_play(suite, folder / suite.name, options.only) for suite in wanted]
    if any(results):
        print(f"The logs of the tests and of the gateways are in {folder}")
    else:
        shutil.rmtree(folder)
    return max(results)


def _say_what_it_shows(kind: type[_Suite]) -> None:
    shows = load_expectations(kind.lists).shows
    print(f"{kind.name}: {'' if shows else 'tests of others'}".rstrip())
    for test, what in shows.items():
        print(f"  {test}: {what}")


def _play(kind: type[_Suite], folder: Path, only: str | None) -> int:
    folder.mkdir()
    expectations = load_expectations(kind.lists)
    began = time.monotonic()
    try:
        suite = kind(folder)
        names = tuple(only.split(",")) if only else ("",)
        known = expectations.in_parts(suite.tests)
        wanted = [one for one in known if one.startswith(names)]
        tests = [one for one in wanted if one not in expectations.left_out]
        outcomes = []
        for one in suite.run(tests, expectations):
            seconds = f"{one.seconds:7.1f} s" if one.seconds else ""
            print(f"{one.state:8} {seconds:9}  {one.test}  {one.detail}".rstrip(), flush=True)
            outcomes.append(one)
    except SuiteUnavailableError as error:
        print(f"{kind.name} was NOT run: {error}")
        return 2
    found = differences(outcomes, expectations, known)
    print(f"{kind.name}: {summary(outcomes, len(wanted) - len(tests))}; {time.monotonic() - began:.0f} s")
    for line in found:
        print(f"  {line}")
    return 1 if found else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by the blocks that end what was started
    sys.exit(main(sys.argv[1:]))
