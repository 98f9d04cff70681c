"""Starts processes of another version: its text is given to that version's interpreter, in that version's tree.

So it imports what every version has, and makes that version's own values of what it reads: fields that the version
doesn't know are left out. It reads lines of JSON, ``[number, what a process is told]``, and writes ``["began", number,
pid]`` and ``["ended", number, exit code]``. What it has started ends with it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from proof.torture.crew import begin
from proof.torture.life import Place, Told
from proof.torture.plan import TOPICS, Planted, Role
from sparklog.admin import Admin, NewTopic

with suppress(ImportError):  # there may be no client of Kafka's
    import proof.torture.wire_roles  # noqa: F401 - processes are forked with all that they need

_TICK_S = 0.02


def main() -> None:
    """Serve until nobody writes any more."""
    numbers: dict[int, int] = {}
    data = b""
    while True:
        if select.select([0], [], [], _TICK_S)[0]:
            read = os.read(0, 65_536)
            if not read:
                break
            *lines, data = (data + read).split(b"\n")
            for line in lines:
                number, given = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    _live(given)
                numbers[pid] = number
                _tell("began", number, pid)
        while numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            _tell("ended", numbers.pop(pid), os.waitstatus_to_exitcode(status))
    for pid in numbers:
        os.kill(pid, signal.SIGKILL)


def _tell(*said: object) -> None:
    os.write(1, json.dumps(said).encode() + b"\n")


def _live(given: Mapping[str, Any]) -> NoReturn:
    """The life of a process that was forked."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    code = 1
    try:
        _act(given)
        code = 0
    except BaseException:  # whatever it is, it is told of before the process ends by it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _act(given: Mapping[str, Any]) -> None:
    place = {**given["place"], "folder": Path(given["place"]["folder"]), "gateways": tuple(given["place"]["gateways"])}
    there = Place(**_known(Place, place))
    if given["role"] is None:
        with Admin(there.cluster()) as admin:
            admin.create_topics([NewTopic(each.name, each.partitions, configs=dict(each.configs)) for each in TOPICS])
        return
    names = {each.value for each in Planted}
    planted = tuple(Planted(each) for each in given["planted"] if each in names)
    begin(Told(**_known(Told, {**given, "place": there, "role": Role(given["role"]), "planted": planted})))


def _known(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in given.items() if name in names}


if __name__ == "__main__":
    main()
