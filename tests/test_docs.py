"""The documentation tells the truth: its examples run, links, files and tests that it names exist, names have docs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs.site.public_names import public_names, undocumented_exports
from sparklog import Admin, Consumer, Producer
from sparklog.config import CONSUMER_SETTINGS, PRODUCER_SETTINGS, TOPIC_SETTINGS
from sparklog.config.clients import NO_EFFECT, REFUSED
from sparklog.integrity.findings import Code

REPOSITORY = Path(__file__).parent.parent
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    REPOSITORY / "CHANGELOG.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
RUNNABLE = [
    REPOSITORY / "README.md",
    *(REPOSITORY / "docs" / name for name in ("guide.md", "kafka_python.md", "processing.md")),
]

FENCE = re.compile(r"^```(?P<language>[^\n`]*)\n(?P<code>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} (?P<text>.*)$", re.MULTILINE)
CODE_PAGES = {
    "docs/architecture.md": "sparklog",
    "docs/protocol.md": "sparklog",
    "docs/from_kafka.md": "sparklog",
    "CONTRIBUTING.md": "",
}
"""Pages that name files of the code, and the folder that the names begin in."""


def relative(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=relative)
def test_python_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for code in python_blocks(page):
        exec(compile(code, page, "exec"), namespace)


def test_relative_links_lead_to_files_and_their_anchors_are_headings():
    wrong, anchors_of = [], cache(anchors)
    for page in PAGES:
        for link in relative_links(page):
            file, _, anchor = link.partition("#")
            target = (page.parent / file).resolve() if file else page
            if not target.exists() or (anchor and anchor not in anchors_of(target)):
                wrong.append((relative(page), link))
    assert wrong == []


def relative_links(page: Path) -> list[str]:
    links = [link["target"] for link in LINK.finditer(FENCE.sub("", page.read_text()))]
    return [link for link in links if not re.match(r"[a-z]+:", link)]


def test_a_wrong_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n[a](#a-page) [b](b.md#there) [c](https://c.org/#c)\n```\n[d](d.md)\n```\n")
    assert relative_links(page) == ["#a-page", "b.md#there"]
    assert anchors(page) == {"a-page"}


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub and the site make them."""
    headings = [heading["text"] for heading in HEADING.finditer(FENCE.sub("", page.read_text()))]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_each_promise_names_what_the_storage_must_do():
    page = (REPOSITORY / "docs" / "guarantees.md").read_text()
    promised, _, rest = page.partition("## What the storage must do\n")
    needs = rest.partition("\n## ")[0]
    words = set(re.findall(r"</a>\*\*(\w+)\*\*", needs))
    promises = [row for row, cited in first_cells(promised) if "tests/" in cited or "proof/" in cited]
    rows = [(row, text) for row, text in first_cells(needs) if "</a>" not in row and row not in ("word", "promise")]
    without = [promise for promise in promises if sum(promise.startswith(row) for row, _ in rows) != 1]
    unused = [row for row, _ in rows if not any(promise.startswith(row) for promise in promises)]
    needed = {word for _, text in rows for word in re.findall(r"\w+", text)}
    assert (len(words), without, unused) == (8, [], [])
    assert words <= needed


def first_cells(page: str) -> list[tuple[str, str]]:
    """Of the rows of a page's tables: the first cell, and all others."""
    rows = re.findall(r"^\| (.+?) \| (.*) \|$", page.partition("## Producing\n")[2] or page, re.MULTILINE)
    return [(first, others) for first, others in rows if not set(first) <= set("-|")]


def test_the_index_leads_to_every_page():
    index = REPOSITORY / "docs" / "index.md"
    linked = {(index.parent / link["target"]).resolve() for link in LINK.finditer(index.read_text())}
    assert {*index.parent.glob("*.md")} - linked == {index}


@pytest.mark.parametrize("page", CODE_PAGES)
def test_files_of_the_code_that_a_page_names_exist(page):
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.py|sparklog/[\w/]+/)`", (REPOSITORY / page).read_text())
    roots = [REPOSITORY, REPOSITORY / CODE_PAGES[page]]
    assert len(named) > 5
    assert sorted({path for path in named if not any((root / path).exists() for root in roots)}) == []


def test_each_mechanism_of_kafka_names_its_code_and_a_test_that_shows_it():
    text = (REPOSITORY / "docs" / "from_kafka.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) > 30
    for mechanism, _, code, tests, *_ in rows:
        files = [REPOSITORY / "sparklog" / path for path in re.findall(r"`([\w/]+\.py)`", code)]
        assert files, mechanism
        assert [path for path in files if not path.exists()] == [], mechanism
        assert re.search(r"`(tests|proof)/", tests), mechanism


