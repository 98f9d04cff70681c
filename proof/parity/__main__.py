"""Plays the scenarios on a real Kafka, on sparklog and through a gateway, and writes what was seen below their steps.

``python -m proof.parity [-k WORDS] [--broker HOST:PORT,PID]``: reasons (``because``) stay where both still differ; the
difference to what is in git is to be looked at, and each new one explained.
"""

from __future__ import annotations

import argparse
import traceback
from contextlib import nullcontext

from benchmarks.kafka_broker import BRIEF_JVM_OPTIONS, Broker, running_broker
from proof.parity.gateway_player import play_through_gateway
from proof.parity.kafka_player import Played, play_on_kafka
from proof.parity.playing import play, with_seen
from proof.parity.scenario import FOLDER, Scenario, parse, written
from proof.parity.sparklog_player import SparklogPlayer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.parity", description=__doc__)
    parser.add_argument("-k", dest="words", default="", help="only scenarios whose file or title holds these words")
    parser.add_argument("--broker", help="one that runs already, with the process id of its Java")
    options = parser.parse_args()
    known = None
    if options.broker:
        bootstrap, _, pid = options.broker.partition(",")
        known = Broker(bootstrap, int(pid))
    with nullcontext(known) if known else running_broker(jvm_options=BRIEF_JVM_OPTIONS) as broker:
        files = {path: parse(path.read_text(), path.name) for path in sorted(FOLDER.glob("*.txt"))}
        wanted = [one for path in files for one in files[path] if options.words in f"{path.stem}: {one.title}"]
        played = play_on_kafka(broker, wanted)
    through = play_through_gateway(wanted)
    for path, scenarios in files.items():
        path.write_text(
            written([_with_all(one, played[one], through[one]) if one in played else one for one in scenarios])
        )


def _with_all(scenario: Scenario, on_kafka: Played, through_gateway: Played) -> Scenario:
    try:
        here = play(SparklogPlayer(), scenario)
        return with_seen(scenario, kafka=on_kafka.result(), sparklog=here, gateway=through_gateway.result())
    except Exception:
        print(f"{scenario.title}: left as it is\n{traceback.format_exc(limit=-3)}", flush=True)
        return scenario


if __name__ == "__main__":
    main()
