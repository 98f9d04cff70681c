"""Others' own tests against ``sparklog gateway``: ``python -m proof.compat``."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from proof.compat.franz_go import FranzGo
from proof.compat.kafka_tools import KafkaTools
from proof.compat.librdkafka import Librdkafka
from proof.compat.outcomes import differences, load_expectations, summary
from proof.compat.sources import SuiteUnavailableError

__all__ = ["main"]

_SUITES = (KafkaTools, FranzGo, Librdkafka)


def main(arguments: list[str]) -> int:
    """Returns 1 if a test ended otherwise than the lists say, 2 if a suite couldn't be fetched or built."""
    parser = argparse.ArgumentParser(prog="python -m proof.compat", description=__doc__)
    parser.add_argument("--suite", choices=[one.name for one in _SUITES], help="one of them (all)")
    parser.add_argument("--only", metavar="NAMES", help="tests whose names begin with one of these, e.g. 0030,0045")
    options = parser.parse_args(arguments)
    folder, results = Path(tempfile.mkdtemp(prefix="sparklog-compat-")), []
    for suite in _SUITES:
        if options.suite in (None, suite.name):
            results.append(_play(suite, folder / suite.name, options.only))
    if any(results):
        print(f"The logs of the tests and of the gateways are in {folder}")
    else:
        shutil.rmtree(folder)
    return max(results)


def _play(kind: type[KafkaTools] | type[FranzGo] | type[Librdkafka], folder: Path, only: str | None) -> int:
    folder.mkdir()
    expectations = load_expectations(kind.name)
    began = time.monotonic()
    try:
        suite = kind(folder)
        names = tuple(only.split(",")) if only else ("",)
        known = expectations.in_parts(suite.tests)
        wanted = [one for one in known if one.startswith(names)]
        tests = [one for one in wanted if one not in expectations.left_out]
        outcomes = []
        for one in suite.run(tests, expectations):
            print(f"{one.state:8} {one.seconds:7.1f} s  {one.test}  {one.detail}".rstrip(), flush=True)
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
    sys.exit(main(sys.argv[1:]))
