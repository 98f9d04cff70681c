"""docs/cli.md tells the truth: its console examples run, in order, and print what it says."""

import codecs
import doctest
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.support import a_cluster, run

PAGE = Path(__file__).parent.parent.parent / "docs" / "cli.md"
BLOCK = re.compile(r"^```console\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def examples():
    """Commands and what they print, in the page's order."""
    for block in BLOCK.finditer(PAGE.read_text()):
        for part in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def printed(command, cluster):
    """What a pipe of ``printf`` and ``sparklog`` prints, standard output before standard error."""
    words = shlex.split(command)
    errors, data = "", ""
    while words:
        end = words.index("|") if "|" in words else len(words)
        name, *arguments = words[:end]
        words = words[end + 1 :]
        if name == "printf":
            [text] = arguments
            data = codecs.decode(text, "unicode_escape")
            continue
        assert name == "sparklog"
        result = run(*arguments, cluster=cluster, input=data)
        data, errors = result.stdout, errors + result.stderr
    return data + errors


@pytest.mark.slow
def test_the_examples_print_what_the_page_says():
    cluster = a_cluster()
    same = doctest.OutputChecker().check_output
    found = [(command, output, printed(command, cluster)) for command, output in examples()]
    assert len(found) > 20
    for command, expected, got in found:
        assert same(expected, got, doctest.ELLIPSIS), f"$ {command}\n{got}"


def test_every_command_and_option_is_on_the_page():
    from sparklog.cli.app import cli
    from sparklog.cli.groups import groups
    from sparklog.cli.schemas import schemas
    from sparklog.cli.topics import topics
    from sparklog.cli.transactions import transactions

    page = PAGE.read_text()
    kinds = (cli, topics, schemas, groups, transactions)
    commands = [cli, *(command for kind in kinds for command in kind.commands.values())]
    assert [name for name in cli.commands if f"sparklog {name}" not in page] == []
    names = {option for command in commands for parameter in command.params for option in parameter.opts}
    known = {
        "--help",
        "-h",
        "--version",
        "--replication-factor",
        "names",
        "query",
        "topic",
        "topics",
        "files",
        "shell",
        "schema",
    }
    missing = sorted(name for name in names - known if name.startswith("--") and name not in page)
    assert missing == []
