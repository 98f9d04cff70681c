"""The documentation tells the truth: README's Python examples run, and relative links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog import Admin, Consumer, Producer
from sparklog.config import CONSUMER_SETTINGS, PRODUCER_SETTINGS
from sparklog.config.clients import NO_EFFECT, REFUSED

REPOSITORY = Path(__file__).parent.parent
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    REPOSITORY / "CHANGELOG.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
RUNNABLE = [REPOSITORY / "README.md", REPOSITORY / "docs" / "guide.md", REPOSITORY / "docs" / "kafka_python.md"]

FENCE = re.compile(r"^```(?P<language>[^\n`]*)\n(?P<code>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^()\s]+)\)")


def relative(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


@pytest.mark.parametrize("page", RUNNABLE, ids=relative)
def test_python_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for code in python_blocks(page):
        exec(compile(code, page, "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_relative_links_lead_to_files(page):
    links = [link["target"] for link in LINK.finditer(FENCE.sub("", page.read_text()))]
    files = [link.partition("#")[0] for link in links if not re.match(r"[a-z]+:", link)]
    assert [file for file in files if file and not (page.parent / file).exists()] == []


def test_an_example_that_fails_points_into_its_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```\nno python\n```\n\n```python\nfine = 1\n\nbad = fine / 0\n```\n")
    [code] = python_blocks(page)
    with pytest.raises(ZeroDivisionError) as failure:
        exec(compile(code, page, "exec"), {})
    assert failure.traceback[-1].lineno == 9  # counted from 0


def python_blocks(page: Path) -> Iterator[str]:
    """The code of each ```` ```python ```` block, after as many empty lines as make its line numbers the page's."""
    text = page.read_text()
    for block in FENCE.finditer(text):
        if block["language"].strip() == "python":
            yield "\n" * text.count("\n", 0, block.start("code")) + block["code"]


def test_semantics_names_every_setting_of_the_clients():
    page = (REPOSITORY / "docs" / "semantics.md").read_text()
    named = set(re.findall(r"`([a-z0-9_]+)\*?`", page))
    prefixes = tuple(re.findall(r"`([a-z]+_)\*`", page))
    settings = {*PRODUCER_SETTINGS, *CONSUMER_SETTINGS, *NO_EFFECT, *REFUSED}
    assert sorted(name for name in settings - named if not name.startswith(prefixes)) == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_tests_that_a_page_names_exist(page):
    named = re.findall(r"`((?:tests|benchmarks|examples)/[^`\s]*)`", page.read_text())
    assert [path for path in named if not is_there(path)] == []


def is_there(named: str) -> bool:
    """Is there such a file or folder, and in it such a test, where one is named after ``::``?"""
    path, _, test = named.partition("::")
    found = REPOSITORY / path
    return found.exists() and (not test or f"def {test}(" in found.read_text())


@pytest.mark.parametrize("client", [Admin, Consumer, Producer])
def test_semantics_names_every_call_of_the_clients(client):
    page = (REPOSITORY / "docs" / "semantics.md").read_text()
    named = set(re.findall(rf"`(?:{client.__name__}\.)?([a-z_]+)`", page))
    assert {name for name in dir(client) if not name.startswith("_")} - named == set()
