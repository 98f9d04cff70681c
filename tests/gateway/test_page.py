"""What docs/gateway.md shows for services is what they take."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from sparklog.cli.gateway import gateway

PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()


def shown(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def options_of(arguments: list[str]) -> dict[str, object]:
    """What the command makes of arguments; files needn't be there."""
    command = click.Command("gateway", params=[p for p in gateway.params if not isinstance(p.type, click.Path)])
    command.params += [click.Option(p.opts) for p in gateway.params if isinstance(p.type, click.Path)]
    for parameter in command.params:
        parameter.callback = None
    return command.make_context("gateway", arguments).params


def test_the_units_command_has_options_that_there_are() -> None:
    line = re.findall(r"^ExecStart=(.*)$", shown("ini"), re.MULTILINE)[0]
    program, name, *arguments = shlex.split(line)
    assert (Path(program).name, name) == ("sparklog", "gateway")
    assert options_of(arguments)["log_format"] == "json"


def test_the_images_command_has_options_that_there_are() -> None:
    program, name, *arguments = re.findall(r'"([^"]*)"', shown("dockerfile").partition("ENTRYPOINT")[2])
    assert (program, name) == ("sparklog", "gateway")
    assert options_of(arguments)["metrics_port"] == 9309


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("there is no systemd-analyze")
    unit = tmp_path / "sparklog-gateway.service"
    unit.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", shown("ini")))
    done = subprocess.run([verify, "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    for word in ("[Install]", "WantedBy=multi-user.target", "After=network-online.target"):
        assert word in shown("ini")