@pytest.mark.slow
def test_calls_that_pages_name_exist():
    names = {each.name for each in public_names(REPOSITORY / "sparklog", overrides=True)}
    for page in ("docs/architecture.md", "docs/protocol.md"):
        text = (REPOSITORY / page).read_text()
        assert sorted(set(re.findall(r"`([A-Z]\w+\.[a-z]\w*)`", text)) - names) == [], page


def test_citations_of_rules_carry_the_rules_name():
    page = (REPOSITORY / "docs" / "protocol.md").read_text()
    names = dict(re.findall(r"^###? ([LFGT]\d+), (.+)$", page, re.MULTILINE))
    wrong = []
    for path in sorted((REPOSITORY / "sparklog").rglob("*.py")):
        text = re.sub(r"\s*\n\s*(?:# )?", " ", path.read_text())
        cited = re.finditer(r"\b([LFGT](?:[1-9]|1[0-7]))\b(.{0,20})", text)
        wrong += [(relative(path), one[0]) for one in cited if not one[2].startswith(f", {names[one[1]]}")]
    assert len(names) == 35
    assert wrong == []


@pytest.mark.slow
def test_public_functions_are_documented():
    """In the tests of a store, which users run, a name is the sentence."""
    names = [each for each in public_names(REPOSITORY / "sparklog") if "StoreContract.test_" not in each.name]
    missing = [str(each) for each in names if not each.is_documented]
    assert len(missing) <= 0.05 * len(names), missing


def test_docstrings_begin_with_a_verb_or_a_noun():
    """Not with half a sentence whose other half is the name: ``Of``, ``What``, ``As``, …"""
    begun = re.compile(r'^ *"""((?:As|Of|That|Those|What|Who|Whose) .*)', re.MULTILINE)
    files = sorted((REPOSITORY / "sparklog").rglob("*.py"))
    assert begun.findall('''x = 1\n"""Of a topic."""\n''') == ['Of a topic."""']
    assert [(relative(path), text) for path in files for text in begun.findall(path.read_text())] == []


@pytest.mark.slow
def test_all_that_the_api_exports_is_documented():
    assert undocumented_exports(REPOSITORY / "sparklog") == []


def test_an_undocumented_function_is_found(tmp_path):
    module = tmp_path / "sparklog" / "room.py"
    module.parent.mkdir()
    module.write_text(
        "class Base:\n    'Says it.'\n    def kept(self):\n        'Says it.'\n"
        "class Public(Base):\n    'Says it.'\n    def kept(self): ...\n"
        "    def added(self): ...\n    def _own(self): ...\n"
    )
    found = {each.name: each.is_documented for each in public_names(module.parent)}
    assert found == {"Base": True, "Base.kept": True, "Public": True, "Public.added": False}


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


@pytest.mark.parametrize("page", ["integrity.md", "operations.md"])
def test_each_finding_of_a_check_has_a_row(page):
    text = (REPOSITORY / "docs" / page).read_text()
    rows = "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    assert [code for code in Code if f"`{code.value}`" not in rows] == []


def test_semantics_names_every_setting_of_the_clients():
    page = (REPOSITORY / "docs" / "semantics.md").read_text()
    named = set(re.findall(r"`([a-z0-9_]+)\*?`", page))
    prefixes = tuple(re.findall(r"`([a-z]+_)\*`", page))
    settings = {*PRODUCER_SETTINGS, *CONSUMER_SETTINGS, *NO_EFFECT, *REFUSED}
    assert sorted(name for name in settings - named if not name.startswith(prefixes)) == []


def test_semantics_names_every_topic_setting():
    page = (REPOSITORY / "docs" / "semantics.md").read_text()
    assert [name for name in TOPIC_SETTINGS if f"`{name}`" not in page] == []


def test_tests_that_pages_name_exist():
    named = {page: re.findall(r"`((?:tests|proof|benchmarks|examples)/[^`\s]*)`", page.read_text()) for page in PAGES}
    assert [(relative(page), path) for page, paths in named.items() for path in paths if not is_there(path)] == []


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


def test_the_list_of_decisions_names_each_once_in_its_order():
    folder = REPOSITORY / "docs" / "decisions"
    listed = re.findall(r"^\| \[\d{4}\]\(([^)]*)\) \|", (folder / "README.md").read_text(), re.MULTILINE)
    assert listed == sorted(page.name for page in folder.glob("[0-9]*.md"))
